"""A tier with the real default model, and questions to it."""

import asyncio
from typing import Any

from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import TierState
from tests.support.tier_asking import ask

PATIENCE_S = 300.0


def ready(**options: Any) -> MlxTier:
    tier = MlxTier(name="fast", **options)
    status = asyncio.run(tier.wait_for_load(PATIENCE_S))
    assert status.state is TierState.READY, status
    return tier


def greedy(text: str, **fields: Any) -> Any:
    return ask(text, **{"temperature": 0.0, "max_tokens": 24, "timeout_s": PATIENCE_S, **fields})


def running(tier: MlxTier) -> int:
    return len(tier._engine._batch or ())
