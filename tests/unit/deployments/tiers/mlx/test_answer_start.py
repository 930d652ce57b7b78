"""How an answer begins: what of it is no answer, and that there is one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from deployments.tiers.mlx.answer_start import read_turn_start
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.sequence import EngineJob, SequenceState
from deployments.tiers.stream_matchers import AnswerReader
from reliability.types import Text
from tests.support.mlx_rig import greedy
from tests.support.tier_asking import answer

pytestmark = pytest.mark.model
CHATML = "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def tokenizer(tier: MlxTier) -> Any:
    loaded = tier._engine.phase.loaded
    assert loaded is not None
    return loaded.tokenizer


def said(tokenizer: Any, text: str) -> str:
    """What a sequence tells of the tokens of `text`."""
    tokens = tokenizer.encode(text, add_special_tokens=False)
    job = EngineJob(
        prompt=[0],
        max_tokens=len(tokens),
        sampling=Sampling(),
        reader=AnswerReader(),
        sink=lambda _: None,
        turn_start=read_turn_start(tokenizer),
    )
    row = SequenceState(1, job, tokenizer.detokenizer)
    for place, token in enumerate(tokens, 1):
        row.take(token, "length" if place == len(tokens) else None, mx.zeros(1))
    return "".join(event.text for event in row.pending if isinstance(event, Text))


def test_the_opening_is_the_templates(tokenizer: Any) -> None:
    """Law: it is what stands behind the conversation in a prompt, and nothing where a template opens no turn with a
    token of its own, or raises."""

    class Other:
        all_special_ids = tokenizer.all_special_ids

        def __init__(self, opening: str | None) -> None:
            self.opening = opening

        def apply_chat_template(self, _: Any, *, add_generation_prompt: bool, tokenize: bool) -> str:
            if self.opening is None:
                raise ValueError("a system prompt is needed")
            return "asked" + (self.opening if add_generation_prompt else "")

        def encode(self, text: str, **options: Any) -> Any:
            return tokenizer.encode(text, **options)

    assert tokenizer.decode(list(read_turn_start(tokenizer))) == CHATML
    assert [read_turn_start(Other(text)) for text in ("ASSISTANT:", "", None)] == [(), (), ()]
    assert tokenizer.decode(list(read_turn_start(Other(CHATML)))) == CHATML


@pytest.mark.parametrize("opening", [CHATML, "<|im_start|>assistant", "<|im_start|>", ""])
@pytest.mark.parametrize("words", ["The file has 3 lines.", '{"name": "read_file"}'])
def test_a_turn_that_is_opened_again_is_no_part_of_the_answer(tokenizer: Any, opening: str, words: str) -> None:
    """Law: the answer begins behind it, whole or in part; the same token further on is text."""
    assert said(tokenizer, opening + words).strip() == words
    assert said(tokenizer, f"See {CHATML}").strip() == f"See {CHATML}".strip()


def test_an_opening_and_nothing_else_is_nothing(tokenizer: Any) -> None:
    """Law: who only opens his turn has said nothing, so that the answer counts as the empty one that it is."""
    assert said(tokenizer, CHATML) == said(tokenizer, "<|im_start|>") == ""


def test_who_must_speak_says_a_word(tier: MlxTier, tokenizer: Any) -> None:
    """Law: however much a model would rather end, or open a turn, or write blanks, there is a word before its end."""
    silent = [*tokenizer.eos_token_ids, read_turn_start(tokenizer)[0]]
    asked = replace(greedy("Hi"), max_tokens=12, extra={"logit_bias": {str(token): 100 for token in silent}})

    def words(request: Any) -> str:
        events = asyncio.run(answer(tier, request))
        return "".join(event.text for event in events if isinstance(event, Text)).strip()

    # What an answer begins with is the grammar's, where there is one.
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "maxProperties": 0}}}
    assert words(replace(asked, must_speak=True, response_format=schema, extra={})).startswith("{")
    assert words(asked) == ""
    assert words(replace(asked, must_speak=True)) not in ("", "<|im_start|>")
