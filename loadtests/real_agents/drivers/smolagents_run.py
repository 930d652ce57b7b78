"""Run one of smolagents' agents on a task: `python smolagents_run.py AGENT TASK`, in the venv of smolagents.

The tools are this script's own, since smolagents has none for files; all else is as it comes.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def read_file(path: str, start: int = 1, count: int = 100) -> str:
    """Read lines of a text file.

    Args:
        path: the file.
        start: the first line, from 1.
        count: how many lines at most.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[int(start) - 1 : int(start) - 1 + int(count)])


@tool
def run_command(command: str) -> str:
    """Run a shell command and return what it writes.

    Args:
        command: the command.
    """
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, check=False)
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


def main() -> None:
    """Run the agent that is named."""
    kind, task = sys.argv[1:]
    model = OpenAIServerModel("fast", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    agent = {"tools": ToolCallingAgent, "code": CodeAgent}[kind](tools=[read_file, run_command], model=model)
    print(agent.run(task))


main()
