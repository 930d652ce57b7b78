"""A bug while a stream is made: before its first frame it is an HTTP error, behind it an error frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.config import RouterConfig
from deployments.router import Router
from reliability.types import Event, Text
from tests.run_values import request_of, run_of

CALL: Any = SimpleNamespace(legacy_functions=False, include_usage=False)


class Buggy(Router):
    """The Router's own way of streaming on a walk that breaks after `after` lists of events."""

    def __init__(self, after: int) -> None:
        self._config = RouterConfig()
        self._after = after
        self.closed = 0

    async def _driven(self, _: Any) -> AsyncGenerator[list[Event], None]:
        for _ in range(self._after):
            yield [Text("word ")]
        raise ZeroDivisionError("a bug")

    def _close(self, _: Any) -> None:
        self.closed += 1


def account() -> Any:
    return SimpleNamespace(run=run_of(request_of("hi"), tier="fast"))


def test_before_the_first_frame_it_is_an_http_error():
    """No byte has left, so the bug reaches the app's handler, which answers 500; the books are closed."""
    router = Buggy(after=0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(router._streamed(CALL, account()))

    assert router.closed


def test_behind_the_first_frame_it_is_an_error_frame():
    """The stream ends with one error that names the server, and without `[DONE]`; the books are closed."""

    async def main() -> list[bytes]:
        response: Any = await router._streamed(CALL, account())
        return [frame async for frame in response.body_iterator]

    router = Buggy(after=2)
    *words, last = asyncio.run(main())
    error = json.loads(last.removeprefix(b"data: "))["error"]

    assert len(words) == 2
    assert error["code"] == "internal_error"
    assert "bug" not in error["message"]
    assert router.closed
