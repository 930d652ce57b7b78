"""Decoding under a grammar, with a real tokenizer of a few hundred tokens: whatever the model wants to say, what it
may say is valid."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import load
from tokenizers import AddedToken

from deployments.tiers.mlx.grammar.compiler import _CALLS_MAX, HERMES, Constraints
from deployments.tiers.mlx.grammar.schema_relaxation import WHITE_MAX
from deployments.tiers.prompt import RequestRefused
from deployments.tiers.stream_matchers import AnswerReader
from reliability.tools import RawCall, build_toolbox, check_calls, id_source
from reliability.types import CallDelta, Event, Fault
from tests.support import minds
from tests.support.engine_rig import text_of
from tests.support.minds import CITY, END, SCHEMAS, TWICE, Mind, Thinker, json_answer, must, says, spoken, tool
from tests.support.tier_asking import WEATHER_TOOL, ask


def read(text: str) -> list[Event]:
    reader = AnswerReader(calls=HERMES)
    return [*reader.feed(text), *reader.finish(truncated=False)]


def prose_of(events: list[Event]) -> str:
    """The text beside the calls; the line breaks between two of them are none."""
    return text_of(events).strip()


def flaws(text: str, tools: Any) -> list[str]:
    """What is wrong with the calls of an answer; an answer without a call is wrong as well."""
    box = build_toolbox(tools)
    events = read(text)
    if not any(isinstance(event, CallDelta) for event in events) or prose_of(events):
        return [f"no calls: {text}"]
    calls = [RawCall(name=e.name or "", arguments=e.arguments, id=e.id) for e in events if isinstance(e, CallDelta)]
    checked = check_calls(calls, box, new_id=id_source("x"))
    # A random mind may well say "" or "string"; that is no question of the grammar.
    wrong = [str(v) for v in checked.violations if v.kind.value not in ("empty", "placeholder")]
    return wrong + list(map(str, checked.repairs))


class TestWhatComesOutIsValid:
    @settings(deadline=None, max_examples=25)
    @given(parameters=st.lists(minds.PARAMETERS, min_size=1, max_size=3), seed=st.integers(0, 2**32))
    def test_demanded_calls(self, constraints: Constraints, tokenizer: Any, parameters: Any, seed: int) -> None:
        """Law: whatever the tools and whatever the model wants, a demanded call is there, whole and valid."""
        tools = tuple(tool(f"t.{i}/x-{i}", one) for i, one in enumerate(parameters))
        constraint = must(constraints, ask(tools=tools, tool_choice="required"))
        assert not constraint.notes
        assert flaws(spoken(tokenizer, says(constraint.masker(), Mind(seed))), tools) == []

    @settings(deadline=None, max_examples=25)
    @given(schema=SCHEMAS, seed=st.integers(0, 2**32))
    def test_json_answers(self, constraints: Constraints, tokenizer: Any, schema: Any, seed: int) -> None:
        """Law: an answer under a schema is JSON that the schema allows."""
        constraint = must(constraints, json_answer(schema))
        value = json.loads(spoken(tokenizer, says(constraint.masker(), Mind(seed))))
        assume("nullable" not in json.dumps(schema))  # OpenAPI's word: the plain validator doesn't know it
        jsonschema.validate(value, schema)

    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 2**32))
    def test_any_object(self, constraints: Constraints, tokenizer: Any, seed: int) -> None:
        """Law: `json_object` is an object, whatever else."""
        constraint = must(constraints, ask(response_format={"type": "json_object"}))
        assert isinstance(json.loads(spoken(tokenizer, says(constraint.masker(), Mind(seed)))), dict)

    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 2**32), white=st.sampled_from([" ", "\n", "\t \n"]))
    def test_white_space_is_bounded(self, constraints: Constraints, tokenizer: Any, seed: int, white: str) -> None:
        """Law: a model that wants nothing but white space still gets its answer done."""
        request = json_answer({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        text = spoken(tokenizer, says(must(constraints, request).masker(), Mind(seed, fond_of=white)))
        assert max(map(len, re.findall(r"\s+", text)), default=0) <= WHITE_MAX
        json.loads(text)

    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 2**32), calls_max=st.sampled_from([1, _CALLS_MAX]))
    def test_calls_are_bounded(self, constraints: Constraints, tokenizer: Any, seed: int, calls_max: int) -> None:
        """Law: a model that wants to call for ever is stopped, after the first call unless the client asks for several;
        before the first there is no white space, between two one line break, behind the last nothing."""
        several = {"parallel_tool_calls": True} if calls_max > 1 else {}
        request = ask(tools=(tool("f", {}),), tool_choice="required", **several)
        text = spoken(tokenizer, says(must(constraints, request).masker(), Mind(seed, fond_of="\n<"), patience=400))
        assert 1 <= sum(isinstance(event, CallDelta) for event in read(text)) <= calls_max
        assert text.startswith("<tool_call>")
        assert text.endswith("</tool_call>")
        assert set(re.findall(r"</tool_call>(.*?)<tool_call>", text, re.DOTALL)) <= {"\n"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("schema", "words"),
        [(TWICE, "uniqueItems"), ({"type": "integer", "maximum": 10**40}, "1000"), ({"not": {}}, "not")],
    )
    def test_a_schema_that_cant_be_enforced_is_refused_by_its_field(self, constraints, schema, words):
        """Law: an answer's schema is enforced or refused with the reason, since nothing checks it afterwards."""
        with pytest.raises(RequestRefused) as caught:
            constraints.of(json_answer(schema))
        failed = caught.value.failed
        assert (failed.fault, failed.param) == (Fault.UNSUPPORTED, "response_format")
        assert words in failed.message

    @pytest.mark.parametrize(
        ("parameters", "rung"),
        [
            (TWICE, "lenient"),
            ({"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**40}}}, "outline"),
            ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)y"}}}, "outline"),
            ({"properties": {"a": {"type": "array", "enum": ["x"]}}, "required": ["a"]}, "any"),
        ],
    )
    def test_a_tools_schema_is_held_as_far_as_it_can_be(self, constraints, tokenizer, parameters, rung):
        """Law: the grammar then still makes a call of that tool, and the notes say what is only checked."""
        tools = (tool("f", parameters), tool("g", CITY))
        constraint = must(constraints, ask(tools=tools, tool_choice="required"))
        (note,) = constraint.notes
        assert f"tool f ({rung})" in note
        for seed in range(5):
            assert not prose_of(read(spoken(tokenizer, says(constraint.masker(), Mind(seed)))))

    def test_tools_that_are_too_much_together_are_held_more_loosely(self, constraints, tokenizer):
        """Law: tools that compile are never refused for their number; the notes name those that are held in part."""
        words = {"enum": [f"word {i}" for i in range(30)]}
        parameters = {"type": "object", "properties": {f"p{i}": words for i in range(200)}, "required": ["p0"]}
        tools = tuple(tool(f"t{i}", parameters) for i in range(20))
        constraint = must(constraints, ask(tools=tools, tool_choice="required"))
        assert 0 < len(constraint.notes) < len(tools)
        for seed in range(5):
            assert not prose_of(read(spoken(tokenizer, says(constraint.masker(), Mind(seed)))))

    def test_without_a_vocabulary_a_demand_is_refused_and_a_re_ask_is_free(self) -> None:
        """Law: a tokenizer that can't be told by its bytes refuses what the client demands; the server's own idea of
        a grammar is dropped, since the answer is checked anyway."""
        blind = Constraints(object())
        for param, fields in (
            ("tool_choice", {"tools": (WEATHER_TOOL,), "tool_choice": "required"}),
            ("response_format", {"response_format": {"type": "json_object"}}),
        ):
            with pytest.raises(RequestRefused) as caught:
                blind.of(ask(**fields))
            assert (caught.value.failed.fault, caught.value.failed.param) == (Fault.UNSUPPORTED, param)
        assert blind.of(ask(tools=(WEATHER_TOOL,), constrained=True)) is None


@pytest.mark.parametrize("tags", [("<think>", "</think>"), ("<|endoftext|>", "<|im_start|>")])
class TestThinking:
    def accepts(self, thinker: Thinker, text: str, *, opened: bool) -> bool:
        constraint = must(Constraints(thinker), json_answer(CITY), opened=opened)
        tokens = thinker.encode(text, add_special_tokens=False)
        return bool(constraint.matcher.deep_copy().consume_tokens([*tokens, END]))

    def test_the_grammar_begins_behind_it(self, tokenizer: Any, tags: tuple[str, str]) -> None:
        """Law: thinking is free in its words, optional unless it is open, and its end begins the answer."""
        start, end = tags
        thinker, thought, answer = Thinker(tokenizer, *tags), 'hm {"é"} \n<', '{"city": "Köln"}'
        assert self.accepts(thinker, f"{start}{thought}{end}\n\n{answer}", opened=False)
        assert self.accepts(thinker, answer, opened=False)
        assert self.accepts(thinker, f"{thought}{end}{answer}", opened=True)
        assert not self.accepts(thinker, f"{start}{thought}{end}\n\nSure! {answer}", opened=False)
        assert not self.accepts(thinker, f"{thought}{answer}", opened=True)
        assert not self.accepts(thinker, f"{thought}{end}{end}{answer}", opened=True)


@pytest.mark.parametrize("special", [False, True])
class TestAddedTokens:
    """Most models have their marks as tokens of their own, special or not."""

    @pytest.fixture
    def marked(self, folder: Path, special: bool) -> Any:
        made = load(folder)
        marks = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
        made._tokenizer.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
        return Thinker(made, "<think>", "</think>")

    def test_the_marks_are_these_tokens(self, marked: Any) -> None:
        """Law: a call in the model's own tokens is what the grammar wants, behind its thinking or without."""
        call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ålesund"}}\n</tool_call>'
        request = ask(tools=(WEATHER_TOOL,), tool_choice="required", parallel_tool_calls=True)
        matcher = must(Constraints(marked), request).matcher
        for text in (call, f"<think>\nhm</think>\n\n{call}\n{call}"):
            tokens = marked.encode(text, add_special_tokens=False)
            assert len(tokens) < len(text.encode()) - 20
            assert matcher.deep_copy().consume_tokens([*tokens, END])

    def test_the_letters_of_a_mark_dont_end_the_thinking(self, marked: Any) -> None:
        """Law: the tag spelled out would be read as the thinking's end, so the model can't spell it."""
        matcher = must(Constraints(marked), ask(tools=(WEATHER_TOOL,), tool_choice="required"), opened=True).matcher
        spelled, a, end = (marked.encode(text, add_special_tokens=False) for text in ("a </think", "a", ">"))
        assert matcher.deep_copy().consume_tokens([*spelled, *a])
        assert not matcher.deep_copy().consume_tokens([*spelled, *end])


@pytest.mark.parametrize("text", ["Hi", '<tool_call>{"name": "f", "arguments": {}}</tool_call> Hi', "<tool_call>{}"])
def test_the_judge_of_these_tests_sees_what_is_wrong(text: str) -> None:
    """Law: prose, prose beside a call, and half a call are flaws."""
    assert flaws(text, (tool("f", {}),)) != []


def test_no_grammar_of_another_key_saves_time(tokenizer):
    """Law: each API key compiles its own, so that the time tells none what another has asked for. Counter-case: one key
    compiles a grammar once."""
    constraints, compiled = Constraints(tokenizer), []
    for key in ("a", "b", "a", "b"):
        must(constraints, ask(tools=(WEATHER_TOOL,), tool_choice="required", key=key))
        compiled.append((constraints._matcher_of.cache_info().misses, constraints._form_of.cache_info().misses))

    assert compiled == [(1, 1), (2, 2), (2, 2), (2, 2)]
