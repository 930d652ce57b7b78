"""Answers that turn in circles under a grammar are led out of it; all others are left alone."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import mlx.core as mx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.masker import CLOSED_NOTE, SPAN, is_repeating
from reliability.types import Finish, FinishReason
from tests.support.engine_rig import PROMPT, Rig, text_of, whole
from tests.support.minds import CITY, END, Chant, Mind, json_answer, must, says, spoken

LIMIT = 300
OWING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "words": {"type": "string"},
        "many": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "maybe": {"type": "number"},
    },
    "required": ["words", "many", "inner"],
}


@given(
    st.lists(st.integers(0, 9), max_size=60),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(3, 6),
    st.integers(0, 40),
)
def test_three_times_the_same_is_a_circle(before: list[int], unit: list[int], laps: int, more: int) -> None:
    """Wherever the last lap breaks off, and whatever stood before."""
    laps = max(laps, -(-SPAN // len(unit)))
    tokens = [*before, *unit * laps, *unit[: more % len(unit)]]

    assert is_repeating(tokens)


@given(st.lists(st.integers(0, 10**6), max_size=200, unique=True), st.integers(0, 35))
def test_what_goes_on_is_none(tokens: list[int], same: int) -> None:
    """Neither a text without repetition, nor a short one."""
    assert not is_repeating(tokens)
    assert not is_repeating([*tokens, *[7] * same])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), unit=st.text("ab 01", min_size=1, max_size=6), schema=st.sampled_from([OWING, CITY]))
@example(seed=0, unit="a", schema=OWING)
@example(seed=0, unit=" ", schema=OWING)
@example(seed=0, unit='a", "', schema=OWING)
def test_a_model_that_chants_for_ever_gives_a_valid_answer(
    constraints: Constraints, tokenizer: Any, seed: int, unit: str, schema: Any
) -> None:
    """In a string or in an array: it ends within its limit, and all that is required is there."""
    masker = must(constraints, json_answer(schema)).masker(tokens_max=LIMIT)
    tokens = says(masker, Chant(seed, unit))

    assert len(tokens) < LIMIT
    jsonschema.validate(json.loads(spoken(tokenizer, tokens)), schema)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_one_that_says_something_new_is_not_led(constraints: Constraints, seed: int) -> None:
    """An answer that would be cut while it goes on is cut: nobody makes up its end."""
    constraint = must(constraints, json_answer(CITY))
    some, plain = constraint.masker(tokens_max=80), constraint.masker()
    mind, tokens = Mind(seed), list(PROMPT)
    while len(tokens) < len(PROMPT) + 79:
        logits = mind.logits(False)
        one, other = (masker(mx.array(tokens), logits) for masker in (some, plain))
        assert (one == other).all().item()
        tokens.append(int(mx.argmax(one[0]).item()))
        if tokens[-1] == END:
            return


def test_it_is_told_and_taken_up_again(rig: Rig, constraints: Constraints) -> None:
    """The answer says that it was closed, and a step that raises in between changes nothing of it."""
    constraint = must(constraints, json_answer(CITY))
    chant = wanting("a")
    first = rig.answer(constraint=constraint, processors=[chant], max_tokens=120)
    _, out = rig.ask(constraint=constraint, processors=[chant], max_tokens=120)
    rig.model.breaks_in = 100
    second = whole(out)

    for events in (first, second):
        last = events[-1]
        assert isinstance(last, Finish)
        assert (last.reason, last.notes) == (FinishReason.STOP, (CLOSED_NOTE,))
        assert json.loads(text_of(events))["city"].startswith("a" * SPAN)
    assert text_of(first) == text_of(second)


def wanting(char: str) -> Any:
    """A logits processor that makes a model want one byte, and the key of the schema before."""
    from tests.support.minds import byte_as_token, wish

    much = mx.array(wish(500, byte_as_token(char)))
    return lambda _, logits: logits + much[: logits.shape[-1]]
