"""The mask on the logits of one sequence, alone and in the batch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.masker import Broken
from reliability.types import Fault, Finish
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT, Rig, fault_of, text_of, whole
from tests.support.minds import (
    CITY,
    END,
    TWICE,
    WIDTH,
    Mind,
    json_answer,
    must,
    says,
    tool,
)
from tests.support.tier_asking import WEATHER_TOOL, ask


class TestMasker:
    @settings(deadline=None, max_examples=25)
    @given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
    def test_it_can_be_taken_up_again(self, constraints: Constraints, seed: int, share: float) -> None:
        """Law: a masker made for a sequence that has tokens already allows what the first one did there."""
        constraint = must(constraints, ask(tools=(WEATHER_TOOL,), tool_choice="required"))
        tokens = says(constraint.masker(), Mind(seed))
        cut = int(share * len(tokens))
        again = constraint.masker(tokens[:cut])
        logits = again(mx.array([*PROMPT, *tokens[:cut]]), Mind(seed).logits(False))
        allowed = logits[0] > -float("inf")
        assert allowed[tokens[cut] if cut < len(tokens) else END].item()

    def test_the_end_is_allowed_only_where_the_answer_is_whole(self, constraints: Constraints, tokenizer: Any) -> None:
        """Law: no cut answer can end by itself."""
        constraint = must(constraints, json_answer(CITY))
        tokens = tokenizer.encode('{"city": "Köln"}', add_special_tokens=False)
        ends = []
        for cut in range(len(tokens) + 1):
            logits = constraint.masker(tokens[:cut])(mx.array(PROMPT), mx.zeros((1, WIDTH)))
            ends.append(logits[0, END].item() == 0)
        assert ends == [False] * len(tokens) + [True]

    def test_fewer_outputs_than_tokens(self, constraints: Constraints) -> None:
        """Law: the mask fits the model, whichever of the two is larger."""
        masker = must(constraints, json_answer(CITY)).masker()
        assert masker(mx.array(PROMPT), mx.zeros((1, len(tiny.TOKENS) - 3))).shape == (1, len(tiny.TOKENS) - 3)

    def test_a_token_that_the_grammar_forbids_breaks_it(self, constraints: Constraints) -> None:
        """Law: an error stays and is told; nothing is masked by a grammar that has lost its place."""
        masker = must(constraints, json_answer(CITY)).masker([END])
        for _ in range(2):
            with pytest.raises(Broken):
                masker(mx.array(PROMPT), mx.zeros((1, WIDTH)))


class TestInTheBatch:
    @pytest.fixture
    def rig(self, folder: Path) -> Iterator[Rig]:
        made = Rig(folder)
        yield made
        made.engine.close()

    def test_neighbours_dont_notice(self, rig: Rig, constraints: Constraints) -> None:
        """Law: a free sequence beside a constrained one says what it says alone, and the constrained one is valid."""
        alone = text_of(rig.answer(max_tokens=60))
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}},
            "required": ["n"],
        }
        constraint = must(constraints, json_answer(schema))
        (_, bound), (_, free) = rig.ask(constraint=constraint, max_tokens=150), rig.ask(max_tokens=60)
        assert text_of(whole(free)) == alone
        jsonschema.validate(json.loads(text_of(whole(bound))), schema)

    def test_a_broken_grammar_ends_its_own_sequence_only(self, rig: Rig, constraints: Constraints) -> None:
        """Law: an answer never goes on without its grammar: it fails, alone."""
        alone = text_of(rig.answer())
        good = must(constraints, json_answer(CITY))
        lost = good.matcher.deep_copy()
        lost.consume_token(END)
        broken = dataclasses.replace(good, matcher=lost)
        (_, bad), (_, neighbour) = rig.ask(constraint=broken), rig.ask()
        assert fault_of(whole(bad)) is Fault.SERVER_ERROR
        assert text_of(whole(neighbour)) == alone

    def test_notes_come_with_the_end(self, rig: Rig, constraints: Constraints) -> None:
        """Law: what the grammar doesn't hold is told with the answer."""
        constraint = must(constraints, ask(tools=(tool("f", TWICE),), tool_choice="required"))
        last = rig.answer(constraint=constraint, max_tokens=3)[-1]
        assert isinstance(last, Finish)
        assert last.notes == constraint.notes != ()
