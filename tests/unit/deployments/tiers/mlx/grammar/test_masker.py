"""The mask on the logits of one sequence, alone and in the batch."""

import json
from typing import Any

import jsonschema
import mlx.core as mx
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar import masker as module
from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.masker import _SPAN, CLOSED_NOTE, NoVocabulary, Vocabulary, _is_repeating
from reliability.types import Fault, FinishReason
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT, Rig, text_of, whole
from tests.support.minds import CITY, END, TWICE, WIDTH, Chant, Mind, Thinker, json_answer, must, says, spoken, tool
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
            with pytest.raises(module.BrokenGrammar):
                masker(mx.array(PROMPT), mx.zeros((1, WIDTH)))


class TestInTheBatch:
    @pytest.mark.parametrize("param", ["tools", "response_format"])
    def test_a_schema_that_breaks_the_grammar_is_no_fault_of_the_tiers(self, rig, constraints, param) -> None:
        """Law: what the grammar can't go on with is the request's own: refused by its field, no fault for a breaker."""
        schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(600)}}
        forced = ask(tools=(tool("f", schema),), tool_choice="required")
        constraint = must(constraints, forced if param == "tools" else json_answer(schema))
        failed = whole(rig.ask(constraint=constraint, max_tokens=150)[1])[-1]
        assert (failed.fault, failed.param) == (Fault.UNSUPPORTED, param)
        assert "row has" in failed.message
        assert "<" not in failed.message

    def test_neighbours_dont_notice(self, rig: Rig, constraints: Constraints) -> None:
        """Law: a free sequence beside a constrained one says what it says alone, and the constrained one is valid."""
        alone = text_of(rig.answer(max_tokens=60))
        number = {"type": "integer", "maximum": 99, "minimum": 0}
        schema = {"type": "object", "properties": {"n": number}, "required": ["n"]}
        constraint = must(constraints, json_answer(schema))
        (_, bound), (_, free) = rig.ask(constraint=constraint, max_tokens=150), rig.ask(max_tokens=60)
        assert text_of(whole(free)) == alone
        jsonschema.validate(json.loads(text_of(whole(bound))), schema)

    def test_notes_come_with_the_end(self, rig: Rig, constraints: Constraints) -> None:
        """Law: what the grammar doesn't hold is told with the answer."""
        constraint = must(constraints, ask(tools=(tool("f", TWICE),), tool_choice="required"))
        last = rig.answer(constraint=constraint, max_tokens=3)[-1]
        assert last.notes == constraint.notes != ()


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
    laps = max(laps, -(-_SPAN // len(unit)))
    tokens = [*before, *unit * laps, *unit[: more % len(unit)]]

    assert _is_repeating(tokens)


@given(st.lists(st.integers(0, 10**6), max_size=200, unique=True), st.integers(0, 35))
def test_what_goes_on_is_none(tokens: list[int], same: int) -> None:
    """Neither a text without repetition, nor a short one."""
    assert not _is_repeating(tokens)
    assert not _is_repeating([*tokens, *[7] * same])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), unit=st.text("ab 01", min_size=1, max_size=6), schema=st.sampled_from([OWING, CITY]))
@example(seed=0, unit="a", schema=OWING)
@example(seed=0, unit=" ", schema=OWING)
@example(seed=0, unit='a", "', schema=OWING)
def test_a_model_that_chants_for_ever_gives_a_valid_answer(constraints, tokenizer, seed, unit, schema):
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
        assert (last.reason, last.notes) == (FinishReason.STOP, (CLOSED_NOTE,))
        assert json.loads(text_of(events))["city"].startswith("a" * _SPAN)
    assert text_of(first) == text_of(second)


def wanting(char: str) -> Any:
    """A logits processor that makes a model want one byte, and the key of the schema before."""
    from tests.support.minds import byte_as_token, wish

    much = mx.array(wish(500, byte_as_token(char)))
    return lambda _, logits: logits + much[: logits.shape[-1]]


class TestVocabulary:
    def test_every_token_gives_its_bytes(self, tokenizer: Any) -> None:
        """Law: each of the 256 bytes and each merge is the token that the model means by it."""
        words = Vocabulary(tokenizer)
        alphabet = {char: byte for byte, char in enumerate(tiny.byte_alphabet())}
        for i, token in enumerate(tiny.TOKENS[len(tiny.SPECIAL) :], start=len(tiny.SPECIAL)):
            if alphabet[token[0]] == 0xFF:
                continue  # llguidance marks special tokens by it; no text has this byte
            assert words.bytes_of(i) == bytes(alphabet[char] for char in token)

    @settings(deadline=None)
    @given(st.text(max_size=40))
    def test_any_text_comes_back(self, tokenizer: Any, text: str) -> None:
        """Law: what the tier's tokenizer encodes, the trie reads to the byte."""
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assume(not any(token < len(tiny.SPECIAL) for token in tokens))
        assert Vocabulary(tokenizer).trie.decode_bytes(tokens) == text.encode()

    def test_a_literal_names_special_tokens_by_number(self, tokenizer: Any) -> None:
        """Law: text stays text, a special token is its number."""
        words = Vocabulary(tokenizer)
        assert words.literal('<tool_call>"é') == '"<tool_call>\\"é"'
        assert words.literal("a<|im_end|>b") == '"a" <[2]> "b"'

    def test_a_tokenizer_that_rewrites_its_text_is_refused(self, tokenizer: Any) -> None:
        """Law: a vocabulary that isn't true to the byte is none."""

        class Shouting(Thinker):
            def encode(self, text: str, **options: Any) -> Any:
                return tokenizer.encode(text.upper(), **options)

        with pytest.raises(NoVocabulary, match="byte"):
            Vocabulary(Shouting(tokenizer, "", ""))
