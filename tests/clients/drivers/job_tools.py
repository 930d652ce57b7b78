"""The tools that a driver lends to a client which has none of its own, and what each driver has in common."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURNS_MAX = 20


def read_file(path: str) -> str:
    """Read a text file."""
    return Path(path).read_text(encoding="utf-8")


def edit_file(path: str, old: str, new: str) -> str:
    """Replace the one place of a text file where `old` stands by `new`."""
    text = Path(path).read_text(encoding="utf-8")
    if text.count(old) != 1:
        return f"error: {old!r} stands there {text.count(old)} times"
    Path(path).write_text(text.replace(old, new), encoding="utf-8")
    return "changed"


def run_command(command: str) -> str:
    """Run a shell command and return what it writes."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, check=False)
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


FUNCTIONS: dict[str, Callable[..., str]] = {f.__name__: f for f in (read_file, edit_file, run_command)}


def _describe(function: Callable[..., str], *names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    parameters = {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}
    return {"name": function.__name__, "description": function.__doc__, "parameters": parameters}


SCHEMAS = [_describe(read_file, "path"), _describe(edit_file, "path", "old", "new"), _describe(run_command, "command")]


def call(name: str, arguments: str | dict[str, Any]) -> str:
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return FUNCTIONS[name](**given)


def chat(task: str, ask: Callable[[list[Any]], Any]) -> str:
    """Work over chat completions until there is an answer without a call; `ask` returns the message of one answer."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        message = ask(messages)
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return str(message.content)
        for one in message.tool_calls:
            result = call(one.function.name, one.function.arguments)
            messages.append({"role": "tool", "tool_call_id": one.id, "content": result})
    return "no end"


def run(main: Callable[..., Any]) -> None:
    """Run a driver with the arguments of its command line; an error is shown as its client words it."""
    try:
        print(main(*sys.argv[1:]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)
