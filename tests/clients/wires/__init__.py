"""The three APIs that clients speak, as far as a proxy reads them: which tools a request declares, what an answer
says, calls and costs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# The required arguments of each tool that a request declares. None: the arguments of this tool are a text.
Required = dict[str, list[str] | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as it was delivered. `free`: its arguments are a text, and needn't be JSON."""

    name: str
    arguments: str
    free: bool = False


@dataclass(slots=True)
class Answer:
    """One answer as it was delivered. `usage`: tokens of prompt and completion; `ended`: it says itself that it is
    complete."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    error: dict[str, Any] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    ended: bool = False


def read_json(raw: bytes) -> dict[str, Any] | None:
    """Read an answer that isn't streamed; None where it is no JSON object."""
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_events(raw: bytes) -> Iterator[dict[str, Any]]:
    """Read the events of a stream that are JSON objects, the name of each as `event` where it has one."""
    name = ""
    for line in raw.decode("utf-8", "replace").splitlines():
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:") and (value := read_json(line[5:].strip().encode())) is not None:
            yield {"event": name} | value
        elif not line:
            name = ""
