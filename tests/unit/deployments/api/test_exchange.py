"""A bug while a stream is made: before its first frame it is an HTTP error, behind it an error frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.api.exchange import Exchange
from deployments.api.openai_chat import ChatWanted
from deployments.api.openai_render import CHAT
from reliability.types import Event, Text
from tests.support.run_values import request_of, run_of


class Client:
    """A client's exchange over a run that breaks after `after` lists of events."""

    def __init__(self, after: int) -> None:
        self.closed = 0
        self.exchange = Exchange(
            dialect=CHAT,
            call=SimpleNamespace(stream=True, wanted=ChatWanted()),  # type: ignore[arg-type]
            run=run_of(request_of("hi"), tier="fast"),
            events=breaking(after),
            report=dict,
            close=self._close,
            keepalive_s=10.0,
        )

    def _close(self) -> None:
        self.closed += 1


async def breaking(after: int) -> AsyncGenerator[list[Event], None]:
    for _ in range(after):
        yield [Text("word ")]
    raise ZeroDivisionError("a bug")


def test_before_the_first_frame_it_is_an_http_error():
    """No byte has left, so the bug reaches the app's handler, which answers 500; the books are closed."""
    client = Client(after=0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(client.exchange.respond())

    assert client.closed


def test_behind_the_first_frame_it_is_an_error_frame():
    """The stream ends with one error that names the server, and without `[DONE]`; the books are closed."""

    async def main() -> list[bytes]:
        response: Any = await client.exchange.respond()
        return [frame async for frame in response.body_iterator]

    client = Client(after=2)
    *words, last = asyncio.run(main())
    error = json.loads(last.removeprefix(b"data: "))["error"]

    assert len(words) == 2
    assert error["code"] == "internal_error"
    assert "bug" not in error["message"]
    assert client.closed
