"""What every strategy hands in at the end: a diagnosis, one flat object that a small model can write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

TEXT_CHARS_MAX = 2_000
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "root_cause": {"type": "string", "description": "what is wrong, in one sentence"},
        "file": {"type": "string", "description": "the file with the wrong line"},
        "line": {"type": "integer", "description": "the number of the wrong line"},
        "evidence": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 3,
            "description": "lines of the files that show it, copied to the letter",
        },
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "fix_old": {"type": "string", "description": "the wrong line, copied to the letter"},
        "fix_new": {"type": "string", "description": "the line that should stand there"},
    },
    "required": ["root_cause", "file", "line", "evidence", "confidence", "fix_old", "fix_new"],
    "additionalProperties": False,
}
VALIDATOR = Draft202012Validator(SCHEMA)


def read_diagnosis(given: object) -> dict[str, Any] | None:
    """Return the diagnosis, if it is one: an object of the schema, or its JSON text."""
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return None
    if not isinstance(given, Mapping) or not VALIDATOR.is_valid(dict(given)):
        return None
    found = {key: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for key, value in given.items()}
    return found | {"line": int(found["line"])}  # 4.0 is an integer, too, by the schema


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a strategy hands in. `steps` has the tokens and seconds of each request that it made; `touched` the
    protected files that it wanted to change; `ended` why it stopped."""

    diagnosis: Mapping[str, Any] | None
    ended: str
    steps: tuple[Mapping[str, Any], ...] = ()
    touched: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
