"""Every error that a client can see: one table, one exception.

    ApiError(code, message, param)  ->  status, OpenAI `type`, `x-should-retry`, from `TABLE`

The shape is OpenAI's: `{"error": {"message", "type", "param", "code"}}`. In a stream that has begun, the same object is
sent as an SSE frame, and no `[DONE]` follows it.

Two kinds of errors, and an error is never both:

    passes  `retry`: a 429 or 5xx with `Retry-After`, and no header that forbids a retry. A tier that failed may come
            back, so who asks again is right; breakers and the retry budget bound what that may cost. The time is what
            the tier or the ledger reports, else `retry_after_s` of the row: with `Retry-After: 5` a server that was
            down got 12 requests in a minute from qwen-code, which retries around a client that retries, and 14 from
            Continue, without it 24 and 27; opencode gave up after 32 s and said why, without it not within 60 s
    stays   `x-should-retry: false`, no `Retry-After`, and a status that agents don't ask again for

Only OpenAI's own clients heed `x-should-retry`; all others go by the status, and some by the words. So what stays is a
400. Measured 2026-11-23 (2 vCPU AMD EPYC Linux) with unmodified clients, each given one task and nobody to ask, on a
server that refused every chat: "this session has used 616,827 of its 0.5 million tokens ...". How many requests came
until it gave up, or in the first 60 s (45 of qwen-code, Continue); x: the text was not shown:

    status, with `x-should-retry: false`   400  402  403  413  422  424  429
    openai 3.54.0 and 6.49.0                1    1    1    1    1    1    1
    qwen-code 0.15.10                       1    1    1    1    1    1    6 x
    Continue 1.5.47                         1    1    1    1    1    1    8 x
    opencode 1.18.33                        2    2    2    3    2    2    8 x  (one request is for the title)
    LiteLLM 1.106.2                         1    1    1    1    1    1    1
    LiteLLM's proxy                         1    1    3    1    1    1    9
    CrewAI 1.15.30                          3    3    3    3    3    3    9    (it begins its task three times)
    aider 0.86.2                            1    8    8    8    2 x  8    8

402 and 424 are retried by aider, 403 by LiteLLM's proxy too; at a 413 opencode condenses its history and asks again; at
a 422 LiteLLM returns None where `drop_params` is set, on which aider breaks with a traceback. The 422 of a loop stays:
agents without tools, as aider is one, don't meet it. And the words count: with "500,000 tokens" in them opencode took
each of these for a passing error and asked six times in silence, which is why they say "0.5 million"
(`reliability/escalation/wording.py`), and why a `type` of what stays is never `server_error` or `rate_limit_error`.

The same clients on this server itself (scripted tiers, `hard_stop`): at a spent session and at a tier without its key
each sent one request, opencode two, and showed the message. With 429 for the spent session, as it was, qwen-code,
Continue and opencode asked for a minute and showed nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reliability.escalation.decisions import Refuse
from reliability.types import RefuseCode

__all__ = ["TABLE", "ApiError", "Row", "from_refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of error. `retry`: it passes, after `retry_after_s` where no other time is reported.
    `refusal`: what the core calls it, where it is the core that refuses."""

    status: int
    type: str
    meaning: str
    retry: bool = False
    retry_after_s: float | None = None
    refusal: RefuseCode | None = None


RETRY_AFTER_S_MAX = 86_400.0
BACK_S = 5.0  # where no time is reported: as long as a breaker that has just opened leaves its tier alone

TABLE: dict[str, Row] = {
    "invalid_json": Row(status=400, type="invalid_request_error", meaning="the body is not JSON"),
    "invalid_request": Row(
        status=400, type="invalid_request_error", meaning="a field is wrong or missing; `param` names it"
    ),
    "invalid_tools": Row(
        status=400, type="invalid_request_error", meaning="a tool or its schema can't be used; `param` names it"
    ),
    "unsupported": Row(
        status=400,
        type="invalid_request_error",
        meaning="no tier of the chain can do what `param` asks",
        refusal=RefuseCode.UNSUPPORTED,
    ),
    "context_length_exceeded": Row(
        status=400,
        type="invalid_request_error",
        meaning="the prompt fits no tier of the chain",
        refusal=RefuseCode.CONTEXT_LENGTH,
    ),
    "bad_request": Row(
        status=400,
        type="invalid_request_error",
        meaning="the model's API refused the request",
        refusal=RefuseCode.BAD_REQUEST,
    ),
    "invalid_api_key": Row(status=401, type="invalid_request_error", meaning="the API key is missing or wrong"),
    "forbidden": Row(
        status=403, type="invalid_request_error", meaning="the route needs an admin's key, or the server is not open"
    ),
    "cloud_not_allowed": Row(
        status=400,
        type="invalid_request_error",
        meaning="only the cloud could answer, and the request must stay local",
        refusal=RefuseCode.CLOUD_BARRED,
    ),
    "not_found": Row(status=404, type="invalid_request_error", meaning="no such route, report or session"),
    "model_not_found": Row(
        status=404, type="invalid_request_error", meaning="`model` is no tier, no alias and not `auto`"
    ),
    "previous_response_not_found": Row(
        status=400,
        type="invalid_request_error",
        meaning="`previous_response_id` isn't kept: it is too old, another key's, or was never stored",
    ),
    "method_not_allowed": Row(status=405, type="invalid_request_error", meaning="wrong HTTP method"),
    "request_timeout": Row(
        status=408,
        type="invalid_request_error",
        meaning="the headers or the body came too slowly (`server.body_s`)",
        retry=True,
        retry_after_s=1.0,
    ),
    "body_too_large": Row(status=413, type="invalid_request_error", meaning="the body is over `server.body_bytes_max`"),
    "loop_detected": Row(
        status=422,
        type="loop_detected",
        meaning="the model goes round in circles, and so does every tier of the chain",
        refusal=RefuseCode.LOOP,
    ),
    "idempotency_key_reused": Row(
        status=422,
        type="invalid_request_error",
        meaning="the `Idempotency-Key` was used within the last minute, for a request with another body",
    ),
    "headers_too_large": Row(status=431, type="invalid_request_error", meaning="the headers are over 64 KiB"),
    "budget_exceeded": Row(
        status=400,
        type="budget_exceeded",
        meaning="the session's tokens are spent, or the request alone is larger than a limit",
        refusal=RefuseCode.BUDGET,
    ),
    "invalid_answer": Row(
        status=400,
        type="invalid_answer",
        meaning="no tier gave a valid answer: a bad tool call, an empty or a runaway answer each time",
        refusal=RefuseCode.INVALID_ANSWER,
    ),
    "no_tier_configured": Row(
        status=400,
        type="configuration_error",
        meaning="no tier of the chain has what it needs (a model, a key), or all were taken out by hand",
        refusal=RefuseCode.NO_TIER_EVER,
    ),
    "rate_limit_exceeded": Row(
        status=429,
        type="rate_limit_error",
        meaning="the tokens of this hour are spent, or held by open calls",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.RATE,
    ),
    "overloaded": Row(
        status=429,
        type="rate_limit_error",
        meaning="every tier is full",
        retry=True,
        retry_after_s=2.0,
        refusal=RefuseCode.OVERLOADED,
    ),
    "internal_error": Row(
        status=500,
        type="server_error",
        meaning="a bug of this server; the log has the request id",
        retry=True,
        retry_after_s=BACK_S,
    ),
    "upstream_error": Row(
        status=502,
        type="server_error",
        meaning="every tier of the chain failed",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.UPSTREAM,
    ),
    "server_restarting": Row(
        status=502,
        type="server_error",
        meaning="the Router ended while it had the request; another one comes",
        retry=True,
        retry_after_s=2.0,
    ),
    "server_starting": Row(
        status=503, type="server_error", meaning="the server is starting", retry=True, retry_after_s=5.0
    ),
    "memory_pressure": Row(
        status=503,
        type="server_error",
        meaning="the machine is short of memory",
        retry=True,
        retry_after_s=10.0,
        refusal=RefuseCode.MEMORY_PRESSURE,
    ),
    "no_tier_available": Row(
        status=503,
        type="server_error",
        meaning="no tier of the chain can answer now: each has failed and is left alone for a while",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.NO_TIER,
    ),
    "tiers_loading": Row(
        status=503,
        type="server_error",
        meaning="models are still loading",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.LOADING,
    ),
    "server_stopping": Row(
        status=503,
        type="server_error",
        meaning="the server is being stopped",
        retry=True,
        retry_after_s=15.0,
        refusal=RefuseCode.STOPPING,
    ),
    "timeout": Row(
        status=504,
        type="timeout_error",
        meaning="no tier answered within its timeouts",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.TIMEOUT,
    ),
    "deadline_exceeded": Row(
        status=504,
        type="timeout_error",
        meaning="the request's own deadline passed",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.DEADLINE,
    ),
    "stream_broken": Row(
        status=502,
        type="server_error",
        meaning="the answer broke off after its first bytes had been sent",
        retry=True,
        retry_after_s=BACK_S,
        refusal=RefuseCode.BROKEN_STREAM,
    ),
}

OF_REFUSAL = {row.refusal: code for code, row in TABLE.items() if row.refusal is not None}

# Agents condense their history where they read that it is too long, and they read it in the words of OpenAI and vLLM:
# litellm (and with it OpenHands and CrewAI) looks for the first half of this, Hermes for the second; none for the code.
TOO_LONG = "; this model's maximum context length is smaller than the prompt: reduce the length of the messages"


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
        """The HTTP status."""
        return self.row.status

    def body(self) -> dict[str, Any]:
        """Build the JSON object that the client gets. A loop's `retry_after` stands in it too:
        agents read bodies."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.row.type,
            "param": self.param,
            "code": self.code,
        }
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
            out["retry-after"] = str(math.ceil(min(max(1.0, self.retry_after_s), RETRY_AFTER_S_MAX)))
        return out


def from_refusal(refusal: Refuse) -> ApiError:
    """Make the client's view of a refusal."""
    code = OF_REFUSAL[refusal.code]
    message = refusal.message + (TOO_LONG if refusal.code is RefuseCode.CONTEXT_LENGTH else "")
    return ApiError(code, message, param=refusal.param, retry_after_s=refusal.retry_after_s)
