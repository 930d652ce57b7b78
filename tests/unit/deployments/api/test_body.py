"""Bodies that come at once: who is ended to make room, and who isn't."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Any

import pytest

from deployments.api import body
from deployments.api.body import Bodies
from deployments.api.openai_chat import ChatCall, parse_chat
from deployments.errors import ApiError
from deployments.work.turns import Asker
from deployments.work.worker_pool import JobTooLong, Undone
from reliability.types import ChatRequest
from tests.support.refusing import refusal_of


class Coming:
    """A request whose body is here when it is let go."""

    def __init__(self) -> None:
        self.here = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        await self.here.wait()
        yield b"{}"


async def test_a_crowd_that_begins_in_one_moment_is_read():
    """Far more bodies than may come at once, whose readers all begin before any has read: none of them is slow."""
    bodies, crowd = Bodies(4), [Coming() for _ in range(200)]
    reads: list[Any] = [bodies.read(one, bytes_max=100, first_s=30.0, ending=ExitStack()) for one in crowd]
    reading = [asyncio.create_task(read) for read in reads]
    await asyncio.sleep(0)
    for one in crowd:
        one.here.set()

    assert await asyncio.gather(*reading) == [b"{}"] * 200


class Sent:
    """A request whose body is here, in parts of 64 KiB."""

    def __init__(self, size: int) -> None:
        self.size = size

    async def stream(self) -> AsyncIterator[bytes]:
        for at in range(0, self.size, 65_536):
            yield b"x" * min(65_536, self.size - at)


async def test_large_bodies_share_a_budget_and_small_ones_find_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: of large bodies a replica holds so many bytes; the next one is refused, a small one isn't, and what a
    request held is free when it ends, also where it was refused."""
    monkeypatch.setattr(body, "HELD_BYTES_MAX", 4 * body.SMALL_BYTES)
    large, small = 3 * body.SMALL_BYTES, body.SMALL_BYTES
    bodies = Bodies(4)

    async def read(size: int, ending: ExitStack) -> int:
        return len(await bodies.read(Sent(size), bytes_max=large, first_s=30.0, ending=ending))  # type: ignore[arg-type]

    with ExitStack() as first, ExitStack() as second:
        assert [await read(large, first), await read(large, second)] == [large, large]
        with pytest.raises(ApiError, match="in use"), ExitStack() as third:
            await read(large, third)
        assert await read(small, ExitStack()) == small
    assert await read(large, ExitStack()) == large


async def test_no_key_holds_the_whole_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: however many large bodies of one key have come or are on their way, another key's finds room; half of the
    budget is one key's, what it held is free when it ends, and its only body may be larger than that."""
    monkeypatch.setattr(body, "HELD_BYTES_MAX", 4 * body.SMALL_BYTES)
    large = 2 * body.SMALL_BYTES
    bodies = Bodies(8)

    async def read(key: str, size: int, ending: ExitStack) -> int:
        request: Any = Sent(size)
        return len(await bodies.read(request, bytes_max=size, first_s=30.0, ending=ending, key=key))

    with ExitStack() as of_a, ExitStack() as of_b:
        for _ in range(2):
            assert await read("a", large, of_a) == large
        with pytest.raises(ApiError, match="of this API key are in use") as refused, ExitStack() as refusing:
            await read("a", large, refusing)
        assert refused.value.code == "overloaded"
        for _ in range(2):
            assert await read("b", large, of_b) == large
        assert await read("a", body.SMALL_BYTES, ExitStack()) == body.SMALL_BYTES
    assert await read("a", 2 * large, ExitStack()) == 2 * large


@pytest.mark.parametrize("value", [b"{}", b"[]", b'{"a":1}', b'""', b"1.5"])
async def test_what_a_body_becomes_counts_too(value: bytes) -> None:
    """Law: the requests of one key that are held at once take no more memory, as Python's objects, than large bodies
    may, wherever the values stand and whether they came or were stored: a small body of many values is a large one. A
    text of the same bytes is still small."""
    many, bodies = b"[" + b",".join([value] * 60_000) + b"]", Bodies(64)

    async def read(content: Any, ending: ExitStack, times: int = 1) -> None:
        messages = ({"role": "user", "content": content},)
        for at in range(times):
            place: Any = {"messages": messages} if at % 2 else {"messages": (), "tools": messages}
            made: Any = {
                "request_id": "r",
                "session_id": "s",
                "max_tokens": 1,
                "timeout_s": 9.0,
                "body_bytes": len(many),
            }
            request = ChatRequest(**made, **place)
            await bodies.hold_values(request, ending=ending, key="a")

    tracemalloc.start()
    parsed = json.loads(many)
    fit = body.HELD_BYTES_MAX // 2 // tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    with ExitStack() as ending:
        await read(parsed, ending, 2)
        with pytest.raises(ApiError, match="of this API key are in use"):
            await read(parsed, ending, fit - 1)
        await read(many.decode(), ending)
    await read(parsed, ExitStack())


async def test_no_key_takes_every_request() -> None:
    """Law: however many requests of one key run, some slots are for the others; one is free when its request has
    ended, also one that was refused. Without another key there is no such bound."""
    bodies = Bodies(2, of_key_max=4)

    async def read(key: str, ending: ExitStack) -> bytes:
        request: Any = Sent(2)
        return await bodies.read(request, bytes_max=9, first_s=30.0, ending=ending, key=key)

    for _ in range(3):
        with ExitStack() as of_a, ExitStack() as others:
            for _ in range(4):
                await read("a", of_a)
            for _ in range(2):
                with pytest.raises(ApiError, match="4 requests of this API key run, and 4 may") as refused:
                    await read("a", of_a)
                assert refused.value.code == "overloaded"
            for key in ["b"] * 4 + [""] * 9:
                assert await read(key, others) == b"xx"


async def test_bodies_that_trickle_keep_no_other_key_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: bodies that have sent much and then hardly anything more hold their own key's half."""
    monkeypatch.setattr(body, "HELD_BYTES_MAX", 4 * body.SMALL_BYTES)
    size = 2 * body.SMALL_BYTES

    class Trickling(Sent):
        async def stream(self) -> AsyncIterator[bytes]:
            async for part in super().stream():
                yield part
            await asyncio.get_running_loop().create_future()

    bodies = Bodies(32)

    async def read(request: Any, key: str) -> bytes:
        with ExitStack() as ending:
            return await bodies.read(request, bytes_max=10 * size, first_s=30.0, ending=ending, key=key)

    reading = [asyncio.create_task(read(Trickling(size), "a")) for _ in range(18)]
    await asyncio.sleep(0)
    assert sum(task.done() for task in reading) == 16
    assert len(await read(Sent(size), "b")) == size
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}).encode()


class Pool:
    """Workers that do as they are told, or fail like this."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.jobs = 0
        self.askers: list[Asker] = []

    async def run(self, job: Callable[..., Any], *args: Any, asker: Asker, **named: Any) -> Any:
        self.jobs += 1
        self.askers.append(asker)
        if self.error is not None:
            raise self.error
        return job(*args, **named)


def parsed(pool: Any) -> ChatCall:
    given = {"key": "b", "request_id": "r", "tokens_max": 100, "timeout_s": 9.0}
    return asyncio.run(body.parse_body(pool, parse_chat, BODY, {}, **given))


def test_what_is_dear_is_read_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: an ordinary request is read where it came in; where the steps don't suffice there, a worker does all of it,
    and the request is the same."""
    idle, pool = Pool(), Pool()
    here = parsed(idle)
    assert (here.request.tools, idle.jobs) == ((TOOL,), 0)
    monkeypatch.setattr(body, "STEPS_INLINE", 0)
    there = parsed(pool)

    assert pool.jobs == 1
    assert pool.askers == [Asker("b")]
    assert there.request == here.request
    assert [tool.name for tool in there.toolbox.tools] == ["f"]


@pytest.mark.parametrize(
    ("error", "code", "param"),
    [(JobTooLong("it took 9 s"), "invalid_tools", "tools"), (Undone("busy"), "overloaded", None)],
)
def test_a_worker_that_can_not_is_told(monkeypatch, error, code, param) -> None:
    """Law: schemas that take too long are the client's mistake; a worker that is missing isn't."""
    monkeypatch.setattr(body, "STEPS_INLINE", 0)
    refused = refusal_of(parsed, Pool(error))
    assert (refused.code, refused.param) == (code, param)
    assert str(error) in str(refused)
