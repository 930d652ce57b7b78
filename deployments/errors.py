"""Every error that a client can see: one table, one exception, in OpenAI's shape.

In a stream that has begun the same object is an SSE frame, and no `[DONE]` follows. An error either passes (a 429 or
5xx with `Retry-After`) or stays (`x-should-retry: false`): docs/decisions/080 has the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reliability.escalation.decisions import Refuse
from reliability.types import RefuseCode

_RETRY_AFTER_S_MAX = 86_400.0
_BACK_S = 5.0  # where no time is reported: as long as a breaker that has just opened leaves its tier alone
_INVALID, _SERVER = "invalid_request_error", "server_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ErrorRow:
    """One kind of error. `retry`: it passes, after `retry_after_s` where no other time is reported. `refusal`: the
    core's code for it, where the core refuses."""

    status: int
    type: str
    meaning: str
    retry: bool = False
    retry_after_s: float | None = None
    refusal: RefuseCode | None = None


def _stays(status: int, meaning: str, refusal: RefuseCode | None = None, *, type: str = _INVALID) -> _ErrorRow:
    return _ErrorRow(status=status, type=type, meaning=meaning, refusal=refusal)


def _passes(
    status: int, meaning: str, refusal: RefuseCode | None = None, *, type: str = _SERVER, after_s: float = _BACK_S
) -> _ErrorRow:
    return _ErrorRow(status=status, type=type, meaning=meaning, retry=True, retry_after_s=after_s, refusal=refusal)


TABLE: dict[str, _ErrorRow] = {
    "invalid_json": _stays(400, "the body is not JSON"),
    "invalid_request": _stays(400, "a field is wrong or missing; `param` names it"),
    "invalid_tools": _stays(400, "a tool or its schema can't be used; `param` names it"),
    "unsupported": _stays(400, "no tier of the chain can do what `param` asks", RefuseCode.UNSUPPORTED),
    "context_length_exceeded": _stays(400, "the prompt fits no tier of the chain", RefuseCode.CONTEXT_LENGTH),
    "bad_request": _stays(400, "the model's API refused the request", RefuseCode.BAD_REQUEST),
    "invalid_api_key": _stays(401, "the API key is missing or wrong"),
    "forbidden": _stays(403, "the route needs an admin's key, or the server is not open"),
    "cloud_not_allowed": _stays(
        400, "only the cloud could answer, and the request must stay local", RefuseCode.CLOUD_BARRED
    ),
    "not_found": _stays(404, "no such route, report or session"),
    "model_not_found": _stays(404, "`model` is no tier, no alias and not `auto`"),
    "previous_response_not_found": _stays(
        400, "`previous_response_id` isn't kept: it is too old, another key's, or was never stored"
    ),
    "method_not_allowed": _stays(405, "wrong HTTP method"),
    "request_timeout": _passes(
        408, "the headers or the body came too slowly (`server.body_s`)", type=_INVALID, after_s=1.0
    ),
    "body_too_large": _stays(413, "the body is over `server.body_bytes_max`"),
    "loop_detected": _stays(
        422,
        "the model goes round in circles, and so does every tier of the chain",
        RefuseCode.LOOP,
        type="loop_detected",
    ),
    "idempotency_key_reused": _stays(
        422, "the `Idempotency-Key` was used within the last minute, for a request with another body"
    ),
    "headers_too_large": _stays(431, "the headers are over 64 KiB"),
    "budget_exceeded": _stays(
        400,
        "the session's tokens are spent, or the request alone is larger than a limit",
        RefuseCode.BUDGET,
        type="budget_exceeded",
    ),
    "invalid_answer": _stays(
        400,
        "no tier gave a valid answer: a bad tool call, an empty or a runaway answer each time",
        RefuseCode.INVALID_ANSWER,
        type="invalid_answer",
    ),
    "no_tier_configured": _stays(
        400,
        "no tier of the chain has what it needs (a model, a key), or all were taken out by hand",
        RefuseCode.NO_TIER_EVER,
        type="configuration_error",
    ),
    "rate_limit_exceeded": _passes(
        429, "the tokens of this hour are spent, or held by open calls", RefuseCode.RATE, type="rate_limit_error"
    ),
    "overloaded": _passes(
        429,
        "every tier is full, or the server has no time for another large request",
        RefuseCode.OVERLOADED,
        type="rate_limit_error",
        after_s=2.0,
    ),
    "internal_error": _passes(500, "a bug of this server; the log has the request id"),
    "upstream_error": _passes(502, "every tier of the chain failed", RefuseCode.UPSTREAM),
    "server_restarting": _passes(502, "the Router ended while it had the request; another one comes", after_s=2.0),
    "server_starting": _passes(503, "the server is starting"),
    "memory_pressure": _passes(503, "the machine is short of memory", RefuseCode.MEMORY_PRESSURE, after_s=10.0),
    "no_tier_available": _passes(
        503, "no tier of the chain can answer now: each has failed and is left alone for a while", RefuseCode.NO_TIER
    ),
    "tiers_loading": _passes(503, "models are still loading", RefuseCode.LOADING),
    "server_stopping": _passes(503, "the server is being stopped", RefuseCode.STOPPING, after_s=15.0),
    "timeout": _passes(504, "no tier answered within its timeouts", RefuseCode.TIMEOUT, type="timeout_error"),
    "deadline_exceeded": _passes(504, "the request's own deadline passed", RefuseCode.DEADLINE, type="timeout_error"),
    "stream_broken": _passes(502, "the answer broke off after its first bytes had been sent", RefuseCode.BROKEN_STREAM),
}

_OF_REFUSAL = {row.refusal: code for code, row in TABLE.items() if row.refusal is not None}

# Agents condense their history where they read that it is too long, and they read it in the words of OpenAI and vLLM:
# litellm (and with it OpenHands and CrewAI) looks for the first half of this, Hermes for the second; none for the code.
_TOO_LONG = "; this model's maximum context length is smaller than the prompt: reduce the length of the messages"


class ApiError(Exception):
    """An error with its row in `TABLE`. `message` is for the client: no key, no path, no stack."""

    def __init__(self, code: str, message: str, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.row = TABLE[code]
        self.message = message
        self.param = param
        self.retry_after_s = self.row.retry_after_s if retry_after_s is None else retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return ApiError, (self.code, self.message, self.param, self.retry_after_s)

    @property
    def status(self) -> int:
        return self.row.status

    def body(self) -> dict[str, Any]:
        """Build the JSON object that the client gets. A loop's `retry_after` stands in it too: agents read bodies."""
        error: dict[str, Any] = {"message": self.message, "type": self.row.type, "param": self.param, "code": self.code}
        if self.code == "loop_detected" and self.retry_after_s is not None:
            error["retry_after"] = math.ceil(self.retry_after_s)
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Build the headers: `x-should-retry: false`, or `Retry-After` where the time is known; a
        401 names the scheme (RFC 9110)."""
        out: dict[str, str] = {}
        if self.status == 401:
            out["www-authenticate"] = "Bearer"
        if self.status == 408:
            out["connection"] = "close"
        if not self.row.retry:
            out["x-should-retry"] = "false"
        elif self.retry_after_s is not None:
            # In this order `max` also makes a second of what is no number.
            out["retry-after"] = str(math.ceil(min(max(1.0, self.retry_after_s), _RETRY_AFTER_S_MAX)))
        return out


def refuse(path: str, words: str, code: str = "invalid_request") -> ApiError:
    """Make the error of one field of the client's body; its text begins with the path."""
    return ApiError(code, f"{path}: {words}", param=path)


def from_refusal(refusal: Refuse) -> ApiError:
    """Make the client's view of a refusal."""
    code = _OF_REFUSAL[refusal.code]
    message = refusal.message + (_TOO_LONG if refusal.code is RefuseCode.CONTEXT_LENGTH else "")
    return ApiError(code, message, param=refusal.param, retry_after_s=refusal.retry_after_s)
