"""The effects of the keys of an engine, on a real model of a few kilobytes."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from deployments.app import _share_cores
from deployments.config.app_config import AppConfig, load
from deployments.graph.replica import make_tier
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.prompt_cache import prompt_cache
from reliability.types import TierState
from tests.support import tiny_model as tiny
from tests.support.small_config import BASE, config_of
from tests.support.tier_asking import answer, ask, usage_of

PATIENCE_S = 60.0
BLOCK = 16
T = TypeVar("T")


def play_tiny(play: Callable[[MlxTier], Awaitable[T]], **keys: Any) -> T:
    """What a play with a tier with these keys returns, once the tier has loaded the tiny model."""

    async def go(tier: MlxTier) -> T:
        await tier.wait_for_load(PATIENCE_S)
        try:
            return await play(tier)
        finally:
            await tier.close()

    with tempfile.TemporaryDirectory() as parent:
        model = f"path:{tiny.write_folder(Path(parent) / 'tiny')}"
        raw = {"kind": "mlx", "model": model, "prompt_cache_disk_bytes": 0, **keys}
        return asyncio.run(go(made(load({**BASE, "tiers": {**BASE["tiers"], "m": raw}}))))


async def count_reused(tier: MlxTier) -> int:
    """How much of a repeated prompt it reuses."""
    events = [await answer(tier, ask("Hello, hello.", max_tokens=2)) for _ in range(2)]
    return usage_of(events[1]).cached_tokens


def made(config: AppConfig) -> MlxTier:
    tier = make_tier("m", config.tiers["m"], config.reliability.escalation.cloud_fallback)
    assert isinstance(tier, MlxTier)
    return tier


def memory_bytes() -> None:
    """Too little for the model: unavailable, with the numbers; enough for a part of the context: that much context."""
    starved = play_tiny(MlxTier.status, memory_bytes=1 << 20)
    assert starved.state is TierState.UNAVAILABLE
    assert "too little memory: of a budget of 1 MiB" in starved.reason
    ample = play_tiny(MlxTier.status, memory_bytes=1 << 30)
    assert (ample.state, ample.context_tokens) == (TierState.READY, tiny.CONTEXT)


def prompt_cache_shared() -> None:
    """Off, one API key reuses nothing of another's prompt and all of its own; on, whole blocks of any key's."""
    with patch.object(prompt_cache, "_BLOCK_TOKENS", BLOCK):
        other, own = play_tiny(reuse_by_keys)
        assert other == 0
        assert own > 2 * BLOCK
        assert play_tiny(reuse_by_keys, prompt_cache_shared=True) == (own // BLOCK * BLOCK, own // BLOCK * BLOCK)


async def reuse_by_keys(tier: MlxTier) -> tuple[int, int]:
    """How many tokens of a prompt another key reuses, and then its own."""
    asked = ask("Hello, hello. " * 5, max_tokens=1)
    _, other, own = [usage_of(await answer(tier, replace(asked, key=key))).cached_tokens for key in "aba"]
    return other, own


def adapter() -> None:
    """A folder that isn't there: the tier says so. What a real one does is shown in test_artifact.py."""
    status = play_tiny(MlxTier.status, adapter="nowhere/at-all")
    assert (status.state, status.reason) == (TierState.UNAVAILABLE, "adapter at-all: there is no such folder")


def prompt_cache_bytes() -> None:
    """Nothing may be kept: nothing is reused."""
    assert play_tiny(count_reused, prompt_cache_bytes=0) == 0
    assert play_tiny(count_reused) > 0


def prompt_cache_disk_bytes() -> None:
    """What it does is shown in test_prompt_store_restart.py; here, that the engine gets it, and that it is on where
    nobody says otherwise."""
    for given, expected in ((7, 7), (0, 0), (None, None)):
        tier = made(config_of("tiers.m.prompt_cache_disk_bytes", given))
        told = tier._engine._prepare.keywords
        assert (told["prompt_disk"].name, told["prompt_disk_bytes"]) == ("prompts", expected)
        asyncio.run(tier.close())


def max_reasoning_tokens() -> None:
    """What it does is shown in tests/unit/deployments/tiers/mlx/test_engine.py; here, that the engine gets it."""
    tier = made(config_of("tiers.m.max_reasoning_tokens", 77))
    assert tier._begin_jobs.keywords["reasoning_tokens_max"] == 77
    asyncio.run(tier.close())


def blas_threads() -> None:
    """A tier hands them to what computes its steps; without the key the cores are shared out."""
    tier = made(config_of("tiers.m.blas_threads", 3))
    assert tier._blas_threads == 3
    asyncio.run(tier.close())
    three = load({**BASE, "tiers": {**BASE["tiers"], **{n: {"kind": "mlx"} for n in ("a", "b", "c")}}})
    assert [_share_cores(three, cores) for cores in (1, 2, 16)] == [1, 1, 4]
