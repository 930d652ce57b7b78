"""The bare one-hop app: a Ray Serve ingress that calls one deployment by handle, which calls the upstream by aiohttp.

It parses nothing and decides nothing: what it costs is what Ray Serve costs. Same flags and same transport as ours.
It has no retry either: a status other than 200 goes on to the client as it is, so that a fault isn't a fast answer.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from ray import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

MANY = 1024
OK = 200


class Caller:
    """Calls the upstream, and gives on its bytes as they come, or its status where that isn't 200."""

    def __init__(self, upstream: str) -> None:
        self._url = f"{upstream}/chat/completions"
        self._client: aiohttp.ClientSession | None = None

    async def stream(self, body: bytes) -> AsyncIterator[bytes | int]:
        """Yield the answer's bytes; of a fault its status alone."""
        headers = {"content-type": "application/json"}
        if self._client is None:  # it needs a running loop
            self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=MANY))
        async with self._client.post(self._url, data=body, headers=headers) as response:
            if response.status != OK:
                yield response.status
                return
            async for data in response.content.iter_any():
                yield data


class Front:
    """The ingress."""

    def __init__(self, caller: Any) -> None:
        self._stream = caller.options(stream=True, _by_reference=False).stream

    def __serve_build_asgi_app__(self) -> Starlette:
        """Build the ASGI app."""
        routes = [Route("/v1/chat/completions", self.chat, methods=["POST"]), Route("/ready", self.ready)]
        return Starlette(routes=routes)

    async def ready(self, _: Request) -> Response:
        """Answer that it is up."""
        return Response("{}")

    async def chat(self, request: Request) -> Response:
        """Pass the request on, and its answer back."""
        body = await request.body()
        answer = aiter(self._stream.remote(body))
        first = await anext(answer, b"")
        if isinstance(first, int):
            return Response(status_code=first)
        if json.loads(body).get("stream"):
            return StreamingResponse(_yield_all(first, answer), media_type="text/event-stream")
        return Response(b"".join([data async for data in _yield_all(first, answer)]), media_type="application/json")


async def _yield_all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for data in rest:
        yield data


def build(args: dict[str, str]) -> serve.Application:
    """Build the app. `args`: the upstream's base URL."""
    small: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0}, "max_ongoing_requests": MANY}
    caller = serve.deployment(Caller).options(name="Caller", **small).bind(args["upstream"])
    return serve.deployment(serve.ingress()(Front)).options(name="Front", **small).bind(caller)
