"""The routes of stored responses: read one, list its input, delete it.

    GET, DELETE /v1/responses/{id}      GET /v1/responses/{id}/input_items

What OpenAI's API has beside them and this server doesn't (`NOT_OFFERED`) is a 404 that says so: its path would else be
taken for a response's name.

A caller sees the responses of its own key; another's is answered as if it weren't there. Records are opened beside the
event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Caller
from deployments.api.openai_responses.stored_record import open_record
from deployments.api.openai_responses.stored_responses import StoredResponses
from deployments.api.responses import find_inner_path, json_response
from deployments.errors import ApiError
from deployments.work.large_work import large

__all__ = ["NOT_OFFERED", "StoredRoutes"]

AT = "/v1/responses/{response_id}"
LIMIT, LIMIT_MAX = 20, 100
NOT_OFFERED = {
    "/v1/responses/compact": "compacting isn't offered here: send a shorter history, or summarize it by a request",
    f"{AT}/cancel": "canceling isn't offered here: responses aren't made in the background; hang up to end one",
}


class StoredRoutes:
    """The routes. `identify` says who asks."""

    def __init__(self, stored: StoredResponses, identify: Callable[[Request], Caller]) -> None:
        self._stored, self._identify = stored, identify

    def routes(self) -> list[Route]:
        """List them for the Router's app."""
        return [
            Route(AT, self.retrieve, methods=["GET"]),
            Route(AT, self.delete, methods=["DELETE"]),
            Route(f"{AT}/input_items", self.list_input, methods=["GET"]),
            *(Route(path, partial(self.deny_offer, words), methods=["POST"]) for path, words in NOT_OFFERED.items()),
        ]

    async def retrieve(self, request: Request) -> Response:
        """Answer with one response."""
        if request.query_params.get("stream", "").lower() == "true":
            raise ApiError("unsupported", "stream: a stored response isn't streamed again", param="stream")
        return json_response((await self._open(request))["response"])

    async def delete(self, request: Request) -> Response:
        """Forget one response."""
        caller, response_id = self._identify(request), request.path_params["response_id"]
        if not await self._stored.forget(caller.name, response_id):
            raise _deny(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> Response:
        """List the input of one response, a page at a time."""
        items = (await self._open(request))["input"]
        params = request.query_params
        if params.get("order", "desc") != "asc":
            items = items[::-1]
        if (after := params.get("after")) is not None:
            places = [place for place, item in enumerate(items) if item["id"] == after]
            if not places:
                raise ApiError("invalid_request", "after: names no item of this list", param="after")
            items = items[places[0] + 1 :]
        page = items[: _read_limit(params.get("limit"))]
        return json_response(_build_list(page, has_more=len(page) < len(items)))

    async def deny_offer(self, words: str, request: Request) -> Response:
        """Say that this server doesn't do that.

        Raises:
            ApiError: always.
        """
        self._identify(request)
        raise ApiError("not_found", f"{find_inner_path(request.scope)}: {words}")

    async def _open(self, request: Request) -> dict[str, Any]:
        caller, response_id = self._identify(request), request.path_params["response_id"]
        found = await self._stored.find(caller.name, response_id)
        if found is None:
            raise _deny(response_id)
        return await large(found.size, open_record, found.record)


def _deny(response_id: str) -> ApiError:
    return ApiError("not_found", f"Response with id '{response_id[:128]}' not found.")


def _read_limit(text: str | None) -> int:
    if text is None:
        return LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= LIMIT_MAX):
        raise ApiError("invalid_request", f"limit: a number from 1 to {LIMIT_MAX} is needed", param="limit")
    return int(text)


def _build_list(page: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": has_more}
