"""Do the job with one of smolagents' agents: `python smolagents_agent.py TASK AGENT`, AGENT `tools` or `code`."""

# mypy: ignore-errors
import os

import job_tools
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def read_file(path: str) -> str:
    """Read a text file.

    Args:
        path: the file.
    """
    return job_tools.read_file(path)


@tool
def edit_file(path: str, old: str, new: str) -> str:
    """Replace the one place of a text file where a text stands by another text.

    Args:
        path: the file.
        old: what stands there.
        new: what shall stand there.
    """
    return job_tools.edit_file(path, old, new)


@tool
def run_command(command: str) -> str:
    """Run a shell command and return what it writes.

    Args:
        command: the command.
    """
    return job_tools.run_command(command)


def main(task: str, kind: str) -> str:
    model = OpenAIServerModel("fast", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    agent = {"tools": ToolCallingAgent, "code": CodeAgent}[kind](tools=[read_file, edit_file, run_command], model=model)
    return agent.run(task)


job_tools.run(main)
