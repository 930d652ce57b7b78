"""Repairs of arguments that a schema refuses. Each loses nothing, or isn't done.

The schema says where something is wrong; only there, and only if one value is meant, is anything changed:

    text of an object or array, where no string is allowed     the object or array (at every depth)
    "true", "false", where no string is allowed                the boolean
    a word that differs from one allowed word in case only     that word
    null on an optional field that takes none                  the field is left out

A number is never touched, a scalar never becomes an array, a string that the schema allows is never
decoded. A change stays only if the complaint at its place is gone and no new one appears elsewhere above
it. What still violates the schema afterwards is reported as it stands.

Most repairs don't touch each other: a list of words in capitals is a hundred times the same mistake. So all complaints
of one judgement are mended together, and only where that doesn't hold, one by one. Each judgement is paid for with the
same steps, and judges only what an edit has changed: the rest of the value is the same object as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.steps import OutOfSteps, Steps
from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.schema.toolbox import Tool
from reliability.tools.schema.types_allowed import allowed
from reliability.tools.schema.validator import UNBOUNDED, Complaint, Run

__all__ = ["Mended", "complaints", "mend"]

REPAIRS_MAX = 64
ITEMS_A_STEP = 50
WORDS_A_STEP = 4

Path = tuple[str | int, ...]
_CHOICES = ("type", "enum", "const", "anyOf", "oneOf")
_KIND = {dict: "object", list: "array", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Mended:
    """The arguments after all repairs, what was changed where, and what is still wrong."""

    value: Any
    repairs: tuple[tuple[RepairKind, Path], ...]
    errors: tuple[Complaint, ...]


def complaints(value: Any, tool: Tool, run: Run | None = None) -> tuple[Complaint, ...]:
    """What the schema says against a value. A schema that fails while it judges counts as a complaint, not
    as consent. Raises `OutOfSteps`, unless the steps are final: then that is the complaint."""
    run = run or Run(Steps(UNBOUNDED))
    try:
        return tool.validator.complaints(value, run)
    except OutOfSteps:
        if not run.steps.final:
            raise
        return (Complaint("too large", None, None),)
    except (RecursionError, ArithmeticError, ValueError, TypeError, LookupError):
        return (Complaint("unjudged", None, None),)


def mend(value: Any, tool: Tool, steps: Steps | None = None) -> Mended:
    """Repair what can be repaired without loss. Raises `OutOfSteps`, unless the steps are final."""
    run = Run(steps or Steps(UNBOUNDED))
    errors = complaints(value, tool, run)
    repairs: list[tuple[RepairKind, Path]] = []
    tried: set[tuple[Path, str]] = set()
    try:
        while errors and len(repairs) < REPAIRS_MAX and len(_places(errors)) <= REPAIRS_MAX:
            step = _all_at_once(value, errors, tool, run) or _first_that_helps(value, errors, tool, run, tried)
            if step is None:
                break
            value, errors, done = step
            repairs += done
    except OutOfSteps:
        if not run.steps.final:
            raise
    return Mended(value, tuple(repairs), errors)


Step = tuple[Any, tuple[Complaint, ...], list[tuple[RepairKind, Path]]]


def _places(errors: Iterable[Complaint]) -> dict[Path, Complaint]:
    """Where something may be mended, with the first complaint there."""
    found: dict[Path, Complaint] = {}
    for error in errors:
        if error.keyword in _CHOICES:
            found.setdefault(error.path, error)
    return found


def _all_at_once(value: Any, errors: Sequence[Complaint], tool: Tool, run: Run) -> Step | None:
    """Each complaint mended by the one thing that its value may stand for; None where the schema then finds anything
    new, or finds anything at those places."""
    after = value
    done: list[tuple[RepairKind, Path]] = []
    for path, error in _places(errors).items():
        edits = _edits(error, tool, run.steps)
        changed = edits[0][0](after, run.steps) if len(edits) == 1 else None
        if changed is not None:
            after = changed
            done += [(kind, path) for kind in edits[0][1]]
    mended = {path for _, path in done}
    if len(mended) < 2:
        return None
    left, before = complaints(after, tool, run), {_name(error) for error in errors}
    for error in left:
        inside = any(error.path[:n] in mended for n in range(1, len(error.path)))
        if error.path in mended or not (inside or _name(error) in before):
            return None
    return after, left, done


def _first_that_helps(
    value: Any, errors: Sequence[Complaint], tool: Tool, run: Run, tried: set[tuple[Path, str]]
) -> Step | None:
    """One repair, and the value and the complaints after it."""
    for error in errors:
        path = error.path
        if error.keyword not in _CHOICES or (path, error.keyword) in tried:
            continue
        tried.add((path, error.keyword))
        for edit, kinds in _edits(error, tool, run.steps):
            after = edit(value, run.steps)
            if after is None:
                continue
            left = complaints(after, tool, run)
            if error.got is None:
                good = {_name(e) for e in left} < {_name(e) for e in errors}
            else:
                good = not any(e.path == path and e.keyword in _CHOICES for e in left)
            if good:
                return after, left, [(kind, path) for kind in kinds]
    return None


def _name(error: Complaint) -> tuple[object, ...]:
    """What makes a complaint the same before and after an edit."""
    return error.path, error.keyword, error.keys, id(error.wanted)


Edit = Callable[[Any, Steps], Any]


def _edits(error: Complaint, tool: Tool, steps: Steps) -> list[tuple[Edit, tuple[RepairKind, ...]]]:
    """What may be done about a complaint: each a function that gives an edited copy, or None where it can't."""
    if error.got is None:
        return [(lambda value, steps: _without(value, error.path, steps), (RepairKind.NULL_DROPPED,))]
    if not isinstance(error.got, str):
        return []
    return [(_setter(error.path, candidate), kinds) for candidate, kinds in _readings(error.got, error, tool, steps)]


def _setter(path: Path, candidate: Any) -> Edit:
    return lambda value, steps: _with(value, path, candidate, steps)


def _readings(text: str, error: Complaint, tool: Tool, steps: Steps) -> list[tuple[Any, tuple[RepairKind, ...]]]:
    """What a refused string may stand for: nothing, or one thing per kind of repair."""
    found: list[tuple[Any, tuple[RepairKind, ...]]] = []
    words = {word for word in _words(error, steps) if word.casefold() == text.casefold()}
    if len(words) == 1:
        found.append((words.pop(), (RepairKind.ENUM_CASE,)))
    kinds = allowed({error.keyword: error.wanted}, tool.parameters)
    if kinds is None or "string" in kinds:
        return found
    if "boolean" in kinds and text.strip().casefold() in ("true", "false"):
        found.append((text.strip().casefold() == "true", (RepairKind.BOOLEAN,)))
    decoded = _decoded(text)
    if decoded is not None and _KIND[type(decoded[0])] in kinds:
        found.append((decoded[0], (RepairKind.DOUBLE_ENCODING, *decoded[1])))
    return found


def _words(error: Complaint, steps: Steps) -> set[str]:
    """The words that stand to choose from, in this complaint and in its alternatives."""
    found: set[str] = set()
    for part in (error, *(inner for inner in error.context if not inner.path)):
        said: Any = part.wanted
        if part.keyword == "enum":
            steps.spend(1 + len(said) // WORDS_A_STEP)
            found |= {word for word in said if isinstance(word, str)}
        elif part.keyword == "const" and isinstance(said, str):
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


def _edited(value: Any, path: Path, edit: Callable[[Any, str | int], None], steps: Steps) -> Any:
    """A copy with one edit at the end of a path; everything beside the path is shared."""
    new = at = _shallow(value, steps)
    for part in path[:-1]:
        at[part] = _shallow(at[part], steps)
        at = at[part]
    edit(at, path[-1])
    return new


def _shallow(value: Any, steps: Steps) -> Any:
    steps.spend(1 + len(value) // ITEMS_A_STEP)
    return {**value} if isinstance(value, dict) else [*value]


def _without(value: Any, path: Path, steps: Steps) -> Any | None:
    """The value without one member of an object; None where that isn't what the path names."""
    if not path or not isinstance(path[-1], str):
        return None
    return _edited(value, path, lambda at, key: at.pop(key), steps)


def _with(value: Any, path: Path, new: Any, steps: Steps) -> Any:
    return _edited(value, path, lambda at, key: at.__setitem__(key, new), steps) if path else new
