"""How a Router replica stops: what runs may end, the rest is cut in words, and a client's leaving stays one."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.api.exchange import _insert_silences
from deployments.app.stopping import _CUT_S, _LAST_BYTES_S, Stopping
from deployments.config.tier_config import Timeouts
from deployments.errors import from_refusal
from deployments.request.drive import drive
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import RefuseCode, Text
from tests.sim.clock import VirtualClock
from tests.sim.clock import run as play
from tests.support.driving import make_ports, make_run

SLOW = Timeouts(connect_s=5, first_token_s=600, idle_s=600, total_s=3000)
WORDS = ["alpha ", "beta ", "gamma ", "delta ", "epsilon ", "zeta ", "eta "]
DRAIN_S = 4.0


class Served:
    """One request as a Router runs it. `lengths`: so many words, each after `gap_s`; with `streamed` through the task
    that reads for a stream."""

    def __init__(self, stopping: Stopping, clock: VirtualClock, count: int, gap_s: float, streamed: bool) -> None:
        self.run: Run = make_run(("fast",), clock)  # type: ignore[arg-type]
        self.run.deadline_ns = clock.now_ns() + int(3000e9)
        self.whole = "".join(WORDS[:count])
        self.text = ""
        script = [{"answer": [{"text": word, "delay_s": gap_s} for word in WORDS[:count]]}]
        self.tier = ScriptedTier(name="fast", script=script)
        self.ports: Ports = make_ports({"fast": self.tier}, clock)  # type: ignore[arg-type]
        self.ports.timeouts["fast"] = SLOW  # type: ignore[index]
        batches = stopping.pass_on(self.run, drive(self.run, self.ports))
        self.batches: Any = _insert_silences(batches, 1.0) if streamed else batches
        self.ended_s = 0.0

    async def read(self) -> None:
        """Read it to its end, and close it, as the Router does."""
        try:
            async for batch in self.batches:
                self.text += "".join(event.text for event in batch or () if isinstance(event, Text))
        finally:
            await self.batches.aclose()
            self.ended_s = asyncio.get_running_loop().time()


requests = st.lists(
    st.tuples(
        st.integers(1, len(WORDS)),
        st.sampled_from([0.0, 0.05, 0.7, 3.0, 40.0]),
        st.booleans(),
        st.none() | st.floats(0, 8),
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(requests, st.floats(0.01, 5))
def test_every_request_ends_whole_or_in_words(drawn, stop_at_s):
    """Whatever runs when the server stops: each request is answered whole, or refused with `server_stopping` and has a
    beginning of its answer; one that is done in time is whole; who left, left; no grant and no tier stays open; and the
    drain takes no longer than its bound."""

    async def go() -> None:
        stopping, clock = Stopping(), VirtualClock()
        served = [Served(stopping, clock, count, gap_s, streamed) for count, gap_s, streamed, _ in drawn]
        tasks = [asyncio.create_task(one.read()) for one in served]
        loop = asyncio.get_running_loop()
        for task, (*_, leaves_s) in zip(tasks, drawn, strict=True):
            if leaves_s is not None:
                loop.call_later(leaves_s, task.cancel)
        await asyncio.sleep(stop_at_s)
        began_s = loop.time()
        cut = await stopping.drain(DRAIN_S)
        assert loop.time() - began_s <= DRAIN_S + _CUT_S + _LAST_BYTES_S + 1e-6
        assert not stopping._running
        results = await asyncio.gather(*tasks, return_exceptions=True)
        refused = 0
        for one, result, (count, gap_s, _, leaves_s) in zip(served, results, drawn, strict=True):
            assert one.tier.active == 0
            assert one.ports.admission.state.grants.count == 0  # type: ignore[union-attr]
            if isinstance(result, asyncio.CancelledError):
                assert leaves_s is not None
                assert one.whole.startswith(one.text)
            elif one.run.finish is not None:
                assert result is None
                assert one.text == one.whole
            else:
                assert one.run.refusal.code is RefuseCode.STOPPING
                assert one.whole.startswith(one.text)
                assert count * gap_s > stop_at_s + DRAIN_S - 1e-6
                refused += 1
        assert refused <= cut

    play(go())


@given(st.booleans())
def test_nothing_new_is_taken(streamed):
    """A request that comes when the server stops is refused with a status that agents try again, and the time to wait:
    no tier is asked."""

    async def go() -> Served:
        stopping = Stopping()
        assert stopping.begin() == 0
        one = Served(stopping, VirtualClock(), 3, 0.1, streamed)
        await one.read()
        return one

    one = play(go())
    error = from_refusal(one.run.refusal)

    assert one.text == ""
    assert one.run.attempts == []
    assert (error.code, error.status) == ("server_stopping", 503)
    assert int(error.headers()["retry-after"]) > 0
    assert "x-should-retry" not in error.headers()


def test_a_client_that_leaves_at_the_cut_has_left():
    """Where both come in one turn of the loop, the client's cancellation is not swallowed."""

    async def go() -> None:
        stopping = Stopping()
        one = Served(stopping, VirtualClock(), 3, 40.0, False)
        task = asyncio.create_task(one.read())
        await asyncio.sleep(1)
        stopping.cut()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not stopping._running

    play(go())
