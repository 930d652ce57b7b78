"""A tier `mlx` that is closed while requests are on their way: each of them is told so, wherever it was."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deployments.tiers.mlx import engine as engine_module
from deployments.tiers.mlx import mlx_tier as mlx_tier_module
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.sequence import EngineJob
from reliability.types import Event, Failed, Fault, Finish, Started
from tests.support.engine_rig import PROMPT, Rig, fault_of
from tests.support.mlx_rig import PATIENCE_S, greedy, ready
from tests.support.tier_asking import answer, eventually


@pytest.fixture
def tier(folder: Path) -> Iterator[MlxTier]:
    made = ready(model=f"path:{folder}")
    yield made
    asyncio.run(made.close())


def job_for(sink: Callable[[list[Event]], None]) -> EngineJob:
    return EngineJob(prompt=PROMPT, max_tokens=9, sink=sink)


class Busy:
    """The helper thread of a tier, with something else to do until it is let go."""

    def __init__(self, tier: MlxTier) -> None:
        self._tier, self._free = tier, threading.Event()
        tier._renderer.submit(self._free.wait, PATIENCE_S)

    async def asked(self) -> asyncio.Task[list[Event]]:
        task = asyncio.create_task(answer(self._tier, greedy("Hi")))
        await eventually(lambda: self._tier._renderer._work_queue.qsize() == 1, PATIENCE_S)
        return task

    def let_go(self) -> None:
        self._free.set()


def test_a_job_for_an_engine_that_has_ended_is_answered_at_once(rig: Rig) -> None:
    """Law: nobody waits for a thread that isn't there any more."""
    rig.engine.close()
    _, out = rig.ask()

    assert fault_of(out.get_nowait()) is Fault.UNAVAILABLE
    assert out.empty()


def test_a_job_that_comes_while_the_engine_ends_is_answered(folder: Path) -> None:
    """Law: between the thread's last look into its inbox and its end nothing is lost, and nobody is answered twice."""
    rig, late = Rig(folder), queue.SimpleQueue[list[Event]]()

    def told(events: list[Event]) -> None:
        if isinstance(events[-1], Failed):  # by the engine that ends, on its thread
            rig.engine.submit(job_for(late.put))

    rig.model.moving.clear()
    rig.engine.submit(job_for(told))
    assert rig.model.reached.wait(PATIENCE_S)
    closing = threading.Thread(target=rig.engine.close)
    closing.start()
    assert rig.engine._closed.wait(PATIENCE_S)
    rig.model.moving.set()
    closing.join(PATIENCE_S)

    assert fault_of(late.get(timeout=PATIENCE_S)) is Fault.UNAVAILABLE
    rig.ask()
    assert late.empty()


async def test_a_request_whose_prompt_waits_is_told(tier: MlxTier) -> None:
    """Law: a prompt that isn't rendered any more ends its request with `unavailable`, and no exception."""
    busy = Busy(tier)
    task = await busy.asked()
    await tier.close()
    busy.let_go()
    failed = (await task)[-1]
    assert isinstance(failed, Failed)
    assert (failed.fault, failed.message) == (Fault.UNAVAILABLE, "tier fast is unavailable: it is closed")
    assert tier._open == 0


async def test_a_request_whose_engine_ends_while_its_prompt_is_rendered_is_told(tier: MlxTier) -> None:
    """Law: between the look at the engine and the job for it the engine may end."""
    busy = Busy(tier)
    task = await busy.asked()
    await asyncio.to_thread(tier._engine.close)
    busy.let_go()
    assert fault_of(await asyncio.wait_for(task, PATIENCE_S)) is Fault.UNAVAILABLE
    assert tier._open == 0


@pytest.mark.parametrize("patience_s", [0.0, PATIENCE_S])
async def test_a_long_prompt_is_taken_before_it_is_rendered(
    tier: MlxTier, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    """Law: a prompt that takes long, or waits for others, is said to be taken all the same, once: its request doesn't
    look like one that no replica has taken. A short one is said to be when it is rendered."""
    monkeypatch.setattr(mlx_tier_module, "_TAKEN_S", patience_s)
    busy, stream = Busy(tier), tier.stream(greedy("Hi"))
    first = asyncio.create_task(anext(stream))
    await eventually(lambda: first.done() or patience_s > 0, PATIENCE_S)
    assert first.done() is (patience_s == 0)
    busy.let_go()
    events = [*await first, *[event async for batch in stream for event in batch]]
    assert [type(event) is Started for event in events] == [True] + [False] * (len(events) - 1)
    assert isinstance(events[-1], Finish)


def test_a_request_to_a_tier_whose_engine_doesnt_end_is_told(tier: MlxTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a tier is closed even where its engine stands still."""
    monkeypatch.setattr(engine_module, "_CLOSE_S", 0.01)
    moving, reached = threading.Event(), threading.Event()

    def standing(_: list[Event]) -> None:
        reached.set()
        assert moving.wait(PATIENCE_S)

    tier._engine.submit(job_for(standing))
    assert reached.wait(PATIENCE_S)
    try:
        asyncio.run(tier.close())
        assert fault_of(asyncio.run(answer(tier, greedy("Hi")))) is Fault.UNAVAILABLE
    finally:
        moving.set()


@pytest.mark.parametrize("closing", [False, True])
async def test_a_reader_that_is_cancelled_is_cancelled(tier: MlxTier, closing: bool) -> None:
    """Law: a reader that leaves while its prompt waits sees its own cancellation, whether the tier is closed then or
    not, and its prompt isn't rendered any more."""
    busy = Busy(tier)
    task = await busy.asked()
    if closing:
        tier._renderer.shutdown(wait=False, cancel_futures=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = tier._renderer._work_queue.get_nowait()
    assert left is None or left.future.cancelled()
    busy.let_go()
    assert tier._open == 0
