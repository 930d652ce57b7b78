"""The trials: which agent goes round in which kind of loop, as scripts of the tiers.

    same     the same call, the same result
    counter  the same call, and a result that counts the repetitions
    comment  calls that differ in what does nothing: a comment, an id, a time
    read     the same few lines of one file, each time by another range

A script answers by the `{{turn}}` of the conversation and keeps nothing, so that a model that is nudged, or a tier that
stands in for another, goes on with the loop all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# aider asks for summaries of long conversations, and doesn't stream those.
_MARKS = {"smolagents-code": "stop", "aider": "stream"}
KINDS = ("same", "counter", "comment", "read")
TASK = "Change red to blue in notes.txt, and run ./check.sh to see whether it is right. (Task {name}.)"
# The work folder. The check counts how often it was run, and never passes.
FILES = {
    "notes.txt": "the sky is grey\nthe wall is red\nthe door is green\n",
    "check.sh": "#!/bin/sh\n"
    "n=$(cat .runs 2>/dev/null || echo 0)\n"
    "n=$((n + 1))\n"
    "echo $n > .runs\n"
    'echo "check $n: the wall is not blue ($n runs so far)"\n'
    "exit 1\n",
}
Steps = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One agent in one kind of loop. `mark`: the field that a request of the agent's own work has; without it, it is
    another's (a title, a summary) and no lap."""

    agent: str
    kind: str
    answer: Steps
    mark: str = "tools"

    @property
    def name(self) -> str:
        """Its name, which is in the task and so in each request."""
        return f"{self.agent}-{self.kind}"

    @property
    def task(self) -> str:
        """What the agent is asked for."""
        return TASK.format(name=self.name)


def build_rules(trials: list[Trial]) -> list[dict[str, Any]]:
    """Build the rules of a scripted tier that answers all of these trials, and whoever asks for something else."""
    rules = []
    for trial in trials:
        when = {"transcript": f"(Task {trial.name}.)"} | ({"has_tools": True} if trial.mark == "tools" else {})
        rules.append({"when": when, "answer": trial.answer})
    return [*rules, {"answer": "Red and blue"}]


def build_server_args(trials: list[Trial], *, detect: bool = True) -> dict[str, Any]:
    """Build the server's `args`: two tiers that loop, all else as shipped. Without `detect` nobody ends a loop, and a
    record shows where an agent goes by itself."""
    tier = {"kind": "scripted", "script": build_rules(trials)}
    return {
        "tiers": {"fast": tier, "standard": tier},
        "reliability": {"escalation": {"chain": ["fast", "standard"]}, "loop_detection": {"enabled": detect}},
    }


def _call(name: str, **arguments: Any) -> Steps:
    return [{"tool_call": {"name": name, "arguments": arguments}}]


def _plan_terminal(counter: Steps) -> dict[str, Steps]:
    """Plan for an agent with a terminal; `counter`: its call whose result counts the repetitions."""
    return {
        "same": _call("terminal", command="cat notes.txt"),
        "counter": counter,
        "comment": _call("terminal", command="cat notes.txt  # attempt {{turn}}"),
        "read": _call("terminal", command="sed -n '1,1{{turn}}p' notes.txt"),
    }


def _plan_smolagents() -> dict[str, Steps]:
    """Plan what the tools of `drivers/smolagents_run.py` are asked for."""
    return {
        "same": _call("read_file", path="notes.txt"),
        "counter": _call("run_command", command="./check.sh"),
        "comment": _call("run_command", command="cat notes.txt  # 5f1c{{turn}}e07-9d2b-4c{{turn}}1-8a66"),
        "read": _call("run_command", command="sed -n '1,1{{turn}}p' notes.txt"),
    }


def _plan_smolagents_code() -> dict[str, Steps]:
    """Plan the same, as code."""

    def write(code: str, thought: str = "I need to see the notes.") -> Steps:
        return [{"text": f"Thought: {thought}\n<code>\n{code}\n</code>"}]

    return {
        "same": write('print(read_file(path="notes.txt"))'),
        "counter": write('print(run_command(command="./check.sh"))', "I run the check."),
        "comment": write('# attempt {{turn}}\nprint(read_file(path="notes.txt"))'),
        "read": write('print(read_file(path="notes.txt", start=1, count=1{{turn}}))'),
    }


def _plan_aider() -> dict[str, Steps]:
    """Plan edit blocks that don't fit, so that aider asks again; one fits and changes nothing: then the check fails."""

    def edit(search: str, replace: str, prose: str = "The wall must be blue:") -> Steps:
        block = f"notes.txt\n```\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n"
        return [{"text": f"{prose}\n\n{block}"}]

    return {
        "same": edit("the wall is rose", "the wall is blue"),
        "counter": edit("the wall is red", "the wall is red"),
        "comment": edit("the wall is rose", "the wall is blue  # attempt {{turn}}"),
        "read": edit("the wall is rose", "the wall is blue", "I have read lines 1 to 1{{turn}} of notes.txt:"),
    }


def _plan_all() -> Iterator[Trial]:
    plans = {
        # Hermes counts itself: its `read_file` says how often it was called.
        "hermes": _plan_terminal(_call("read_file", path="notes.txt")),
        "smolagents": _plan_smolagents(),
        "smolagents-code": _plan_smolagents_code(),
        "openhands": _plan_terminal(_call("terminal", command="./check.sh")),
        "aider": _plan_aider(),
    }
    for agent, plan in plans.items():
        for kind in KINDS:
            yield Trial(agent, kind, plan[kind], _MARKS.get(agent, "tools"))


TRIALS = list(_plan_all())
