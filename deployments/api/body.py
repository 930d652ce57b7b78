"""The body of a request: read within its bytes and within its time, and parsed here or in a worker process.

A body has `first_s` seconds, and one more for each `_RATE_BYTES` that have come; no `first_s` without a byte. Above
`readers_max` bodies at once the slowest ends, if it has been coming for `YOUNG_S`. All three end in a 408. Of several
API keys one has at most `of_key_max` requests, and its large bodies hold at most half of the bytes for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from starlette.requests import Request

from deployments.api.openai_chat import ChatCall
from deployments.errors import ApiError
from deployments.work.json_text import count_values
from deployments.work.large_work import large
from deployments.work.turns import Asker
from deployments.work.worker_pool import STEPS_INLINE, STEPS_LARGE, JobTooLong, Undone, Workers
from reliability.steps import OutOfSteps, Steps
from reliability.tools import keep
from reliability.types import ChatRequest

_RATE_BYTES = 32_768
# A replica holds so many bytes of bodies beyond the first `SMALL_BYTES` of each, and of one API key at most the
# share `_KEY_SHARE` of them, unless that is one body. A small body always finds room. Each JSON value counts as
# `_VALUE_BYTES` more, once it is parsed: an object of one key takes 8 bytes of a body, and 200 in memory.
HELD_BYTES_MAX, SMALL_BYTES = 128 * 1024 * 1024, 512 * 1024
_VALUE_BYTES = 128
_KEY_SHARE = 0.5
YOUNG_S = 2.0  # a busy event loop may need as long to read what is here already


@dataclass(eq=False, slots=True)
class _IncomingBody:
    """One body on its way. `clock` ends it."""

    clock: asyncio.Timeout
    begun_s: float
    size: int = 0

    def more(self, size: int, first_s: float, now_s: float) -> None:
        """Count `size` bytes that have come, and move its end on. An end that the crowd has set stays."""
        self.size += size
        if (self.clock.when() or 0.0) > now_s:
            self.clock.reschedule(min(self.begun_s + first_s + self.size / _RATE_BYTES, now_s + first_s))


class Bodies:
    """The bodies that are coming to one Router replica, at most `readers_max`, and how many requests each key has."""

    def __init__(self, readers_max: int, of_key_max: int = 256) -> None:
        self._readers_max, self._of_key_max = max(1, readers_max), max(1, of_key_max)
        self._incoming: set[_IncomingBody] = set()
        self._held = Counter[str]()  # bytes, by the name of the API key
        self._requests = Counter[str]()  # from the head to the last byte of the answer

    async def read(
        self, request: Request, *, bytes_max: int, first_s: float, ending: ExitStack, key: str = ""
    ) -> bytes:
        """Read the complete body, of at most `bytes_max` bytes, which count as held by this API key (if there are
        several) until `ending` closes, as the request does. Raises ApiError: `body_too_large`, `overloaded`,
        `request_timeout`. ClientDisconnect: the client left."""
        self.take_slot(key, ending)
        try:
            async with asyncio.timeout(first_s) as clock:
                body = self._enter(clock)
                loop, parts = asyncio.get_running_loop(), list[bytes]()
                try:
                    async for part in request.stream():
                        if part:
                            body.more(len(part), first_s, loop.time())
                        if body.size > bytes_max:
                            words = f"the body is over {bytes_max:,} bytes (server.body_bytes_max)"
                            raise ApiError("body_too_large", words)
                        self._hold(key, body.size, min(len(part), body.size - SMALL_BYTES), ending)
                        parts.append(part)
                finally:
                    self._incoming.discard(body)
        except TimeoutError:
            words = (
                f"the body came too slowly: it may take {first_s:g} s (server.body_s) and one more for each "
                f"{_RATE_BYTES} bytes, without a pause; where many come at once, the slowest ends first"
            )
            raise ApiError("request_timeout", words) from None
        return b"".join(parts)

    async def hold_values(self, request: ChatRequest, *, ending: ExitStack, key: str = "") -> None:
        """Hold what a request's values take in memory, also those of stored conversations, until `ending` closes.
        Raises ApiError: `overloaded`."""
        size = request.body_bytes
        if size + size // 2 * _VALUE_BYTES > SMALL_BYTES:  # a value takes two bytes of a body at least
            given = [getattr(request, each.name) for each in fields(request)]
            values_bytes = _VALUE_BYTES * await large(size, count_values, given)
            size += values_bytes
            self._hold(key, size, min(values_bytes, size - SMALL_BYTES), ending)

    def take_slot(self, key: str, ending: ExitStack) -> None:
        """Count the request for its key until `ending` closes: some of what the Router takes is for the other keys."""
        if not key:
            return
        if self._requests[key] >= self._of_key_max:
            words = f"{self._requests[key]} requests of this API key run, and {self._of_key_max} may"
            raise ApiError("overloaded", f"{words} (7/8 of server.max_ongoing_requests)")
        self._requests[key] += 1
        ending.callback(self._requests.subtract, (key,))

    def _hold(self, key: str, whole: int, size: int, ending: ExitStack) -> None:
        if size <= 0:
            return
        held, key_max = self._held.total(), int(HELD_BYTES_MAX * _KEY_SHARE)
        if held + size > HELD_BYTES_MAX:
            words = f"large bodies of {held >> 20} MiB are in use, and {HELD_BYTES_MAX >> 20} MiB may be"
            raise ApiError("overloaded", words)
        of_key = self._held[key] + size
        is_only_one = of_key <= whole - SMALL_BYTES  # then waiting wouldn't make room for it
        if key and of_key > key_max and not is_only_one:
            in_use = f"large bodies of {self._held[key] >> 20} MiB of this API key are in use"
            words = f"{in_use}, and {key_max >> 20} MiB may be"
            raise ApiError("overloaded", words)
        self._held[key] = of_key
        ending.callback(self._free, key, size)

    def _free(self, key: str, size: int) -> None:
        self._held[key] -= size
        if not self._held[key]:
            del self._held[key]

    def _enter(self, clock: asyncio.Timeout) -> _IncomingBody:
        now_s = asyncio.get_running_loop().time()
        if len(self._incoming) >= self._readers_max:
            # By the seconds for each byte; one that has just begun isn't slow.
            slowest = max(self._incoming, key=lambda body: (now_s - body.begun_s) / (body.size + _RATE_BYTES))
            if now_s - slowest.begun_s >= YOUNG_S:
                self._incoming.discard(slowest)
                slowest.clock.reschedule(now_s)
        body = _IncomingBody(clock, now_s)
        self._incoming.add(body)
        return body


async def parse_body(
    workers: Workers,
    parse: Callable[..., ChatCall],
    raw: bytes,
    headers: Mapping[str, str],
    *,
    key: str,
    beside: int = 0,
    **named: Any,
) -> ChatCall:
    """Run a dialect's `parse`, here or in a worker, in the turn of this API key. `beside`: so many bytes it reads
    beside `raw`. Raises `ApiError`: as `parse`; `overloaded`."""
    try:
        inline = Steps(STEPS_INLINE, owner=key)
        return await large(len(raw) + beside, partial(parse, raw, headers, **named, steps=inline))
    except OutOfSteps:
        pass
    steps = Steps(STEPS_LARGE, final=True, owner=key)
    try:
        call = await workers.run(parse, raw, headers, asker=Asker(key), **named, steps=steps)
    except JobTooLong as error:
        message = f"the schemas of this request are too large: {error} to read them"
        raise ApiError("invalid_tools", message, param="tools") from None
    except Undone as error:
        raise ApiError("overloaded", str(error)) from None
    for tool in call.toolbox.tools:
        keep(tool.compiled, arguments=True, owner=key)
    return call
