"""A hostile upstream on loopback: `python -m loadtests.hostile_upstream PORT` answers as the request itself asks it to.

The last user message names the kind (`hostile.ANSWER_MARK`); every other request gets a small, good answer.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from aiohttp import web

from loadtests.hostile import ANSWER_MARK
from loadtests.hostile_answers import ANSWERS, make_pieces

BODY_BYTES_MAX = 64 * 1024 * 1024
SEED = "1"


def find_kind(raw: bytes) -> str:
    """Find the kind of answer that a body asks for."""
    _, mark, rest = raw.rpartition(ANSWER_MARK.encode())
    kind = rest.partition(b'"')[0].decode() if mark else ""
    return kind if kind in ANSWERS else "a text"


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer one chat completion."""
    kind = find_kind(await request.read())
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionError):  # the server has read enough
        for piece in make_pieces(kind, SEED):
            await response.write(piece)
            await asyncio.sleep(0)
        await response.write_eof()
    return response


async def answer_alive(_: web.Request) -> web.Response:
    """Answer that it is up."""
    return web.Response(text="ok")


def main() -> None:
    """Serve until it is ended."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/", answer_alive)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


if __name__ == "__main__":
    main()
