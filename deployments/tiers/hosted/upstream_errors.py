"""What an upstream complains of, as one of our faults: the one place for every tier kind that has status codes.

A complaint arrives in three ways: an HTTP status with a body, an error frame in the middle of a stream, or a
line of a script. `read_complaint` understands the bodies that are in use (OpenAI, OpenRouter, Ollama,
FastAPI, vLLM); `translate_complaint` turns a complaint into the `Failed` that ends an attempt.

What must never happen: a request that is wrong in itself looks like a sick tier (then every tier of the
chain would be tried and blamed), what only this tier can't do (hold the prompt, write as much, take this key)
looks like a wrong request (then the tier that can would never be tried), or an upstream's stack or paths reach
the client.

A 400, a 413 and a 422 say little: gateways send them for everything. So the code is asked first, then the words;
what neither explains is the client's mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from reliability.faults import TRAITS
from reliability.surrogates import join_surrogates
from reliability.types import Failed, Fault, Usage

__all__ = ["MESSAGE_CHARS_MAX", "Complaint", "fault_of", "read_complaint", "read_retry_after_s", "translate_complaint"]

MESSAGE_CHARS_MAX = 500
RETRY_AFTER_S_MAX = 86_400.0

_BY_STATUS = {
    401: Fault.AUTH,
    402: Fault.AUTH,  # no credit: like a wrong key, only a person can repair it
    403: Fault.AUTH,
    404: Fault.UNAVAILABLE,  # the model or the route isn't there
    405: Fault.UNAVAILABLE,
    408: Fault.FIRST_TOKEN_TIMEOUT,
    413: Fault.CONTEXT_LENGTH,  # too large for this upstream
    429: Fault.OVERLOADED,
    504: Fault.FIRST_TOKEN_TIMEOUT,
}
_SAYS_LITTLE = frozenset({400, 413, 422})
_OVERLOADED_WITH_RETRY_AFTER = frozenset({503, 529})

# Error frames name their cause more often than their status.
_STATUS_BY_CODE = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "insufficient_credits": 402,
    "billing_hard_limit_reached": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "overloaded_error": 429,
    "timeout": 504,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
}
_CREDIT_CODES = frozenset(code for code, status in _STATUS_BY_CODE.items() if status == 402)

_CONTEXT = re.compile(
    r"context[_ ]?(length|window|size)|maximum (context|prompt|input)|too many (input |prompt )?tokens"
    r"|(prompt|input) is too long|reduce the length|context the overflows|exceeds? the (available )?context"
    r"|(prompt|input)( token)? (length|count)\b.{0,40}\bexceeds\b.{0,40}\bmaximum (length|number of tokens)"
    r"|`?inputs`?( tokens \+ `?max_new_tokens`?)? must (be <=|have less than) \d",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"(does not|doesn't) support (tool|function|image|vision|json)|support tool use|enable-auto-tool-choice"
    r"|supports at most \d+ (completion|output) tokens|maximum allowed number of output tokens"
    r"|^unsupported parameter: ",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(
    r"\bapi key (is )?(not (valid|found)|invalid|expired)|\b(incorrect|invalid) api key|\bcredit balance is too low",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![^\s\"'(=\[])/(?:[\w.@+-]+/)+[\w.@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What an upstream wrote of an error, in its own words."""

    status: int | None = None
    message: str = ""
    code: str = ""
    param: str | None = None
    moderated: bool = False  # OpenRouter's 403 for a prompt that its filter refused

    def redact(self, clean: Callable[[str], str]) -> Complaint:
        """Return the same complaint with every text passed through `clean`."""
        param = None if self.param is None else clean(self.param)
        return replace(self, message=clean(self.message), code=clean(self.code), param=param)


def read_complaint(payload: Any) -> Complaint:
    """Read an error body or an error frame; anything unknown gives an empty complaint."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if isinstance(payload, str):
        return Complaint(message=join_surrogates(payload))
    if not isinstance(payload, Mapping):
        return Complaint()
    inner = payload.get("error", payload)
    if not isinstance(inner, Mapping):
        return Complaint(message=_read_text(inner))
    names = [_read_text(inner.get(key)) for key in ("code", "type")]
    metadata = inner.get("metadata")
    return Complaint(
        status=_read_status(inner, names),
        message=_read_text(inner.get("message")) or _read_detail(inner.get("detail")),
        code=next((name for name in names if name and not name.isdigit()), ""),
        param=_read_text(inner.get("param")) or None,
        moderated=isinstance(metadata, Mapping) and bool(metadata.get("reasons")),
    )


def fault_of(status: int, complaint: Complaint, *, has_retry_after: bool) -> Fault:
    """Return the fault behind a status. `has_retry_after`: the upstream named when to come back."""
    status = _resolve_status(status, complaint)
    known = _find_by_words(status, complaint) or _BY_STATUS.get(status)
    if known is not None:
        return known
    if status >= 500:
        return Fault.OVERLOADED if has_retry_after and status in _OVERLOADED_WITH_RETRY_AFTER else Fault.SERVER_ERROR
    return Fault.BAD_REQUEST if status >= 400 else Fault.UNAVAILABLE


def _resolve_status(status: int, complaint: Complaint) -> int:
    """Return the status, or the one that the code names where the status says little."""
    named = complaint.status or status
    return named if status in _SAYS_LITTLE and named not in _SAYS_LITTLE and named < 500 else status


def _find_by_words(status: int, complaint: Complaint) -> Fault | None:
    """Find the fault where more than the status names it."""
    if status in (400, 404, 422) and _UNSUPPORTED.search(complaint.message):
        return Fault.UNSUPPORTED
    if status in (400, 413, 422, 500) and _is_too_long(complaint):
        return Fault.CONTEXT_LENGTH
    if status in (400, 422) and _CREDENTIALS.search(complaint.message):
        return Fault.AUTH
    if status == 429 and complaint.code in _CREDIT_CODES:
        return Fault.AUTH
    if status == 403 and complaint.moderated:
        return Fault.BAD_REQUEST
    return None


def translate_complaint(
    tier: str,
    complaint: Complaint,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    usage: Usage | None = None,
) -> Failed:
    """Build the end of an attempt that an upstream refused.

    Without any status a complaint counts as a 500.
    """
    code = status or complaint.status or 500
    fault = fault_of(code, complaint, has_retry_after=retry_after_s is not None)
    return Failed(
        fault=fault,
        message=_build_message(tier, fault, code, complaint.message),
        retry_after_s=retry_after_s,
        status=code,
        param=None if complaint.param is None else complaint.param[:MESSAGE_CHARS_MAX],
        usage=usage,
    )


def read_retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read when to come back, from `retry-after-ms` or `Retry-After` (seconds or a date).

    None where neither says it.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        seconds = _parse_seconds(value, unit_s, now) if value else None
        if seconds is not None:
            return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)
    return None


def _parse_seconds(value: str, unit_s: float, now: datetime) -> float | None:
    if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", value):
        return float(value) * unit_s
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()


def _build_message(tier: str, fault: Fault, status: int, words: str) -> str:
    line = words.strip().splitlines()[0] if words.strip() else ""
    if fault is Fault.BAD_REQUEST and line:
        return line[:MESSAGE_CHARS_MAX]
    if status >= 500:  # an upstream that broke may talk of its own files
        line = _PATH.sub("[path]", line)
    return f"tier {tier} {TRAITS[fault].upstream_words} ({status}){': ' + line if line else ''}"[:MESSAGE_CHARS_MAX]


def _read_status(inner: Mapping[str, Any], names: list[str]) -> int | None:
    for key in ("code", "status", "status_code"):
        value = _read_text(inner.get(key))
        if value.isascii() and value.isdigit() and 400 <= int(value[:4]) <= 599:
            return int(value[:4])
    return next((_STATUS_BY_CODE[name.lower()] for name in names if name.lower() in _STATUS_BY_CODE), None)


def _is_too_long(complaint: Complaint) -> bool:
    return bool(_CONTEXT.search(complaint.code) or _CONTEXT.search(complaint.message))


def _read_detail(value: Any) -> str:
    """Read FastAPI's `detail`: a text, or a list of `{loc, msg}`."""
    if isinstance(value, list):
        parts = [f"{part.get('loc', '')}: {part.get('msg', '')}" for part in value if isinstance(part, Mapping)]
        return "; ".join(parts)
    return _read_text(value)


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return join_surrogates(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
