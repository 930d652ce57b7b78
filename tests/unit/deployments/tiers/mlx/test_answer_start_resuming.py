"""An answer that was begun elsewhere is gone on with, to the letter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.answer_start import Resumed, resume
from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.vocabulary import ForcedBytes, Speller, Vocabulary
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.stream_matchers import AnswerReader
from deployments.tiers.thinking import ReasoningMarks
from reliability.tools.format_reasoning import Thought
from reliability.types import Event, Failed, Finish
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT, Rig, text_of
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


COUNT = 12
DRAWN = [tiny.TOKENS.index(text) for text in ("Ġ", "Ċ", *"0123456789")]
HEADS = (" ", "\n", "  ", "\n\n", " \n", "\n ", "7", " 7", "\n7")
THINK = ReasoningMarks(Thought("tests", ("<think>",), ("</think>",)), "<think>", "</think>")


@pytest.fixture(scope="module")
def rig(folder: Path) -> Iterator[Rig]:
    made = Rig(folder)
    yield made
    made.engine.close()


@pytest.fixture(scope="module")
def head_speller(constraints: Constraints) -> Speller:
    made = constraints.load_speller()
    assert made is not None
    return made


class Only:
    """Lets nothing but those tokens be drawn, and `head` first."""

    def __init__(self, head: str) -> None:
        self._head = [tiny.TOKENS.index({" ": "Ġ", "\n": "Ċ"}.get(letter, letter)) for letter in head]

    def __call__(self, tokens: Any, logits: Any) -> Any:
        import mlx.core as mx

        place = tokens.size - len(PROMPT)
        allowed = mx.array(self._head[place : place + 1] if 0 <= place < len(self._head) else DRAWN)
        masked = mx.full(logits.shape, -mx.inf, logits.dtype)
        masked[:, allowed] = logits[:, allowed]
        return masked


def resume_at(rig: Rig, tokenizer: Any, head_speller: Speller, head: str, begun: str) -> str:
    """What is generated behind the text that stands, as the job builder has it done."""
    made = resume(tokenizer, head_speller, begun, "", None, opened=False)
    spelling = ForcedBytes(head_speller, made.rest, len(PROMPT) + len(made.tokens))
    events = rig.answer(
        max_tokens=COUNT, processors=[Only(head), spelling], written=made.tokens, begun=begun, reader=AnswerReader()
    )
    assert isinstance(events[-1], Finish), events
    return text_of(events)


@pytest.mark.parametrize("head", HEADS)
def test_both_pieces_are_the_unbroken_text(rig: Rig, tokenizer: Any, head_speller: Speller, head: str) -> None:
    """Law: cut behind any character, also within the white space at its beginning, text and rest are the text that
    there would be unbroken; and that begins with all the white space that the model wrote."""
    unbroken = text_of(rig.answer(max_tokens=COUNT, processors=[Only(head)]))

    assert len(unbroken) == COUNT
    assert unbroken.startswith(head)
    for cut in range(1, COUNT):
        assert unbroken[:cut] + resume_at(rig, tokenizer, head_speller, head, unbroken[:cut]) == unbroken


@pytest.mark.parametrize("seed", range(8))
def test_another_models_white_space_is_not_written_twice(
    rig: Rig, tokenizer: Any, head_speller: Speller, seed: int
) -> None:
    """Law: behind reasoning an answer begins without white space, so of a text that stands with some all else is
    compared, and nothing of it is sent again."""
    dice = random.Random(seed)
    begun = "".join(dice.choice(" \n") for _ in range(dice.randint(1, 3))) + "123"
    made = resume(tokenizer, head_speller, begun, "4", THINK, opened=False)
    spelling = ForcedBytes(head_speller, made.rest, len(PROMPT) + len(made.tokens))
    events = rig.answer(
        max_tokens=len(made.tokens) + 6,
        processors=[Only(""), spelling],
        written=made.tokens,
        begun=begun,
        reader=AnswerReader(think=THINK.row),
    )

    assert isinstance(events[-1], Finish), events
    assert set(text_of(events)) <= set(" \n0123456789")
    assert len(text_of(events)) == 6 - made.again


def test_reasoning_ends_as_a_model_ends_it(tokenizer: Any, head_speller: Speller) -> None:
    """Law: white space is markup next to the tags, and so the text that stands has none: it is written again."""
    made = resume(tokenizer, head_speller, "7 8", "4", THINK, opened=True)

    assert b"".join(map(head_speller.bytes_of, made.tokens)) + made.rest == b"4</think>\n\n7 8"
