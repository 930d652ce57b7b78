"""The errors of the table in Anthropic's shape: `{"type": "error", "error": {"type", "message", …}, "request_id"}`.

Status, `Retry-After` and `x-should-retry` are the table's own. The `type` follows from the status, by Anthropic's list;
`code` and `param` of the table stand beside it. Claude Code knows by the words that a conversation has grown too long,
and then condenses it: they are in front of what the tier says.
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
TOO_LONG = "prompt is too long: "


def message_error(error: ApiError, request_id: str) -> dict[str, Any]:
    """Build the JSON object that the client gets."""
    told: dict[str, Any] = rename(error).body()["error"]
    if error.code == "context_length_exceeded":
        told["message"] = TOO_LONG + told["message"]
    return {"type": "error", "error": told | {"type": TYPES[error.status]}, "request_id": request_id}
