"""An answer whose text begins with white space is resumed to the letter, wherever it broke off.

The model has random weights; of its tokens it may draw white space and digits, which are never merged.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.masker import ForcedBytes, Speller
from deployments.tiers.mlx.job_builder import _resume
from deployments.tiers.stream_matchers import AnswerReader
from deployments.tiers.thinking import ReasoningMarks
from reliability.tools.format_reasoning import Thought
from reliability.types import Finish
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT, Rig, text_of

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
def speller(constraints: Constraints) -> Speller:
    return constraints.spelling


class Only:
    """Lets nothing but those tokens be drawn, and `head` first."""

    def __init__(self, head: str) -> None:
        self._head = [tiny.TOKENS.index({" ": "Ġ", "\n": "Ċ"}.get(letter, letter)) for letter in head]

    def __call__(self, tokens: Any, logits: Any) -> Any:
        place = tokens.size - len(PROMPT)
        allowed = mx.array(self._head[place : place + 1] if 0 <= place < len(self._head) else DRAWN)
        masked = mx.full(logits.shape, -mx.inf, logits.dtype)
        masked[:, allowed] = logits[:, allowed]
        return masked


def resume_at(rig: Rig, tokenizer: Any, speller: Speller, head: str, begun: str) -> str:
    """What is generated behind the text that stands, as the job builder has it done."""
    made = _resume(tokenizer, speller, begun, "", None, opened=False)
    spelling = ForcedBytes(speller, made.rest, len(PROMPT) + len(made.tokens))
    events = rig.answer(max_tokens=COUNT, processors=[Only(head), spelling], written=made.tokens, begun=begun)
    assert isinstance(events[-1], Finish), events
    return text_of(events)


@pytest.mark.parametrize("head", HEADS)
def test_both_pieces_are_the_unbroken_text(rig: Rig, tokenizer: Any, speller: Speller, head: str) -> None:
    """Law: cut behind any character, also within the white space at its beginning, text and rest are the text that
    there would be unbroken; and that begins with all the white space that the model wrote."""
    unbroken = text_of(rig.answer(max_tokens=COUNT, processors=[Only(head)]))

    assert len(unbroken) == COUNT
    assert unbroken.startswith(head)
    for cut in range(1, COUNT):
        assert unbroken[:cut] + resume_at(rig, tokenizer, speller, head, unbroken[:cut]) == unbroken


@pytest.mark.parametrize("seed", range(8))
def test_another_models_white_space_is_not_written_twice(rig: Rig, tokenizer: Any, speller: Speller, seed: int) -> None:
    """Law: behind reasoning an answer begins without white space, so of a text that stands with some all else is
    compared, and nothing of it is sent again."""
    dice = random.Random(seed)
    begun = "".join(dice.choice(" \n") for _ in range(dice.randint(1, 3))) + "123"
    made = _resume(tokenizer, speller, begun, "4", THINK, opened=False)
    spelling = ForcedBytes(speller, made.rest, len(PROMPT) + len(made.tokens))
    fields = {"processors": [Only(""), spelling], "written": made.tokens, "reader": AnswerReader(think=THINK.row)}
    events = rig.answer(max_tokens=len(made.tokens) + 6, begun=begun, **fields)

    assert isinstance(events[-1], Finish), events
    assert set(text_of(events)) <= set(" \n0123456789")
    assert len(text_of(events)) == 6 - made.again


def test_reasoning_ends_as_a_model_ends_it(tokenizer: Any, speller: Speller) -> None:
    """Law: white space is markup next to the tags, and so the text that stands has none: it is written again."""
    made = _resume(tokenizer, speller, "7 8", "4", THINK, opened=True)

    assert b"".join(map(speller.bytes_of, made.tokens)) + made.rest == b"4</think>\n\n7 8"
