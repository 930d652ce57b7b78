"""A hostile upstream on loopback: `python -m loadtests.hostile_upstream PORT` answers as the request itself asks it to.

The last user message names the kind (`hostile.ANSWER_MARK`); every other request gets a small, good answer.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from aiohttp import web

from loadtests.hostile import ANSWER_MARK
from loadtests.hostile_answers import ANSWERS, pieces_of

__all__ = ["kind_in"]

BODY_BYTES_MAX = 64 * 1024 * 1024
SEED = "1"


def kind_in(raw: bytes) -> str:
    """The kind of answer that a body asks for."""
    _, mark, rest = raw.rpartition(ANSWER_MARK.encode())
    kind = rest.partition(b'"')[0].decode() if mark else ""
    return kind if kind in ANSWERS else "a text"


async def answer(request: web.Request) -> web.StreamResponse:
    """One chat completion."""
    kind = kind_in(await request.read())
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionError):  # the server has read enough
        for piece in pieces_of(kind, SEED):
            await response.write(piece)
            await asyncio.sleep(0)
        await response.write_eof()
    return response


async def well(_: web.Request) -> web.Response:
    """Alive."""
    return web.Response(text="ok")


def main() -> None:
    """Serve."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/", well)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


if __name__ == "__main__":
    main()
