"""What is wrong with a value, the state of a judgement, and the text that all equal values have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliability.steps import Steps

ERRORS_MAX = 200
KEYS_MAX = 1_000  # that one complaint names

Path = tuple[str | int, ...]
CHARS_A_STEP = 500


@dataclass(frozen=True, slots=True, eq=False)
class Complaint:
    """One thing that is wrong: what stands behind `keyword`, the value at `path`, the members that are meant, and what
    each of the allowed forms had to say (`context`, with paths from here on)."""

    keyword: str
    wanted: Any
    got: Any
    path: Path = ()
    keys: tuple[str, ...] = ()
    context: tuple[Complaint, ...] = ()


class SchemaRun:
    """What one judgement knows: its steps, and what it has judged. Values are kept, so that their ids stay theirs."""

    __slots__ = ("known", "steps")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.known: dict[tuple[int, int], tuple[Any, Sequence[Complaint]]] = {}


def prefix_paths(part: str | int, wrong: Sequence[Complaint], run: SchemaRun) -> list[Complaint]:
    """Return complaints of a member or an item, with paths from its owner."""
    run.steps.spend(len(wrong))
    return [replace(one, path=(part, *one.path)) for one in wrong]


def write_canonical(value: Any, steps: Steps | None = None) -> str:
    """Write one text for all values that are equal as JSON: 1 and 1.0, objects in any order; not 1 and true."""
    if isinstance(value, str):
        if steps is not None:
            steps.spend(1 + len(value) // CHARS_A_STEP)
        return '"' + value
    parts: list[str] = []
    _write(value, parts, steps)
    return "".join(parts)


def _write(value: Any, out: list[str], steps: Steps | None) -> None:
    if steps is not None:
        steps.spend(1 + (len(value) // CHARS_A_STEP if isinstance(value, str) else 0))
    if isinstance(value, str):
        out.append(f'"{len(value)}:{value}')
    elif isinstance(value, dict):
        out.append("{")
        for key in sorted(value):
            out.append(f'"{len(key)}:{key}')
            _write(value[key], out, steps)
        out.append("}")
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for item in value:
            _write(item, out, steps)
        out.append("]")
    else:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        # Hexadecimal: the digits of a huge decimal number take the square of their count.
        out.append(f"{value:x}," if isinstance(value, int) and not isinstance(value, bool) else f"{value!r},")
