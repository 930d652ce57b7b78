"""Every error that a client can see: one table, one exception.

    ApiError(code, message, param)  ->  status, OpenAI `type`, `x-should-retry`, from `TABLE`

The shape is OpenAI's: `{"error": {"message", "type", "param", "code"}}`. `x-should-retry: false` stands where a retry
would do harm: the openai client sends a 408, 409, 429 or 5xx again, twice by default, and this server has already
retried and moved from tier to tier. Where waiting helps, `Retry-After` says how long, and no header forbids a retry.

In a stream that has begun, the same object is sent as an SSE frame, and no `[DONE]` follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reliability.escalation import Refuse, RefuseCode

__all__ = ["TABLE", "ApiError", "Row", "from_refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of error. `retry` False sends `x-should-retry: false`; `retry_after_s` is the default wait."""

    status: int
    type: str
    meaning: str
    retry: bool = False
    retry_after_s: float | None = None


TABLE: dict[str, Row] = {
    "invalid_json": Row(status=400, type="invalid_request_error", meaning="the body is not JSON"),
    "invalid_request": Row(
        status=400, type="invalid_request_error", meaning="a field is wrong or missing; `param` names it"
    ),
    "invalid_tools": Row(
        status=400, type="invalid_request_error", meaning="a tool or its schema can't be used; `param` names it"
    ),
    "unsupported": Row(
        status=400, type="invalid_request_error", meaning="no tier of the chain can do what `param` asks"
    ),
    "context_length_exceeded": Row(
        status=400, type="invalid_request_error", meaning="the prompt fits no tier of the chain"
    ),
    "bad_request": Row(status=400, type="invalid_request_error", meaning="the model's API refused the request"),
    "invalid_api_key": Row(status=401, type="invalid_request_error", meaning="the API key is missing or wrong"),
    "forbidden": Row(
        status=403, type="invalid_request_error", meaning="the route needs an admin's key, or the server is not open"
    ),
    "cloud_not_allowed": Row(
        status=403, type="invalid_request_error", meaning="only the cloud could answer, and the request must stay local"
    ),
    "not_found": Row(status=404, type="invalid_request_error", meaning="no such route, report or session"),
    "model_not_found": Row(
        status=404, type="invalid_request_error", meaning="`model` is no tier, no alias and not `auto`"
    ),
    "method_not_allowed": Row(status=405, type="invalid_request_error", meaning="wrong HTTP method"),
    "body_too_large": Row(status=413, type="invalid_request_error", meaning="the body is over `server.body_bytes_max`"),
    "loop_detected": Row(
        status=422, type="loop_detected", meaning="the model goes round in circles, and so does every tier of the chain"
    ),
    "budget_exceeded": Row(status=429, type="rate_limit_error", meaning="the token budget is spent"),
    "overloaded": Row(status=429, type="rate_limit_error", meaning="every tier is full", retry=True, retry_after_s=2.0),
    "internal_error": Row(status=500, type="server_error", meaning="a bug of this server; the log has the request id"),
    "upstream_error": Row(status=502, type="server_error", meaning="every tier of the chain failed"),
    "invalid_answer": Row(
        status=502,
        type="server_error",
        meaning="no tier gave a valid answer: a bad tool call, an empty or a runaway answer each time",
    ),
    "memory_pressure": Row(
        status=503, type="server_error", meaning="the machine is short of memory", retry=True, retry_after_s=10.0
    ),
    "no_tier_available": Row(status=503, type="server_error", meaning="no tier of the chain can answer"),
    "tiers_loading": Row(
        status=503, type="server_error", meaning="models are still loading", retry=True, retry_after_s=5.0
    ),
    "timeout": Row(status=504, type="timeout_error", meaning="no tier answered within its timeouts"),
    "deadline_exceeded": Row(status=504, type="timeout_error", meaning="the request's own deadline passed"),
    "stream_broken": Row(
        status=502, type="server_error", meaning="the answer broke off after its first bytes had been sent"
    ),
}

OF_REFUSAL: dict[RefuseCode, str] = {
    RefuseCode.BAD_REQUEST: "bad_request",
    RefuseCode.UNSUPPORTED: "unsupported",
    RefuseCode.CONTEXT_LENGTH: "context_length_exceeded",
    RefuseCode.NO_TIER: "no_tier_available",
    RefuseCode.LOADING: "tiers_loading",
    RefuseCode.OVERLOADED: "overloaded",
    RefuseCode.TIMEOUT: "timeout",
    RefuseCode.UPSTREAM: "upstream_error",
    RefuseCode.DEADLINE: "deadline_exceeded",
    RefuseCode.BROKEN_STREAM: "stream_broken",
    RefuseCode.INVALID_ANSWER: "invalid_answer",
    RefuseCode.LOOP: "loop_detected",
    RefuseCode.BUDGET: "budget_exceeded",
    RefuseCode.MEMORY_PRESSURE: "memory_pressure",
    RefuseCode.CLOUD_BARRED: "cloud_not_allowed",
}


# Agents condense their history where they read that it is too long, and they read it in the words of OpenAI and vLLM:
# litellm (and with it OpenHands and CrewAI) looks for the first half of this, Hermes for the second; none for the code.
TOO_LONG = "; this model's maximum context length is smaller than the prompt: reduce the length of the messages"


class ApiError(Exception):
    """An error with its row in `TABLE`. `message` is for the client: no key, no path, no stack."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.row = TABLE[code]
        self.message = message
        self.param = param
        self.retry_after_s = self.row.retry_after_s if retry_after_s is None else retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.row.status

    def body(self) -> dict[str, Any]:
        """The JSON object that the client gets. A loop's `retry_after` stands in it too: agents read bodies."""
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
        """`x-should-retry` and `Retry-After`, where the row asks for them; a 401 names the scheme (RFC 9110)."""
        out: dict[str, str] = {}
        if not self.row.retry:
            out["x-should-retry"] = "false"
        if self.status == 401:
            out["www-authenticate"] = "Bearer"
        if self.retry_after_s is not None and self.status in (422, 429, 503):
            out["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
        return out


def from_refusal(refusal: Refuse) -> ApiError:
    """The client's view of a refusal."""
    code = OF_REFUSAL[refusal.code]
    message = refusal.message + (TOO_LONG if refusal.code is RefuseCode.CONTEXT_LENGTH else "")
    return ApiError(code, message, param=refusal.param, retry_after_s=refusal.retry_after_s)
