"""One spelling for every value: two arguments that mean the same get the same text.

Key order, white space, composed letters and 1.0 instead of 1 carry no meaning. What can't be parsed (broken, too deep,
longer than `PARSED_CHARS_MAX`) compares as its raw text.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from reliability.loops.comparison.findings import SeenCall

NO_ARGUMENTS = frozenset({"", "{}", "null"})
SUMMARY_CHARS = 240
PARSED_CHARS_MAX = 500_000
EMPTY: frozenset[str] = frozenset()


def parse(text: str) -> tuple[bool, Any]:
    """Return (True, value) where the text is JSON, else (False, None)."""
    if len(text) > PARSED_CHARS_MAX:
        return False, None
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def dumps(value: Any) -> str:
    """Write JSON with sorted keys; a marker with the value's type where there is no JSON for it."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    except (ValueError, TypeError, RecursionError):
        return f"<{type(value).__name__}>"


def _normalize(value: Any) -> Any:
    """Return the value with every string composed (NFC) and every whole float as an integer."""
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {_normalize(str(k)): _normalize(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normalize(v) for v in value]
    return value


def canonical(arguments: str, ignored: frozenset[str] = EMPTY) -> str:
    """Return the one spelling of a call's arguments; keys of `ignored` are left out at the top level."""
    stripped = arguments.strip()
    if stripped in NO_ARGUMENTS:
        return "{}"
    known, value = parse(stripped)
    if not known:
        return unicodedata.normalize("NFC", stripped) if len(stripped) <= PARSED_CHARS_MAX else stripped
    if isinstance(value, dict) and not ignored.isdisjoint(value):
        value = {k: v for k, v in value.items() if k not in ignored}
    return spell(value) or stripped


def spell(value: Any) -> str:
    """Return the one spelling of a value that was parsed; empty where it nests too deeply."""
    try:
        return dumps(_normalize(value))
    except RecursionError:
        return ""


def call_key(call: SeenCall, ignored: frozenset[str] = EMPTY) -> str:
    """Return what two equal calls share: the name and the canonical arguments."""
    return f"{call.name}\x1f{canonical(call.arguments, ignored)}"


def digest(*parts: str) -> str:
    """Return twelve hex digits that name the parts, the same in every process."""
    joined = "\x1e".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:12]


def summary(text: str, chars: int = SUMMARY_CHARS) -> str:
    """Return the text on one line, cut."""
    flat = " ".join(text[: 4 * chars].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"
