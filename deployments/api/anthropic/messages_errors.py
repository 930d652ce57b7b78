"""The errors of the table in Anthropic's shape: `{"type": "error", "error": {"type", "message", …}, "request_id"}`.

Status, `Retry-After` and `x-should-retry` are the table's own. The `type` follows from the status, by Anthropic's list;
`code` and `param` of the table stand beside it. Claude Code knows by the words that a conversation has grown too long,
and then condenses it: they are in front of what the tier says.

What the server refuses for good (a loop, a spent budget, no valid answer) is a `billing_error`, the one type after
which Claude Code gives up at once. At any other 400 or 422 it takes the error for a feature that the server lacks, and
asks again without one, and without the next, whatever `x-should-retry` says. Requests within .3 s for one task
(2026-11-24, Claude Code 2.1.330, `claude -p`, a stub on loopback), all of which showed the message:

    400 or 422 with invalid_request_error, permission_error, request_too_large, api_error, loop_detected     6
    400 or 422 with billing_error                                                                            1

A request that is wrong, or too long, keeps its own type: there to leave a feature out, or to condense, is right.
"""

from __future__ import annotations

from typing import Any

from deployments.api.anthropic.messages_body import rename
from deployments.errors import ApiError

__all__ = ["message_error"]

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
LEAVE_OUT = frozenset({"unsupported", "context_length_exceeded"})
TOO_LONG = "prompt is too long: "


def message_error(error: ApiError, request_id: str) -> dict[str, Any]:
    """Build the JSON object that the client gets."""
    told: dict[str, Any] = rename(error).body()["error"]
    if error.code == "context_length_exceeded":
        told["message"] = TOO_LONG + told["message"]
    return {"type": "error", "error": told | {"type": _choose_type(error)}, "request_id": request_id}


def _choose_type(error: ApiError) -> str:
    stays = error.row.refusal is not None and not error.row.retry
    return "billing_error" if stays and error.code not in LEAVE_OUT else TYPES[error.status]
