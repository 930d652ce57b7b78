"""A tier with the real default model, and questions to it."""

import asyncio
from typing import Any

from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import TierState
from tests.support.tier_asking import answer, ask, text_of

PATIENCE_S = 300.0
NEVER_TWICE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
QUESTIONS = ["What is the capital of France?", "Name three colours.", "Count from one to five.", "Say hello."]


def ready(**options: Any) -> MlxTier:
    """A tier that has loaded its model."""
    tier = MlxTier(name="fast", **options)
    status = asyncio.run(tier.wait_for_load(PATIENCE_S))
    assert status.state is TierState.READY, status
    return tier


def greedy(text: str, **fields: Any) -> Any:
    return ask(text, **{"temperature": 0.0, "max_tokens": 24, "timeout_s": PATIENCE_S, **fields})


async def texts(tier: MlxTier, questions: list[str]) -> list[str]:
    """The answers, asked for at the same moment."""
    return [text_of(events) for events in await asyncio.gather(*(answer(tier, greedy(q)) for q in questions))]


def running(tier: MlxTier) -> int:
    return len(tier._engine._batch or ())
