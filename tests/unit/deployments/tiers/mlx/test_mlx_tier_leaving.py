"""Clients of the real default model that leave: their place is free, and their neighbours notice nothing."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest

from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.scheduler import Scheduler
from reliability.types import Started, Text
from tests.support.mlx_rig import PATIENCE_S, greedy, running
from tests.support.tier_asking import eventually


@pytest.mark.model
class TestLeaving:
    def test_the_slot_is_free_within_one_step(self, tier: MlxTier) -> None:
        """Law: from the moment that a stream is closed to the free slot passes at most the step under way and the next,
        and 100 ms."""

        async def scene() -> tuple[float, float]:
            steps: list[float] = []
            async with aclosing(tier.stream(greedy("Tell a long story.", max_tokens=2000))) as stream:
                began_s = time.monotonic()
                async for chunk in stream:
                    if any(isinstance(event, Text) for event in chunk):
                        steps.append(time.monotonic() - began_s)
                    if len(steps) > 8:
                        break
                    began_s = time.monotonic()
                left_s = time.monotonic()
            await eventually(lambda: running(tier) == 0, 5.0)
            return time.monotonic() - left_s, max(steps)

        free_s, step_s = asyncio.run(scene())
        assert free_s <= 2 * step_s + 0.1

    def test_leaving_during_prefill_is_noticed(self, tier: MlxTier, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: a long prompt doesn't keep its slot: leaving in the middle of it frees the slot after the step under
        way, at most one more that had begun meanwhile."""
        steps = 0
        step = Scheduler.step

        def counted(self: Scheduler) -> int:
            nonlocal steps
            steps += 1
            return step(self)

        monkeypatch.setattr(Scheduler, "step", counted)

        async def scene() -> int:
            async with aclosing(tier.stream(greedy("word " * 3000))) as stream:
                assert [type(event) for event in await anext(stream)] == [Started]
                await eventually(lambda: running(tier) == 1 and steps > 0, PATIENCE_S)
            left = steps
            await eventually(lambda: running(tier) == 0, PATIENCE_S)
            return steps - left

        assert asyncio.run(scene()) <= 1
