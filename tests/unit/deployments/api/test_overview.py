"""The picture of this moment: complete, bounded, made once for all who ask, and honest where somebody is away."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api import overview
from deployments.api.overview import Overview, _sum_up
from deployments.request.accounting import Accounting
from tests.support.room_rig import Rig, attempt
from tests.support.run_values import request_of, run_of
from tests.support.staging import staged

NUMBERS = ("requests", "answered", "escalated", "mended", "looped", "prompt_tokens", "completion_tokens")


def play(folder: Path, work: Callable[[Overview, Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig(folder)
        await rig.overview.state.start()
        await rig.overview.watch.ask()
        await work(rig.overview, rig)
        await rig.overview.state.close()

    asyncio.run(main())


in_the_room = staged(play, "tmp_path", parts=2)


async def turn() -> None:
    """Let the others do what they have to do."""
    for _ in range(20):
        await asyncio.sleep(0)


@in_the_room
async def test_every_tier_is_told_in_the_order_of_the_chain(seen, rig):
    """With its state, its breaker and what runs at it."""
    rig.stopping._running = [SimpleNamespace(run=run) for run in runs()]  # type: ignore[assignment]
    now = await seen.take()
    tiers = {tier["name"]: tier for tier in now["tiers"]}
    assert list(tiers) == ["fast", "standard", "premium"]
    assert (tiers["fast"]["asked"], tiers["fast"]["writing"]) == (2, 1)
    assert (tiers["premium"]["cloud"], tiers["premium"]["asked"]) == (True, 0)
    assert {tier["state"] for tier in now["tiers"]} == {"ready"}
    assert [row["request_id"] for row in now["running"]] == ["a", "b"]


def runs() -> list[Any]:
    """One that waits for its first word, and one that writes."""
    waits = run_of(request_of("hi", request_id="a"), tier="fast")
    writes = run_of(request_of("hi", request_id="b"), tier="fast", deadline_ns=1)
    spending = Accounting(prompt_bytes=0, output_cap=9, prompt_most=int, progress=None, counted=None, written_bytes=28)
    writes.current = SimpleNamespace(ttft_ns=1, end=None, spending=spending, prefilling=None)  # type: ignore[assignment]
    return [waits, writes]


@in_the_room
async def test_what_ended_comes_once_and_the_newest_first(seen, rig):
    """Those from before somebody looked, too, and never more than `FINISHED_MAX`."""
    for n in range(3):
        rig.finish(f"r{n}")
    assert [one["request_id"] for one in (await seen.take())["finished"]] == ["r2", "r1", "r0"]
    for n in range(3, overview.FINISHED_MAX + 3):
        rig.finish(f"r{n}")
    seen.forget()
    found = [one["request_id"] for one in (await seen.take())["finished"]]
    assert found == [f"r{n}" for n in range(overview.FINISHED_MAX + 2, 2, -1)]


@in_the_room
async def test_who_asks_at_once_is_answered_once(seen, rig):
    """A hundred who ask together cost one look; what an order has changed is seen at the next."""
    first = await asyncio.gather(*(seen.take() for _ in range(100)))
    assert all(one is first[0] for one in first)
    seen.forget()
    assert await seen.take() is not first[0]


@in_the_room
async def test_the_hour_s_figures_are_those_of_its_requests(seen, rig):
    """Cached tokens as a share of all prompts, by the tier that a request ended at."""
    rig.finish("r", attempts=[attempt()])
    fast, standard, _ = (await seen.take())["tiers"]
    assert (fast["cached_share"], fast["requests_hour"]) == (0.6, 1)
    assert (standard["cached_share"], standard["requests_hour"]) == (None, 0)
    assert (await seen.take_day())["requests"] == 1


@in_the_room
async def test_an_actor_that_is_away_is_said_and_the_rest_is_shown(seen, rig):
    """The tiers are known from elsewhere."""
    rig.here.away = True
    now = await seen.take()
    assert now["state_actor"] == "away"
    assert len(now["tiers"]) == 3


@pytest.mark.parametrize(("replicas", "shared"), [(1, False), (2, True)])
@in_the_room
async def test_what_runs_is_shared_only_with_others_who_look(seen, rig, monkeypatch, replicas, shared):
    """Where this Router is the only one there is nobody to share it with, and where nobody looks nothing is sent."""
    monkeypatch.setattr(overview, "SHARE_S", 0.0)
    sent: list[Any] = []

    async def take(rows: Any) -> None:
        sent.append(rows)

    seen.state.share_running = take  # type: ignore[method-assign]
    server = rig.config.server.model_copy(update={"router_replicas": replicas})
    rig.config = rig.config.model_copy(update={"server": server})
    sharing = asyncio.create_task(seen.share_on())
    await turn()
    assert sent == []
    seen.state.watched = True
    await turn()
    sharing.cancel()
    assert bool(sent) is shared


@given(st.lists(st.fixed_dictionaries({name: st.integers(0, 99) for name in (*NUMBERS, "cached_tokens")}), max_size=4))
def test_a_day_is_the_sum_of_its_tiers(rows):
    """Every figure; a cost that nobody knows is none, and not nothing."""
    tiers = [row | {"tier": str(n), "cost_usd": None} for n, row in enumerate(rows)]
    day = _sum_up({"tiers": tiers, "incidents": {"loop": 1}})

    assert all(day[name] == sum(row[name] for row in rows) for name in NUMBERS)
    assert day["cost_usd"] is None
    assert _sum_up({"tiers": [row | {"cost_usd": 0.5} for row in tiers], "incidents": {}})["cost_usd"] == (
        0.5 * len(rows) if rows else None
    )
