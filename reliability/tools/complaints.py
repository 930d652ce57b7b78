"""A schema's complaints, said to a model: the place, what is wanted, and what came, each in one short
sentence.

jsonschema's own messages quote the whole instance and the whole schema; here everything is cut to
`MESSAGE_CHARS_MAX`. A missing or a surplus field is named in the path, since the path is what a model
looks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema.exceptions import ValidationError
from rapidfuzz import fuzz, process

from reliability.tools.toolbox import Tool, ToolBox, fold
from reliability.tools.verdicts import Flaws, Violation, join

__all__ = ["describe", "unknown_tool"]

MESSAGE_CHARS_MAX = 200
SUGGESTIONS_MAX = 3
SUGGESTION_SCORE_MIN = 60.0
NAME_CHARS_MAX = 80


def unknown_tool(name: str, i: int, box: ToolBox) -> Violation:
    """There is no such tool; the guess at what was meant goes into the message, never into the call."""
    shown = name[:NAME_CHARS_MAX]
    folded = {tool.name: fold(tool.name) for tool in box.tools}
    near = process.extract(
        fold(shown), folded, scorer=fuzz.WRatio, limit=SUGGESTIONS_MAX, score_cutoff=SUGGESTION_SCORE_MIN
    )
    hint = f"; did you mean {' or '.join(repr(key) for _, _, key in near)}?" if near else ""
    return Violation(Flaws.UNKNOWN_TOOL, join(i, "name"), f"there is no tool named {shown!r}{hint}", shown)


def describe(errors: Iterable[ValidationError], i: int, tool: Tool) -> list[Violation]:
    """All complaints, each once."""
    found: dict[Violation, None] = {}
    for error in errors:
        for path, message in _said(error):
            found[Violation(Flaws.SCHEMA, join(i, "arguments", *path), message[:MESSAGE_CHARS_MAX], tool.name)] = None
    return list(found)


def _said(error: ValidationError) -> Iterator[tuple[tuple[object, ...], str]]:
    """Where something is wrong, and what."""
    path = tuple(error.absolute_path)
    kind, got = error.validator, error.instance
    wanted: Any = error.validator_value
    if kind == "required" and isinstance(got, dict):
        yield from (((*path, key), "is required") for key in wanted if key not in got)
    elif kind in ("additionalProperties", "unevaluatedProperties") and isinstance(got, dict) and wanted is False:
        yield from (((*path, key), "is no parameter of this tool") for key in _surplus(error.schema, got))
    elif kind == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        yield path, f"must be {' or '.join(kinds)}, not {_short(got)}"
    elif kind == "enum":
        yield path, f"must be one of {_short(wanted, 120)[1:-1]}, not {_short(got)}"
    elif kind == "const":
        yield path, f"must be {_short(wanted)}, not {_short(got)}"
    elif kind == "format":
        yield path, f"{_short(got)} is no valid {wanted}"
    elif kind in ("anyOf", "oneOf"):
        count = "none" if error.context else "more than one"
        yield path, f"{_short(got)} fits {count} of the allowed forms{_nearest(error)}"
    else:
        yield path, error.message[:MESSAGE_CHARS_MAX]


def _surplus(schema: Any, got: dict[str, Any]) -> list[str]:
    patterns = schema.get("patternProperties", {})
    return [
        key for key in got if key not in schema.get("properties", {}) and not any(re.search(p, key) for p in patterns)
    ]


def _nearest(error: ValidationError) -> str:
    """What the form that came closest was refused for."""
    inner = max(error.context or (), key=lambda e: len(e.relative_path), default=None)
    said = next(_said(inner), None) if inner is not None else None
    return f" ({join(*said[0])} {said[1]})" if said is not None else ""


def _short(value: Any, chars: int = 60) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(type(value).__name__)
    return text if len(text) <= chars else text[: chars - 1] + "…"
