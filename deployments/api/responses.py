"""HTTP answers that are no chat: JSON, and every error in the shape of the dialect that was spoken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from deployments.api.dialect import Dialect
from deployments.api.headers import request_id_of
from deployments.errors import ApiError
from deployments.telemetry import log_error
from deployments.work.json_text import write_json

# What a client asks for whose base URL has one `/v1` too few.
_WITHOUT_V1 = ("/chat/completions", "/responses", "/completions", "/embeddings", "/messages", "/models")


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer in JSON."""
    return Response(write_json(value), status_code=status, media_type="application/json", headers=headers)


def error_response(
    error: ApiError, headers: Mapping[str, str] | None = None, *, spoken: Dialect | None = None, request_id: str = ""
) -> Response:
    """Answer with an error of the table, in the shape of the dialect that was spoken, or else in OpenAI's."""
    if spoken is None:
        return json_response(error.body(), status=error.status, headers={**(headers or {}), **error.headers()})
    headers = {**(headers or {}), **spoken.id_headers(request_id), **error.headers()}
    status = spoken.statuses.get(error.code, error.status)
    return json_response(spoken.error_body(error, request_id), status=status, headers=headers)


def find_inner_path(scope: Mapping[str, Any]) -> str:
    """Find a request's path without the prefix that the app is served under."""
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    return path[len(root) :] if root and path.startswith(root + "/") else path


def find_methods(routes: Iterable[Any], path: str) -> list[str]:
    """Find the methods of a path, of all routes that it fits; none where there is no such route."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Mount) and path.startswith(f"{route.path}/"):
            found.update(find_methods(route.routes, path.removeprefix(route.path)))
        elif isinstance(route, Route) and route.path_regex.match(path):
            found.update(route.methods or (), ("OPTIONS",))
    return sorted(found)


def build_error_handlers(dialects: Mapping[str, Dialect]) -> dict[Any, Any]:
    """Build the handlers of what a route raises. `dialects` by path: an error there, and below it, has the dialect's
    shape; elsewhere that of the dialect whose sign the request has, or else OpenAI's."""

    def answer(request: Request, error: ApiError) -> Response:
        path = find_inner_path(request.scope)
        spoken = next((d for at, d in dialects.items() if path == at or path.startswith(at + "/")), None)
        if spoken is None:
            spoken = next((d for d in dialects.values() if d.sign and d.sign in request.headers), None)
        return error_response(error, spoken=spoken, request_id=request_id_of(request.headers))

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, ApiError):
            return answer(request, error)
        response = answer(request, _read_http_error(request, error))
        if response.status_code == 405:
            response.headers["allow"] = ", ".join(find_methods(request.app.routes, find_inner_path(request.scope)))
        return response

    async def handle_bug(request: Request, error: Exception) -> Response:
        log_error("bug", error, request_id=request_id_of(request.headers))
        return answer(request, ApiError("internal_error", "an error inside the server"))

    return {ApiError: handle, HTTPException: handle, Exception: handle_bug}


def _read_http_error(request: Request, error: Exception) -> ApiError:
    status = getattr(error, "status_code", 500)
    if status == 404:
        lacks_v1 = find_inner_path(request.scope).startswith(_WITHOUT_V1)
        hint = "; the base URL of an OpenAI client ends in /v1" if lacks_v1 else ""
        return ApiError("not_found", f"there is no route {request.url.path}{hint}")
    if status == 405:
        methods = ", ".join(find_methods(request.app.routes, find_inner_path(request.scope)))
        words = f"{request.method[:16]} isn't allowed for {request.url.path}; it takes {methods}"
        return ApiError("method_not_allowed", words)
    return ApiError("internal_error", "an error inside the server")
