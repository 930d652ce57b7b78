"""The engine as it serves: a tier that is asked by one or several clients at once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from deployments.evaluate.asking.speed_run import WORDS
from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.bare_loop import DECODE_TOKENS, QUESTION, Moment, Speed, take_moment
from reliability.types import ChatRequest, Text, TierState

PATIENCE_S = 3600.0


def request(*turns: str, system: str | None = None, max_tokens: int = DECODE_TOKENS) -> ChatRequest:
    """Build a conversation of alternating turns, greedy."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]
    head = [{"role": "system", "content": system}] if system else []
    return ChatRequest(
        request_id="bench",
        session_id="bench",
        messages=(*head, *messages),
        max_tokens=max_tokens,
        timeout_s=PATIENCE_S,
        temperature=0.0,
    )


def write_prompt(tokens: int, seed: int) -> str:
    """Write a text of about so many tokens; another seed begins otherwise, so that no cache helps."""
    return f"{seed} " + " ".join(WORDS[(seed + i) % len(WORDS)] for i in range(tokens))


def load_tier(**options: Any) -> MlxTier:
    """Start a tier with the default model, and wait until it has loaded."""
    return asyncio.run(start_tier(DEFAULT_SOURCE, **options))


async def start_tier(model: str, name: str = "bench", **options: Any) -> MlxTier:
    """Start a tier, and wait until it has loaded its model."""
    tier = MlxTier(name=name, model=model, **options)
    status = await tier.wait_for_load(PATIENCE_S)
    assert status.state is TierState.READY, status
    return tier


async def decode_by_tier(tier: MlxTier, count: int) -> Speed:
    """Measure the same of the tier, as its clients see it: each piece is counted when it arrives on the event loop."""
    began: set[int] = set()
    seen: list[Moment] = []

    async def read(number: int) -> None:
        async with aclosing(tier.stream(request(QUESTION))) as stream:
            async for events in stream:
                if any(isinstance(event, Text) for event in events):
                    began.add(number)
                sequences = list(tier._engine._batch._sequences.values())  # type: ignore[union-attr]
                if len(began) == len(sequences) == count:
                    seen.append(take_moment(sum(len(sequence.tokens) for sequence in sequences)))

    await asyncio.gather(*(read(number) for number in range(count)))
    return Speed.between(seen)
