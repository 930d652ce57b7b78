"""Repairs of arguments that a schema refuses. Each loses nothing, or isn't done.

    text of an object or array, where no string is allowed     the object or array (at every depth)
    "true", "false", where no string is allowed                the boolean
    "null", "None", where null is allowed and no such string   null
    a word that differs from one allowed word in case only     that word
    null on an optional field that takes none                  the field is left out

A number is never touched, a scalar never becomes an array, a string that the schema allows is never decoded. A change
stays only if the complaint at its place is gone and no new one appears above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.steps import OutOfSteps, Steps
from reliability.tool_calls import RepairKind
from reliability.tools.extract.text import read_literal
from reliability.tools.schema.complaint import Complaint, Path, SchemaRun
from reliability.tools.schema.toolbox import Tool
from reliability.tools.schema.validator import UNBOUNDED

_REPAIRS_MAX = 64
_ITEMS_A_STEP = 50
_WORDS_A_STEP = 4

_CHOICES = ("type", "enum", "const", "anyOf", "oneOf", "required")


@dataclass(frozen=True, slots=True)
class _Repaired:
    value: Any
    repairs: tuple[tuple[RepairKind, Path], ...]
    errors: tuple[Complaint, ...]


def _find_complaints(value: Any, tool: Tool, run: SchemaRun) -> tuple[Complaint, ...]:
    """Find what the schema says against a value; that it fails while it judges is a complaint. Raises `OutOfSteps`."""
    try:
        return tool.compiled.validator.complaints(value, run)
    except OutOfSteps:
        if not run.steps.final:
            raise
        return (Complaint("too large", None, None),)
    except (RecursionError, ArithmeticError, ValueError, TypeError, LookupError):
        return (Complaint("unjudged", None, None),)


def repair_arguments(value: Any, tool: Tool, steps: Steps | None = None) -> _Repaired:
    """Repair what can be repaired without loss. Raises `OutOfSteps`, unless the steps are final."""
    run = SchemaRun(steps or Steps(UNBOUNDED))
    errors = _find_complaints(value, tool, run)
    repairs: list[tuple[RepairKind, Path]] = []
    tried: set[tuple[Path, str]] = set()
    try:
        while errors and len(repairs) < _REPAIRS_MAX and len(_list_places(errors)) <= _REPAIRS_MAX:
            step = _repair_all(value, errors, tool, run) or _repair_first(value, errors, tool, run, tried)
            if step is None:
                break
            value, errors, done = step
            repairs += done
    except OutOfSteps:
        if not run.steps.final:
            raise
    return _Repaired(value, tuple(repairs), errors)


_Step = tuple[Any, tuple[Complaint, ...], list[tuple[RepairKind, Path]]]


def _list_places(errors: Iterable[Complaint]) -> dict[Path, Complaint]:
    found: dict[Path, Complaint] = {}
    for error in errors:
        if error.keyword in _CHOICES:
            found.setdefault(error.path, error)
    return found


def _repair_all(value: Any, errors: Sequence[Complaint], tool: Tool, run: SchemaRun) -> _Step | None:
    """Repair each complaint by the one thing that its value may stand for; None where that doesn't hold."""
    after = value
    done: list[tuple[RepairKind, Path]] = []
    for path, error in _list_places(errors).items():
        edits = _list_edits(error, tool, run.steps)
        changed = _edit(after, path, edits[0][0], run.steps) if len(edits) == 1 else None
        if changed is not None:
            after = changed
            done += [(kind, path) for kind in edits[0][1]]
    repaired = {path for _, path in done}
    if len(repaired) < 2:
        return None
    left, before = _find_complaints(after, tool, run), {_identify(error) for error in errors}
    for error in left:
        inside = any(error.path[:n] in repaired for n in range(1, len(error.path)))
        if error.path in repaired or not (inside or _identify(error) in before):
            return None
    return after, left, done


def _repair_first(
    value: Any, errors: Sequence[Complaint], tool: Tool, run: SchemaRun, tried: set[tuple[Path, str]]
) -> _Step | None:
    for error in errors:
        path = error.path
        if error.keyword not in _CHOICES or (path, error.keyword) in tried:
            continue
        tried.add((path, error.keyword))
        for new, kinds in _list_edits(error, tool, run.steps):
            after = _edit(value, path, new, run.steps)
            if after is None:
                continue
            left = _find_complaints(after, tool, run)
            if error.got is None:
                good = {_identify(e) for e in left} < {_identify(e) for e in errors}
            else:
                good = not any(e.path == path and e.keyword in _CHOICES for e in left)
            if good:
                return after, left, [(kind, path) for kind in kinds]
    return None


def _identify(error: Complaint) -> tuple[object, ...]:
    return error.path, error.keyword, error.keys, id(error.wanted)


_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
_DROP = object()  # instead of a new value: leave the member out


def _list_edits(error: Complaint, tool: Tool, steps: Steps) -> list[tuple[Any, tuple[RepairKind, ...]]]:
    if error.got is None:
        return [(_DROP, (RepairKind.NULL_DROPPED,))]
    if error.keyword == "required":
        return _list_defaults(error, tool)
    return _list_readings(error.got, error, tool, steps) if isinstance(error.got, str) else []


def _list_defaults(error: Complaint, tool: Tool) -> list[tuple[Any, tuple[RepairKind, ...]]]:
    """List the arguments with what was left out, where the schema has a default for all of it."""
    declared = tool.parameters.get("properties")
    if error.path or not isinstance(error.got, Mapping) or not isinstance(declared, Mapping):
        return []
    filled = dict(error.got)
    for key in error.keys:
        schema = declared.get(key)
        if not isinstance(schema, Mapping) or "default" not in schema:
            return []
        filled[key] = schema["default"]
    return [(filled, (RepairKind.DEFAULT,))]


def _list_readings(text: str, error: Complaint, tool: Tool, steps: Steps) -> list[tuple[Any, tuple[RepairKind, ...]]]:
    found: list[tuple[Any, tuple[RepairKind, ...]]] = []
    words = {word for word in _list_words(error, steps) if _fold(word) == _fold(text)}
    if len(words) == 1:
        found.append((words.pop(), (RepairKind.ENUM_CASE,)))
    kinds = tool.places.find_types({error.keyword: error.wanted})
    if "null" in (kinds or ()) and text.strip().casefold() in ("null", "none"):
        found.append((None, (RepairKind.NULL,)))
    if kinds is None or "string" in kinds:
        return found
    if "boolean" in kinds and text.strip().casefold() in ("true", "false"):
        found.append((text.strip().casefold() == "true", (RepairKind.BOOLEAN,)))
    decoded = read_literal(text) if text.lstrip()[:1] in ("{", "[") else None
    if decoded is not None and ("object" if isinstance(decoded[0], dict) else "array") in kinds:
        found.append((decoded[0], (RepairKind.DOUBLE_ENCODING, *decoded[1])))
    return found


def _fold(word: str) -> str:
    """Fold what spellings of a word differ in: case, and what stands between letters (`in-progress`, `In progress`)."""
    return _BETWEEN_LETTERS.sub("", word).casefold()


def _list_words(error: Complaint, steps: Steps) -> set[str]:
    found: set[str] = set()
    for part in (error, *(inner for inner in error.context if not inner.path)):
        wanted: Any = part.wanted
        if part.keyword == "enum":
            steps.spend(1 + len(wanted) // _WORDS_A_STEP)
            found |= {word for word in wanted if isinstance(word, str)}
        elif part.keyword == "const" and isinstance(wanted, str):
            found.add(wanted)
    return found


def _edit(value: Any, path: Path, new: Any, steps: Steps) -> Any | None:
    """Return a copy with one edit at the end of a path, the rest shared; None where there is nothing to drop."""
    if not path or (new is _DROP and not isinstance(path[-1], str)):
        return None if new is _DROP else new
    copy = at = _copy_shallow(value, steps)
    for part in path[:-1]:
        at[part] = _copy_shallow(at[part], steps)
        at = at[part]
    if new is _DROP:
        at.pop(path[-1])
    else:
        at[path[-1]] = new
    return copy


def _copy_shallow(value: Any, steps: Steps) -> Any:
    steps.spend(1 + len(value) // _ITEMS_A_STEP)
    return {**value} if isinstance(value, dict) else [*value]
