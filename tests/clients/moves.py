"""How each client's own tools are called for the job: to read the file, to change it, to run a command, to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FILE = "notes.txt"
NOTES = "the sky is grey\nthe wall is red\nthe door is green\n"
TASK = (
    f"Read {FILE}, change red to blue in it, run `wc -l {FILE}` in a shell, and say how many lines the file has. "
    "Work in the current folder, and ask nothing back."
)
ANSWER = f"DONE: the wall is blue now, and {FILE} has 3 lines."


@dataclass(frozen=True, slots=True)
class Move:
    """One call: a tool and its arguments, in which `{file}`, `{folder}`, `{command}` and `{answer}` are filled in."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moves:
    """The calls of one client. Of several for one purpose the first is taken whose tool is declared. `end`: where an
    answer is a call too."""

    read: Sequence[Move]
    edit: Sequence[Move]
    run: Sequence[Move]
    end: Sequence[Move] = ()


def fill(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: fill(one, words) for key, one in value.items()}
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(f"{{{name}}}", word)
    return value


RED, BLUE = "the wall is red", "the wall is blue"
SED = "sed -i 's/red/blue/' {file}"
DRIVER = Moves(
    read=[Move("read_file", {"path": FILE})],
    edit=[Move("edit_file", {"path": FILE, "old": RED, "new": BLUE})],
    run=[Move("run_command", {"command": "{command}"})],
)
PATCH = f"*** Begin Patch\n*** Update File: {FILE}\n@@\n-{RED}\n+{BLUE}\n*** End Patch\n"

MOVES = {
    "driver": DRIVER,
    "smolagents": Moves(DRIVER.read, DRIVER.edit, DRIVER.run, [Move("final_answer", {"answer": "{answer}"})]),
    "instructor": Moves(
        read=[Move("Step", {"action": "read_file", "path": FILE})],
        edit=[Move("Step", {"action": "edit_file", "path": FILE, "old": RED, "new": BLUE})],
        run=[Move("Step", {"action": "run_command", "command": "{command}"})],
        end=[Move("Step", {"action": "answer", "answer": "{answer}"})],
    ),
    "claude-code": Moves(
        read=[Move("Read", {"file_path": "{file}"})],
        edit=[Move("Edit", {"file_path": "{file}", "old_string": RED, "new_string": BLUE})],
        run=[Move("Bash", {"command": "{command}", "description": "Look at the notes"})],
    ),
    "codex": Moves(
        read=[Move("exec_command", {"cmd": "cat {file}"}), Move("shell_command", {"command": "cat {file}"})],
        edit=[
            Move("apply_patch", {"input": PATCH}),
            Move("exec_command", {"cmd": SED}),
            Move("shell_command", {"command": SED}),
        ],
        run=[Move("exec_command", {"cmd": "{command}"}), Move("shell_command", {"command": "{command}"})],
    ),
    "qwen-code": Moves(
        read=[Move("read_file", {"file_path": "{file}"}), Move("read_file", {"absolute_path": "{file}"})],
        edit=[Move("edit", {"file_path": "{file}", "old_string": RED, "new_string": BLUE})],
        run=[Move("run_shell_command", {"command": "{command}", "is_background": False})],
    ),
    "opencode": Moves(
        read=[Move("read", {"filePath": "{file}"})],
        edit=[Move("edit", {"filePath": "{file}", "oldString": RED, "newString": BLUE})],
        run=[Move("bash", {"command": "{command}", "description": "Look at the notes"})],
    ),
    "continue": Moves(
        read=[Move("Read", {"filepath": "{file}"})],
        edit=[
            Move("Edit", {"file_path": "{file}", "old_string": RED, "new_string": BLUE}),
            Move("MultiEdit", {"file_path": "{file}", "edits": [{"old_string": RED, "new_string": BLUE}]}),
        ],
        run=[Move("Bash", {"command": "{command}"})],
    ),
    "openhands": Moves(
        read=[Move("file_editor", {"command": "view", "path": "{file}"})],
        edit=[Move("file_editor", {"command": "str_replace", "path": "{file}", "old_str": RED, "new_str": BLUE})],
        run=[Move("terminal", {"command": "{command}"})],
        end=[Move("finish", {"message": "{answer}"})],
    ),
    "hermes": Moves(
        read=[Move("read_file", {"path": FILE})],
        edit=[Move("patch", {"mode": "replace", "path": FILE, "old_string": RED, "new_string": BLUE})],
        run=[Move("terminal", {"command": "{command}"})],
    ),
}
