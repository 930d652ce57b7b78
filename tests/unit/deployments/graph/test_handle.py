"""Who leaves a tier's stream stops the tier, at whatever moment of Ray Serve's call.

The response is Ray's own. What stands for Ray here is the replica's side of the call, and the router that picks the
replica: on this event loop, as under `RAY_SERVE_THROUGHPUT_OPTIMIZED`, or on one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any

import pytest
from ray.serve._private.common import RequestMetadata
from ray.serve.handle import DeploymentResponseGenerator

from deployments.graph.handle import _END_S, HandleTier, UnavailableTier
from reliability.types import Event, Failed, Fault, Finish, FinishReason, Started, Text, TierState, TierStatus
from tests.sim.clock import run
from tests.support.tier_asking import answer, ask

BATCHES: list[list[Event]] = [[Started()], [Text("a")], [Finish(reason=FinishReason.STOP)]]


class Call:
    """A call that runs on a replica: it generates until it is cancelled, or has said everything."""

    def __init__(self, *, tidy: bool = True) -> None:
        self.cancels = 0
        self.ended = False
        self.cancelled = asyncio.Event()
        self._tidy = tidy
        self._batches = iter(BATCHES)

    async def __anext__(self) -> list[Event]:
        await asyncio.sleep(0)
        batch = next(self._batches, None)
        if batch is None:
            if not self._tidy:
                await asyncio.Event().wait()
            self.ended = True
            raise StopAsyncIteration
        return batch

    def cancel(self) -> None:
        self.cancels += 1
        self.cancelled.set()


class Handle:
    """The way to a deployment of one replica, which Ray gives out when the test says so."""

    app_name, deployment_name = "app", "t"

    def __init__(self, *, own_loop: bool = False) -> None:
        self.stream = self.status = self.count_tokens = self
        self.assigned: Any = Future() if own_loop else asyncio.get_running_loop().create_future()
        self._own_loop = own_loop

    def options(self, **_: Any) -> Handle:
        return self

    def remote(self, *_: Any) -> DeploymentResponseGenerator[Any]:
        about = RequestMetadata(request_id="r", internal_request_id="i")
        return DeploymentResponseGenerator(self.assigned, about, self._own_loop)


async def read(stream: AsyncIterator[list[Event]], seen: list[Event]) -> None:
    """Read like `deployments.request.attempt.read`: up to the finish."""
    async with aclosing(stream) as batches:
        async for batch in batches:
            seen += batch
            if isinstance(batch[-1], Finish | Failed):
                return


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("own_loop", [False, True])
@pytest.mark.parametrize("after", range(8))
async def test_who_leaves_after_the_call_has_a_replica_stops_it(after: int, own_loop: bool) -> None:
    """Law: however few turns of the loop after Ray has given the call to a replica the reader is cancelled, also in
    the very same one, the call to the replica is cancelled, unless it has said everything."""
    handle, call, seen = Handle(own_loop=own_loop), Call(), list[Event]()
    reading = asyncio.create_task(read(HandleTier("t", handle).stream(ask()), seen))
    await turns(3)
    handle.assigned.set_result(call)
    await turns(after)
    reading.cancel()
    await asyncio.wait({reading})
    assert call.cancels == (not any(isinstance(event, Finish) for event in seen))


@pytest.mark.parametrize("own_loop", [False, True])
async def test_who_leaves_before_the_call_has_a_replica_takes_it_back(own_loop: bool) -> None:
    """Law: a call that still waits for a replica gets none."""
    handle = Handle(own_loop=own_loop)
    reading = asyncio.create_task(read(HandleTier("t", handle).stream(ask()), []))
    await turns(3)
    reading.cancel()
    await asyncio.wait({reading})
    assert handle.assigned.cancelled()


@pytest.mark.parametrize("own_loop", [False, True])
@pytest.mark.parametrize("whole", [False, True])
async def test_a_call_that_has_said_everything_ends_by_itself(own_loop: bool, whole: bool) -> None:
    """Law: whether the reader goes on to the end or no further than the finish, the call comes to its end and is not
    cancelled, which would count as an error of the tier."""
    handle, call, seen = Handle(own_loop=own_loop), Call(), list[Event]()
    handle.assigned.set_result(call)
    stream = HandleTier("t", handle).stream(ask())
    if whole:
        seen = [event async for batch in stream for event in batch]
    else:
        await read(stream, seen)
    assert seen == [event for batch in BATCHES for event in batch]
    await turns(5)
    assert call.ended
    assert call.cancels == 0


@pytest.mark.parametrize("own_loop", [False, True])
def test_a_tier_that_hangs_in_its_clean_up_is_cancelled(own_loop: bool) -> None:
    """Law: a reader that goes no further than the finish leaves no call open for longer than `_END_S`, and waits for
    nothing itself."""

    async def main() -> None:
        handle, call, seen = Handle(own_loop=own_loop), Call(tidy=False), list[Event]()
        handle.assigned.set_result(call)
        await read(HandleTier("t", handle).stream(ask()), seen)
        before_s = asyncio.get_running_loop().time()
        assert isinstance(seen[-1], Finish)
        await call.cancelled.wait()
        assert _END_S - 0.1 <= asyncio.get_running_loop().time() - before_s <= _END_S + 0.1

    run(main())


@pytest.mark.parametrize("own_loop", [False, True])
async def test_a_call_that_gets_no_replica_is_a_failure(own_loop: bool) -> None:
    """Law: where the router fails there is nothing to cancel, and the reader is told."""
    handle, seen = Handle(own_loop=own_loop), list[Event]()
    handle.assigned.set_exception(RuntimeError("no replica"))
    await read(HandleTier("t", handle).stream(ask()), seen)
    assert [event.fault for event in seen if isinstance(event, Failed)] == [Fault.SERVER_ERROR]


async def test_another_ray_is_only_asked_to_cancel() -> None:
    """Law: where Ray keeps nothing of what is looked at here, its own `cancel` is all that is called."""

    class Response:
        cancels = 0

        def __aiter__(self) -> Response:
            return self

        async def __anext__(self) -> list[Event]:
            return [Started()]

        def cancel(self) -> None:
            self.cancels += 1

    handle, response = Handle(), Response()
    handle.remote = lambda *_: response
    stream = HandleTier("t", handle).stream(ask())
    assert await anext(stream) == [Started()]
    await stream.aclose()
    assert response.cancels == 1


def test_it_refuses_with_its_reason() -> None:
    """Law: its status and its answers say why it isn't there, and an answer is nothing but that, so the chain goes
    on."""
    tier = UnavailableTier(
        TierStatus(name="big", kind="mlx", state=TierState.UNAVAILABLE, reason="50 bytes needed, 12 are there")
    )
    status = asyncio.run(tier.status())
    (failed,) = asyncio.run(answer(tier, ask()))

    assert (status.name, status.kind, status.state) == ("big", "mlx", TierState.UNAVAILABLE)
    assert status.reason == "50 bytes needed, 12 are there"
    assert failed.fault is Fault.UNAVAILABLE
    assert failed.message == "tier big is unavailable: 50 bytes needed, 12 are there"
