"""HTTP answers that are no chat: JSON, and every error in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from deployments.api.headers import request_id_of
from deployments.errors import ApiError
from deployments.telemetry import log_error

__all__ = ["ERROR_HANDLERS", "error_response", "json_response"]


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer in JSON."""
    return Response(orjson.dumps(value), status_code=status, media_type="application/json", headers=headers)


def error_response(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with an error of the table; its own headers win."""
    return json_response(error.body(), status=error.status, headers={**(headers or {}), **error.headers()})


async def _handle_api_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error_response(error)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Answer Starlette's own 404 and 405 in OpenAI's shape."""
    status = getattr(error, "status_code", 500)
    shown = ApiError("internal_error", "an error inside the server")
    if status == 404:
        shown = ApiError("not_found", f"there is no route {request.url.path}")
    elif status == 405:
        shown = ApiError("method_not_allowed", "this method isn't allowed here")
    response = error_response(shown)
    if "Allow" in (getattr(error, "headers", None) or {}):
        response.headers["allow"] = error.headers["Allow"]  # type: ignore[attr-defined]
    return response


async def _handle_bug(request: Request, error: Exception) -> Response:
    log_error("bug", error, request_id=request_id_of(request.headers))
    return error_response(ApiError("internal_error", "an error inside the server"))


ERROR_HANDLERS: dict[Any, Any] = {
    ApiError: _handle_api_error,
    HTTPException: _handle_http_error,
    Exception: _handle_bug,
}
