"""A session's turns on the real default model: what they share is computed once, and what they lose is told."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.prefix import LostPrefix, PrefixChange
from reliability.types import Started
from tests.support.mlx_rig import PATIENCE_S, ready
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, usage_of

pytestmark = pytest.mark.model

READ_TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
ASKED = {"role": "user", "content": "What is the weather in Paris?"}
LATER = ({"role": "assistant", "content": "It rains."}, {"role": "user", "content": "And in Rome?"})


@pytest.fixture(scope="module")
def tier() -> Iterator[MlxTier]:
    made = ready(model=DEFAULT_SOURCE)
    yield made
    asyncio.run(made.close())


async def turn(
    tier: MlxTier, messages: Sequence[Any], tools: Sequence[Any], session: str
) -> tuple[LostPrefix | None, int]:
    fields = {"temperature": 0.0, "max_tokens": 4, "timeout_s": PATIENCE_S, "session_id": session}
    events = await answer(tier, replace(ask(**fields), messages=tuple(messages), tools=tuple(tools)))
    (started,) = (event for event in events if isinstance(event, Started))
    return started.lost, usage_of(events).cached_tokens


def test_permuted_tools_cost_nothing(tier: MlxTier) -> None:
    """Law: the next turn, with its tools in another order, finds all of the first one's prompt; in a session that
    nobody knows the same order is another prompt."""

    async def talk() -> None:
        lost, _ = await turn(tier, [ASKED], [WEATHER_TOOL, READ_TOOL], "one")
        assert lost is None
        lost, kept = await turn(tier, [ASKED, *LATER], [READ_TOOL, WEATHER_TOOL], "one")
        assert lost is None
        _, other = await turn(tier, [ASKED, *LATER], [READ_TOOL, WEATHER_TOOL], "two")
        assert other < kept

    asyncio.run(talk())


def test_a_changed_system_prompt_is_told_with_its_place(tier: MlxTier) -> None:
    """Law: what is told as the first token that differs is where the prompt cache ends, too."""

    async def talk() -> None:
        head = {"role": "system", "content": "You are an agent. Today is Monday."}
        await turn(tier, [head, ASKED], [], "three")
        tuesday = {**head, "content": "You are an agent. Today is Tuesday."}
        lost, cached = await turn(tier, [tuesday, ASKED, *LATER], [], "three")
        assert lost is not None
        assert lost.changes == (PrefixChange.SYSTEM_PROMPT,)
        assert lost.token == cached

    asyncio.run(talk())
