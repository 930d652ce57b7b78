"""The Unix socket of the state actor: a real one, with the same answers as any other way."""

from __future__ import annotations

import asyncio
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.state.link import Link
from deployments.state.unix_socket import FRAME_BYTES_MAX, SocketActor, StepListener
from reliability.admission.admit import Grant
from tests.support.incarnations import ask, life, settled, tight


class Far:
    """What Ray would be: it says what it was asked."""

    async def call(self, method: str, *args: Any) -> Any:
        return method, args

    def close(self) -> None:
        pass


@contextmanager
def door(step: Any) -> Iterator[str]:
    """The path of a door that answers by `step`; short, as sockets need it."""
    with TemporaryDirectory(prefix="ms-", dir="/tmp") as folder:
        opened = StepListener(Path(folder) / "s", step)
        try:
            yield str(opened.path)
        finally:
            opened.close()


values = st.recursive(st.none() | st.integers() | st.text() | st.binary(max_size=50_000), st.lists, max_leaves=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=5))
def test_what_is_asked_is_answered_in_order(asked):
    """Every value comes over whole, one call after another on one connection; what is no step goes the far way."""

    async def go(path: str) -> list[Any]:
        actor = SocketActor(Far(), path)
        answers = [await actor.call("step", *args) for args in asked]
        assert await actor.call("budget", 1) == ("budget", (1,))
        actor.close()
        return answers

    with door(lambda first, second: [second, first]) as path:
        assert asyncio.run(go(path)) == [[second, first] for first, second in asked]


def test_an_exception_comes_over_and_the_connection_stays():
    """The caller gets what the method raised, and its next call is answered."""

    def step(value: int) -> int:
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value

    async def go(path: str) -> int:
        actor = SocketActor(Far(), path)
        with pytest.raises(ValueError, match="-1 is negative"):
            await actor.call("step", -1)
        return await actor.call("step", 2)

    with door(step) as path:
        assert asyncio.run(go(path)) == 2


def test_an_answer_that_nobody_waits_for_is_no_others():
    """A call that is cancelled takes its connection along: the next one gets its own answer."""
    begun, go_on = Event(), Event()

    def step(value: int) -> int:
        if value == 1:
            begun.set()
            go_on.wait(10)
        return value

    async def go(path: str) -> int:
        actor = SocketActor(Far(), path)
        late = asyncio.create_task(actor.call("step", 1))
        await asyncio.to_thread(begun.wait, 10)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        answer = await actor.call("step", 2)
        go_on.set()
        return answer

    with door(step) as path:
        assert asyncio.run(go(path)) == 2


def test_who_is_gone_is_an_error_at_once():
    """Neither a door that is closed nor one that never was lets a caller wait."""

    async def go(path: str) -> None:
        with pytest.raises((OSError, EOFError)):
            await SocketActor(Far(), path).call("step", 1)

    with door(lambda value: value) as path:
        pass
    asyncio.run(go(path))
    asyncio.run(go(path + "-never"))


def test_only_the_owner_may_enter_and_an_old_socket_gives_way():
    """Whoever connects may run code here. A path that is left of an earlier life is taken over."""
    with TemporaryDirectory(prefix="ms-", dir="/tmp") as folder:
        path = Path(folder) / "s"
        first, second = StepListener(path, lambda: 1), StepListener(path, lambda: 2)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert asyncio.run(SocketActor(Far(), str(path)).call("step")) == 2
        first.close()
        second.close()


def test_a_frame_has_a_bound():
    """Who announces more than that is shown out before anything is read."""
    with door(lambda: 1) as path, socket.socket(socket.AF_UNIX) as router:
        router.settimeout(10)
        router.connect(path)
        router.sendall(struct.pack(">I", FRAME_BYTES_MAX + 1))
        assert router.recv(1) == b""


def test_a_link_works_over_it_beside_other_calls(tmp_path):
    """Two Routers near and questions from elsewhere at once: each ask gets its grant, and the books are those of one
    after another."""

    async def go(path: str, actor: Any) -> None:
        links = [Link(lambda: found(path), tight(10**6)) for _ in range(2)]
        for link in links:
            await link.start(10.0)

        async def one(link: Link) -> None:
            answer = await link.admit(ask())
            assert isinstance(answer.decision, Grant)
            await asyncio.to_thread(actor.budget, "k", "s")
            link.put(settled(answer.decision, 7), flush=True)

        await asyncio.gather(*(one(link) for link in links for _ in range(100)))
        for link in links:
            await link.close()

    async def found(path: str) -> SocketActor:
        return SocketActor(Far(), path)

    actor = life(tmp_path)
    with door(actor.step) as path:
        asyncio.run(go(path, actor))

    assert actor.stats()["grants"] == 0
    assert actor.budget("k", "s")["spent_tokens"] == 200 * 7
