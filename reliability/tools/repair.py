"""Repairs of arguments that a schema refuses. Each loses nothing, or isn't done.

The schema says where something is wrong; only there, and only if one value is meant, is anything changed:

    text of an object or array, where no string is allowed     the object or array (at every depth)
    "true", "false", where no string is allowed                the boolean
    a word that differs from one allowed word in case only     that word
    null on an optional field that takes none                  the field is left out

A number is never touched, a scalar never becomes an array, a string that the schema allows is never
decoded. A change stays only if the complaint at its place is gone and no new one appears elsewhere above
it. What still violates the schema afterwards is reported as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from reliability.tools.kinds import allowed
from reliability.tools.literal import Unreadable, read
from reliability.tools.toolbox import Tool
from reliability.tools.verdicts import RepairKind

__all__ = ["Mended", "complaints", "mend"]

REPAIRS_MAX = 64
ERRORS_MAX = 200

Path = tuple[str | int, ...]
_CHOICES = ("type", "enum", "const", "anyOf", "oneOf")
_KIND = {dict: "object", list: "array", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Mended:
    """The arguments after all repairs, what was changed where, and what is still wrong."""

    value: Any
    repairs: tuple[tuple[RepairKind, Path], ...]
    errors: tuple[ValidationError, ...]


def complaints(value: Any, tool: Tool) -> tuple[ValidationError, ...]:
    """What the schema says against a value. A schema that fails while it judges counts as a complaint, not
    as consent."""
    found: list[ValidationError] = []
    try:
        for error in tool.validator.iter_errors(value):
            found.append(error)
            if len(found) == ERRORS_MAX:
                break
    except (RecursionError, ArithmeticError, ValueError, TypeError, Unresolvable):
        found.append(ValidationError("the schema of this tool can't judge these arguments", validator="unjudged"))
    return tuple(found)


def mend(value: Any, tool: Tool) -> Mended:
    """Repair what can be repaired without loss."""
    errors = complaints(value, tool)
    repairs: list[tuple[RepairKind, Path]] = []
    tried: set[tuple[Path, str]] = set()
    while errors and len(repairs) < REPAIRS_MAX:
        step = _first_that_helps(value, errors, tool, tried)
        if step is None:
            break
        value, errors, kinds, path = step
        repairs += [(kind, path) for kind in kinds]
    return Mended(value, tuple(repairs), errors)


def _first_that_helps(
    value: Any, errors: Iterable[ValidationError], tool: Tool, tried: set[tuple[Path, str]]
) -> tuple[Any, tuple[ValidationError, ...], tuple[RepairKind, ...], Path] | None:
    """One repair, and the value and the complaints after it."""
    errors = tuple(errors)
    for error in errors:
        path: Path = tuple(error.absolute_path)
        if error.validator not in _CHOICES or (path, error.validator) in tried:
            continue
        tried.add((path, error.validator))
        if error.instance is None:
            after = _without(value, path)
            if after is not None and _fewer(left := complaints(after, tool), errors):
                return after, left, (RepairKind.NULL_DROPPED,), path
        elif isinstance(error.instance, str):
            for candidate, kinds in _readings(error.instance, error, tool):
                after = _with(value, path, candidate)
                left = complaints(after, tool)
                if not any(tuple(e.absolute_path) == path and e.validator in _CHOICES for e in left):
                    return after, left, kinds, path
    return None


def _readings(text: str, error: ValidationError, tool: Tool) -> list[tuple[Any, tuple[RepairKind, ...]]]:
    """What a refused string may stand for: nothing, or one thing per kind of repair."""
    found: list[tuple[Any, tuple[RepairKind, ...]]] = []
    words = {word for word in _words(error) if word.casefold() == text.casefold()}
    if len(words) == 1:
        found.append((words.pop(), (RepairKind.ENUM_CASE,)))
    kinds = allowed({str(error.validator): error.validator_value}, tool.parameters)
    if kinds is None or "string" in kinds:
        return found
    if "boolean" in kinds and text.strip().casefold() in ("true", "false"):
        found.append((text.strip().casefold() == "true", (RepairKind.BOOLEAN,)))
    decoded = _decoded(text)
    if decoded is not None and _KIND[type(decoded[0])] in kinds:
        found.append((decoded[0], (RepairKind.DOUBLE_ENCODING, *decoded[1])))
    return found


def _words(error: ValidationError) -> set[str]:
    """The words that stand to choose from, in this complaint and in its alternatives."""
    found: set[str] = set()
    for part in (error, *(inner for inner in error.context or () if not inner.relative_path)):
        said: Any = part.validator_value
        if part.validator == "enum":
            found |= {word for word in said if isinstance(word, str)}
        elif part.validator == "const" and isinstance(said, str):
            found.add(said)
    return found


def _decoded(text: str) -> tuple[Any, tuple[RepairKind, ...]] | None:
    """The object or array that a text is, and nothing but is."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = read(text)
    except Unreadable:
        return None
    whole = not text[value.end :].strip() and isinstance(value.value, (dict, list))
    return (value.value, value.mended) if whole else None


def _fewer(after: tuple[ValidationError, ...], before: tuple[ValidationError, ...]) -> bool:
    """True where complaints went and none came."""
    old, new = ({(tuple(e.absolute_path), e.validator, e.message[:200]) for e in errors} for errors in (before, after))
    return new < old


def _edited(value: Any, path: Path, edit: Callable[[Any, str | int], None]) -> Any:
    """A copy with one edit at the end of a path; everything beside the path is shared."""
    new = at = _shallow(value)
    for part in path[:-1]:
        at[part] = _shallow(at[part])
        at = at[part]
    edit(at, path[-1])
    return new


def _shallow(value: Any) -> Any:
    return {**value} if isinstance(value, dict) else [*value]


def _without(value: Any, path: Path) -> Any | None:
    """The value without one member of an object; None where that isn't what the path names."""
    if not path or not isinstance(path[-1], str):
        return None
    return _edited(value, path, lambda at, key: at.pop(key))


def _with(value: Any, path: Path, new: Any) -> Any:
    return _edited(value, path, lambda at, key: at.__setitem__(key, new)) if path else new
