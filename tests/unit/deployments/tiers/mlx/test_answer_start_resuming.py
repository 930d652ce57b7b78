"""An answer that was begun elsewhere is gone on with, to the letter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.answer_start import Resumed, resume
from deployments.tiers.mlx.grammar.vocabulary import Speller, Vocabulary
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.thinking import ReasoningMarks
from reliability.tools.format_reasoning import Thought
from reliability.types import Event, Failed, Finish, Text
from tests.support.mlx_rig import greedy
from tests.support.tier_asking import answer

pytestmark = pytest.mark.model
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "n",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}, "country": {"type": "string", "maxLength": 40}},
            "required": ["city", "country"],
            "additionalProperties": False,
        },
    },
}
ASKED = {
    "prose": greedy("Tell me about Paris.", max_tokens=40),
    "code": greedy("Write a Python function that adds two numbers.", max_tokens=48),
    "letters": greedy("Repeat: Zażółć gęślą jaźń 日本語 😀 naïve", max_tokens=40),
    "stopped": greedy("Count from 1 to 9, separated by commas.", max_tokens=40, stop=(" 7",)),
    "penalties": greedy("Tell me about Rome.", max_tokens=32, extra={"frequency_penalty": 0.7}),
    "schema": greedy("Which city is the capital of France?", max_tokens=60, response_format=SCHEMA),
}


def ask(tier: MlxTier, request: Any) -> list[Event]:
    return asyncio.run(answer(tier, request))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.fixture(scope="module")
def whole(tier: MlxTier) -> Any:
    """The unbroken answers."""
    return cache(lambda name: ask(tier, ASKED[name]))


@pytest.fixture(scope="module")
def speller(tier: MlxTier) -> Speller:
    loaded = tier._engine.phase.loaded
    assert loaded is not None
    return Speller(Vocabulary(loaded.tokenizer))


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("share", [0.02, 0.21, 0.36, 0.5, 0.67, 0.8, 0.97])
def test_the_rest_of_a_text_is_what_it_would_have_been(tier: MlxTier, whole: Any, name: str, share: float) -> None:
    """Law: on the same model with the same settings the two pieces are the unbroken text, wherever it was cut: within
    a word, a number, a character's escape, before a stop string. And both together may write as much as one."""
    unbroken, request = text_of(whole(name)), ASKED[name]
    cut = max(1, int(share * len(unbroken)))
    end = whole(name)[-1]
    assert isinstance(end, Finish)
    events = ask(tier, replace(request, begun=unbroken[:cut]))

    assert (unbroken[:cut] + text_of(events))[: len(unbroken)] == unbroken
    assert isinstance(events[-1], Finish)
    if end.reason == "stop":
        assert unbroken[:cut] + text_of(events) == unbroken
        assert events[-1].reason == end.reason


def test_what_was_begun_is_read_and_not_written(tier: MlxTier, whole: Any) -> None:
    """Law: the tokens of what stands count as prompt, the few of its last word and the new ones as answer; and those
    few aren't taken off what the client may have."""
    unbroken, end = text_of(whole("prose")), whole("prose")[-1]
    rest = ask(tier, replace(ASKED["prose"], begun=unbroken[: len(unbroken) // 2], max_tokens=9))[-1]

    assert end.usage is not None
    assert rest.usage is not None
    assert rest.usage.prompt_tokens > end.usage.prompt_tokens
    assert 9 <= rest.usage.completion_tokens <= 9 + 6


@pytest.mark.parametrize("begun", ["Qxzzy the 7", "«", "  indented", "end. ", "😀", "a\ttab", "<|im_end|>", "é"])
def test_words_that_no_model_would_write_are_gone_on_with(tier: MlxTier, begun: str) -> None:
    """Law: whatever stands, an answer goes on behind it: it may be another model's."""
    events = ask(tier, replace(ASKED["prose"], begun=begun))

    assert isinstance(events[-1], Finish), events
    assert not text_of(events).startswith(begun)


def test_a_begun_answer_that_fills_the_context_is_refused(tier: MlxTier) -> None:
    """Law: it is measured with the prompt."""
    events = ask(tier, replace(ASKED["prose"], begun="word " * 9000))

    assert isinstance(events[-1], Failed)
    assert events[-1].fault == "context_length"


THINKING = ReasoningMarks(Thought("tests", ("<think>",), ("</think>",)), "<think>", "</think>")


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60), reasoning=st.sampled_from(["", "Let me see."]), opened=st.booleans())
def test_tokens_and_rest_are_the_text(tier: MlxTier, speller: Speller, text: str, reasoning: str, opened: bool) -> None:
    """Law: to the byte, for any text; the rest begins at its last word or before."""
    loaded = tier._engine.phase.loaded
    assert loaded is not None
    tokenizer = loaded.tokenizer
    assume(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text)
    made = resume(tokenizer, speller, text, reasoning, THINKING, opened=opened)
    spelled = b"".join(map(speller.bytes_of, made.tokens)) + made.rest

    if not text:
        assert made == Resumed()
        return
    assert spelled.endswith(text.encode())
    assert spelled.removesuffix(text.encode()).decode() in (
        "",
        f"<think>{reasoning}</think>\n\n",
        f"{reasoning}</think>\n\n",
    )
    assert text.split()[-1:] == [] or made.rest
    assert bool(made.rest) == bool(made.again)
    assert resume(tokenizer, None, text, "", None, opened=False).rest == b""
