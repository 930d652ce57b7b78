"""Prompts that begin alike, on the real default model: what is reused changes the time and nothing else."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.prefix import LostPrefix, PrefixChange
from reliability.types import ChatRequest, Started, Usage
from tests.support.mlx_rig import PATIENCE_S, greedy, ready
from tests.support.repository import ROOT
from tests.support.tier_asking import WEATHER_TOOL, answer, eventually, text_of, usage_of

pytestmark = pytest.mark.model

RULES = " ".join(f"Rule {n}: speak of the number {n} only when asked." for n in range(12))
SYSTEM = {"role": "system", "content": f"You are an agent who answers in one short sentence. {RULES}"}
FIRST, SECOND, OTHER = "What is the capital of France?", "And what is the capital of Italy?", "Name three colours."
FEW_TOKENS = 40  # a question, an answer and the template's own words


@pytest.fixture(scope="module")
def tier() -> Iterator[MlxTier]:
    made = ready(model=DEFAULT_SOURCE)
    yield made
    asyncio.run(made.close())


@pytest.fixture(scope="module")
def forgetful() -> Iterator[MlxTier]:
    """The same model with no memory for what was computed before."""
    made = ready(model=DEFAULT_SOURCE, prompt_cache_bytes=0)
    yield made
    asyncio.run(made.close())


def chat(*turns: str, **fields: Any) -> ChatRequest:
    """A conversation whose turns alternate between user and assistant, under the system prompt."""
    said = ({"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns))
    return greedy("", messages=(SYSTEM, *said), **fields)


async def said(tier: MlxTier, request: ChatRequest) -> tuple[str, Usage]:
    events = await answer(tier, request)
    return text_of(events), usage_of(events)


async def test_turns_sessions_and_repeats_reuse_and_say_the_same(tier: MlxTier, forgetful: MlxTier) -> None:
    """Law: the next turn reuses all but the new words, another session the system prompt, a repeat all but one token;
    `cached_tokens` tells it, and each text is what it is without reuse."""
    first, cold = await said(tier, chat(FIRST))
    second, turn = await said(tier, chat(FIRST, first, SECOND))
    other, shared = await said(tier, chat(OTHER))
    again, exact = await said(tier, chat(OTHER))
    assert cold.cached_tokens == 0
    assert cold.prompt_tokens <= turn.cached_tokens < turn.prompt_tokens
    assert cold.prompt_tokens - FEW_TOKENS <= shared.cached_tokens < cold.prompt_tokens
    assert exact.cached_tokens == exact.prompt_tokens - 1
    for text, request in ((first, chat(FIRST)), (second, chat(FIRST, first, SECOND)), (other, chat(OTHER))):
        plain, usage = await said(forgetful, request)
        assert (text, usage.cached_tokens) == (plain, 0)
    assert again == other


async def test_the_second_of_two_at_once_reuses_the_first_ones_system_prompt(tier: MlxTier) -> None:
    """Law: of requests that arrive together under a new system prompt, only the first computes it."""
    asked = [chat(question, tools=(WEATHER_TOOL,)) for question in (FIRST, OTHER)]  # no other test shows it a tool
    (_, first), (_, second) = await asyncio.gather(*(said(tier, one) for one in asked))
    assert first.cached_tokens < first.prompt_tokens / 2
    assert second.cached_tokens > second.prompt_tokens - FEW_TOKENS


def test_peak_memory_stays_under_the_budget() -> None:
    """Law: whatever is asked at once, and whatever is kept for reuse, MLX never holds more than `memory_bytes`."""
    code = f"""
import asyncio, sys
from tests.support.repository import ROOT
from tests.support.mlx_rig import ready
from tests.support.tier_asking import answer, ask
from deployments.models.sources import DEFAULT_SOURCE

budget_bytes = 640 << 20
tier = ready(model=DEFAULT_SOURCE, memory_bytes=budget_bytes)

async def crowd():
    words = [f"{{n}} " * 100 for n in range(4)]
    asked = [ask(text, temperature=0.0, max_tokens=60 if text < "2" else 8, timeout_s={PATIENCE_S}) for text in words]
    ends = await asyncio.gather(*(answer(tier, one) for one in asked))
    status = await tier.status()
    await tier.close()
    return [type(events[-1]).__name__ for events in ends], status.context_tokens

ends, context_tokens = asyncio.run(crowd())
import mlx.core as mx
print(ends == ["Finish"] * 4, mx.get_peak_memory() <= budget_bytes, mx.get_peak_memory() >> 20, context_tokens)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.split()[:2] == ["True", "True"], done.stdout


async def test_what_is_kept_is_let_go_when_memory_is_short(tier: MlxTier) -> None:
    """Law: `trim` leaves nothing that is only kept for reuse, and the next answer is the same, computed anew."""
    request = chat(FIRST)
    before = await said(tier, request)
    tier.trim()
    await eventually(lambda: tier._engine._batch.prompts.memory.nbytes == 0, PATIENCE_S)
    after = await said(tier, request)
    assert after[0] == before[0]
    assert after[1].cached_tokens == 0


READ_TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
ASKED = {"role": "user", "content": "What is the weather in Paris?"}
LATER = ({"role": "assistant", "content": "It rains."}, {"role": "user", "content": "And in Rome?"})


async def turn(tier: MlxTier, messages: list[Any], tools: list[Any], session: str) -> tuple[LostPrefix | None, int]:
    request = greedy("", max_tokens=4, session_id=session, messages=tuple(messages), tools=tuple(tools))
    events = await answer(tier, request)
    (started,) = (event for event in events if isinstance(event, Started))
    return started.lost, usage_of(events).cached_tokens


async def test_permuted_tools_cost_nothing(tier: MlxTier) -> None:
    """Law: the next turn, with its tools in another order, finds all of the first one's prompt; in a session that
    nobody knows the same order is another prompt."""
    lost, _ = await turn(tier, [ASKED], [WEATHER_TOOL, READ_TOOL], "one")
    assert lost is None
    lost, kept = await turn(tier, [ASKED, *LATER], [READ_TOOL, WEATHER_TOOL], "one")
    assert lost is None
    _, other = await turn(tier, [ASKED, *LATER], [READ_TOOL, WEATHER_TOOL], "two")
    assert other < kept


async def test_a_changed_system_prompt_is_told_with_its_place(tier: MlxTier) -> None:
    """Law: what is told as the first token that differs is where the prompt cache ends, too."""
    head = {"role": "system", "content": "You are an agent. Today is Monday."}
    await turn(tier, [head, ASKED], [], "three")
    tuesday = {**head, "content": "You are an agent. Today is Tuesday."}
    lost, cached = await turn(tier, [tuesday, ASKED, *LATER], [], "three")
    assert lost.changes == (PrefixChange.SYSTEM_PROMPT,)
    assert lost.token == cached
