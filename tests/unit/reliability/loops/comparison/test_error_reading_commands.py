"""A shell that refuses everything."""

from itertools import chain

import pytest

from reliability.loops import Stage
from tests.support.conversation import USER, acted, ask, judge_laps, loop_at, quiet, user

COMMANDS = (
    "ls -la", "rm -rf build", "npm test", "git status", "cat package.json", "python main.py", "make", "pip list",
    "find . -name '*.py'", "node -v", "grep -rn foo .", "pwd && ls", "echo hi", "which python",
)  # fmt: skip
REFUSALS = (
    "Claude requested permissions to use Bash, but you haven't granted it yet.",
    "Permission to use Bash has been denied.", "Tool execution denied by policy.", "command rejected by user",
    "Error: The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "exec error: sandbox denied", "Error: Tool 'bash' is disabled in plan mode", "Error: container is not running",
    "/bin/sh: cannot fork: Resource temporarily unavailable", "Internal error: the terminal is closed",
    "Error response from daemon: No such container: sandbox-1", "No space left on device",
    '{"exit_code": 137, "output": "OOM killed"}', "Process exited with code 127\nbash: command not found",
    "Timeout: the shell did not answer", "The user denied this operation.",
)  # fmt: skip
SHELLS = (
    ("Bash", lambda command: {"command": command, "description": f"run {command}"}),
    ("execute_command", lambda command: {"command": command}),
    ("shell", lambda command: {"command": ["bash", "-lc", command]}),
    ("terminal", lambda command: {"input": command}),
)


@pytest.mark.parametrize(("tool", "told"), SHELLS, ids=[name for name, _ in SHELLS])
def test_a_shell_that_refuses_everything_is_a_loop(tool, told):
    """Law: over shells and refusals: unlike commands that are answered in the same words of a failure are nudged at
    the fourth and broken at the tenth; a call of another tool isn't."""
    for refusal in REFUSALS:
        laps = [acted(tool, told(command), refusal) for command in COMMANDS]
        assert judge_laps([USER], laps, 3, 4, 9, 10) == [None, Stage.WARN, Stage.WARN, Stage.BREAK], refusal
        assert loop_at([USER, *chain(*laps)], ask("read_file", {"path": "a.py"})) is None


def test_a_nudge_comes_before_the_break():
    """Law: where the command that never fails comes late, the streak is nudged with it and broken behind it."""
    late = [c for c in COMMANDS if not c.startswith(("ls", "pwd", "echo"))]
    laps = [acted("Bash", {"command": command}, REFUSALS[0]) for command in [*late, "pwd", "date"]]
    assert judge_laps([USER], laps, 10, 11, 12, 13) == [None, None, Stage.WARN, Stage.BREAK]


@pytest.mark.parametrize(("commands", "answer"), [
    (COMMANDS, ""), (COMMANDS, "(no output)"), (COMMANDS, "ok"), (COMMANDS, '{"exit_code": 1, "output": ""}'),
    (COMMANDS, "Command failed with exit code 1"), (COMMANDS, "Process exited with code 1"),
    (COMMANDS, "Command ran without output"), (COMMANDS, "Error: exit code 2"),
    ([f"grep -rn word{n} ." for n in range(14)], "No matches found"),
    ([f"pip install mod{n}" for n in range(14)], "ERROR: Could not find a version that satisfies it"),
    ([f"make {name}" for name in COMMANDS], "error: missing separator"),
    ([f"git {name}" for name in COMMANDS], "fatal: not a git repository (or any of the parent directories): .git"),
    ([f"ls /srv/{n}" for n in range(7)] + [f"cat /srv/{n}" for n in range(7)], "Error: no such file"),
    (["docker ps", "docker images", "docker-compose up", "make up", "docker info", "docker version", "podman ps",
      "docker run x", "make down", "make logs"], "Error: Cannot connect to the Docker daemon"),
    (["cd app && npm run build", "npm run lint", "yarn build", "make", "npx tsc", "cargo check", "echo x > /etc/a",
      "echo y > /etc/a", "cp a /etc/a", "tee /etc/a"], "error: permission denied: /etc/a"),
])  # fmt: skip
def test_commands_that_fail_each_for_itself_are_work(commands, answer):
    """Law: over what a shell answers: an exit code alone, nothing, success, and failures that no command tells but
    such as may fail together are no loop."""
    laps = [acted("Bash", {"command": command}, answer) for command in commands]
    assert set(judge_laps([USER], laps, 4, 6, len(laps))) == {None}


def test_tools_that_are_probed_are_work():
    """Law: the words must be the same as a whole: a program that isn't there is named, and news ends it."""
    unknown = [acted("Bash", {"command": c}, f"bash: {c}: command not found") for c in COMMANDS[:9]]
    assert quiet([USER, *chain(*unknown)])
    mixed = [acted("Bash", {"command": c}, "a.py" if n % 3 == 2 else REFUSALS[0]) for n, c in enumerate(COMMANDS)]
    assert quiet([USER, *chain(*mixed)])


@pytest.mark.parametrize("tool", ["Bash", "exec_command"])
def test_commands_that_count_on_are_a_loop(tool):
    """Law: commands that differ in their figures only and fail each with its own (a model that reads part_01.txt,
    part_02.txt, ... where nobody has named them) are nudged at the fifth and broken behind the tenth; where the user
    or a result has named the things they aren't, nor where they answer."""
    names = [f"r0/part_{n:02}.txt" for n in range(14)]

    def laps(
        answer: str = "Chunk ID: {n:06x}\nProcess exited with code 1\nOutput:\ncat: {name}: No such file or directory",
    ):
        told = (answer.format(n=7919 * n + 4096, name=name) for n, name in enumerate(names))
        calls = ({"cmd" if tool == "exec_command" else "command": f"cat {name}"} for name in names)
        return [acted(tool, call, result) for call, result in zip(calls, told, strict=True)]

    assert judge_laps([USER], laps(), 4, 5, 10, 11) == [None, Stage.WARN, Stage.WARN, Stage.BREAK]
    listed = acted("Bash", {"command": "ls r0"}, "\n".join(names))
    assert set(judge_laps([USER], [listed, *laps()], 5, 11, 14)) == {None}
    assert quiet([user("Read " + ", ".join(names)), *chain(*laps())])
    assert set(judge_laps([USER], laps("Entry {n} of {name} is in order."), 4, 10, 13)) == {None}
