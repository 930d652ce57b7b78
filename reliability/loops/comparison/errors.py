"""Whether a tool failed, and with which error.

In JSON the fields decide; `error: null` is no failure. In a text markers count, and only at its edges: a log file that
was read successfully may be full of errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reliability.loops.comparison.findings import Result, dumps, parse

EDGE_CHARS = 400
_EXIT_CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_FLAGS = ("is_error", "isError")
_DENIALS = ("success", "ok")
_ERROR = r"(?:[\w.]{0,60}(?:error|exception)|fatal|panic|failed|failure|traceback \(most recent call last\))"
_MARKER = re.compile(
    rf"[\s\[(<*#❌]*(?:{_ERROR})\b"
    r"|.{0,80}\b(?:command not found|no such file or directory|permission denied)\b"
    r"|.{0,40}\bexit(?:ed with)?(?: code| status)?:? [1-9]|.{0,20}\b(?:unknown|invalid|no such) tool\b",
    re.IGNORECASE,
)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)


def has_failed(result: Result | None) -> bool:
    """Return whether the result says that the call failed; an unknown result says nothing."""
    if result is None:
        return False
    if result.error:
        return True
    known, value = parse(result.text)
    if known and isinstance(value, Mapping):
        return _object_failed(value)
    if known and isinstance(value, list):
        return False
    return _text_failed(value if isinstance(value, str) else result.text)


def _object_failed(value: Mapping[str, Any]) -> bool:
    if value.get("error") or any(value.get(key) is True for key in _FLAGS):
        return True
    if any(value.get(key) is False for key in _DENIALS) or value.get("status") == "error":
        return True
    inner = value.get("metadata")
    codes = (value, inner) if isinstance(inner, Mapping) else (value,)
    return any(_nonzero(holder.get(key)) for holder in codes for key in _EXIT_CODES)


def _nonzero(code: Any) -> bool:
    if isinstance(code, str):
        return code.strip().lstrip("-").isdigit() and code.strip().lstrip("-0") != ""
    return isinstance(code, (int, float)) and code != 0


def _text_failed(text: str) -> bool:
    lines = text.strip().splitlines()
    if not lines:
        return False
    edges = (lines[0][:EDGE_CHARS], lines[-1][:EDGE_CHARS])
    return any(_MARKER.match(line) for line in edges) or bool(_TRACEBACK.search(text[-20 * EDGE_CHARS :]))


def error_text(result: Result) -> str:
    """Return the text of a failure; empty where there is an exit code and no word (a grep without a match)."""
    known, value = parse(result.text)
    if not known or not isinstance(value, Mapping):
        return result.text.strip()
    error = value.get("error")
    if isinstance(error, Mapping):
        error = error.get("message") or error
    for text in (error, value.get("stderr"), value.get("message")):
        if text and text is not True:
            return text.strip() if isinstance(text, str) else dumps(text)
    return ""
