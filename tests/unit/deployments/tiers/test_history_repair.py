"""Conversations in the forms that backends and templates take."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.history_repair import HistoryForm, Mend, mend, soften
from deployments.tiers.history_words import UNREADABLE, read_past_arguments
from tests.support.strict_templates import TEMPLATES, render_strictly

words = st.text("qjk \n", min_size=1, max_size=8).filter(str.strip)


def call(id: str) -> dict[str, Any]:
    name = {"y": "a b.c/é", "z": ""}.get(id, "f")
    return {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def drawn(*roles: str, content: Any, **more: Any) -> Any:
    return st.fixed_dictionaries({"role": st.sampled_from(roles), "content": content, **more})


IDS = st.sampled_from("xyz")
CALLS = st.lists(IDS.map(call), min_size=1, max_size=2, unique_by=str)
messages = st.lists(
    st.one_of(
        drawn("user", "assistant", content=words),
        drawn("system", "developer", content=words),
        drawn("system", "user", "assistant", content=st.sampled_from(["", None])),
        drawn("user", content=words.map(lambda text: [{"type": "text", "text": text}])),
        drawn("assistant", content=st.none(), tool_calls=CALLS),
        drawn("tool", content=words, tool_call_id=IDS),
    ),
    min_size=1,
    max_size=8,
)


def said(history: Any) -> str:
    texts = [m.get("content") or "" for m in history]
    return " ".join("".join(p["text"] for p in t) if isinstance(t, list) else t for t in texts)


@pytest.mark.parametrize("template", TEMPLATES)
@given(messages)
def test_the_softest_form_is_taken_by_every_template_and_says_all(template, history):
    """Law: whatever the order of messages, strict templates take the form made for them, and no word is lost."""
    form = {"turns": HistoryForm.IN_TURN, "no system": HistoryForm.NO_SYSTEM}.get(template, HistoryForm.ONE_SYSTEM)
    softened = soften(history, form)

    render_strictly(TEMPLATES[template], {"messages": softened})
    assert sorted(said(history).split()) == sorted(w for w in said(softened).split() if set(w) <= set("qjk"))


@given(messages, st.sampled_from(HistoryForm))
def test_a_form_is_its_own_form(history, form):
    """Law: softening once is enough, and changes nothing in place."""
    before = json.dumps(history)
    softened = soften(history, form)

    assert soften(softened, form) == softened
    assert json.dumps(history) == before


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        *((one, {"a": 1}) for one in ('{"a": 1}', {"a": 1}, '"{\\"a\\": 1}"')),
        *((one, {}) for one in ("", None, "null")),
        *((one, {UNREADABLE: str(one)}) for one in ("{", "[1]", "12", [1])),
        ("{'a': True}", {"a": True}),
    ],
)
def test_past_arguments_are_an_object(given_, read):
    """Law: nothing that was written is lost, and what comes is an object."""
    assert read_past_arguments(given_) == read


@given(messages)
def test_strict_apis_take_the_softened_form(history):
    """Law: what says nothing is left out, but for the last message; ids are nine letters and digits, names what
    OpenAI takes as one, and one call stands before its result at a time. (What Mistral's API, Anthropic's and the
    template of Llama 3 ask for.)"""
    softened = soften(history, HistoryForm.IN_TURN)

    assert all(m.get("content") or m.get("tool_calls") for m in softened[:-1])
    for message, result in zip(softened, [*softened[1:], None], strict=True):
        for one in message.get("tool_calls") or ():
            assert len(message["tool_calls"]) == 1
            assert result is not None
            assert result["tool_call_id"] == one["id"]
            assert re.fullmatch(r"[A-Za-z0-9]{9}", one["id"])
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one["function"]["name"])


def test_what_was_thought_stays():
    """Law: where two messages of the model's become one, both thoughts stand in it."""
    turn = {"role": "assistant"}
    history = [turn | {"content": text, "reasoning_content": f"on {text}"} for text in ("one thing", "another")]
    (joined,) = mend(history, {Mend.MERGE_TURNS})

    assert (joined["content"], joined["reasoning_content"]) == ("one thing\n\nanother", "on one thing\n\non another")


def test_past_thoughts_are_left_out_for_those_who_refuse_them():
    """Law: nothing else of the conversation changes; each softer form is without them too."""
    thought = {"reasoning_content": "t", "reasoning": "t", "reasoning_details": [{"text": "t"}], "annotations": [{}]}
    history = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", **thought}]
    assert soften(history, HistoryForm.NO_THOUGHTS) == [history[0], {"role": "assistant", "content": "a"}]
    for form in list(HistoryForm)[1:]:
        assert not any("reasoning_content" in message for message in soften(history, form))


def test_results_stand_in_the_order_of_their_calls():
    """Law: a template that writes no ids shows each result in the place of its call; what is of no call stays last, and
    a turn with one call or another one's results stays as it is."""
    calls = [{"id": id, "function": {"name": "f", "arguments": {}}} for id in "abc"]
    results = [{"role": "tool", "tool_call_id": id, "content": id} for id in "c?ba"]
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}, *results, {"role": "user", "content": "u"}]

    assert [message["content"] for message in mend(messages, ())] == ["", "a", "b", "c", "?", "u"]
    assert mend(messages[1:], ()) == messages[1:]


def test_ids_name_their_tools():
    """Law: each call and its result have an id of their own that names the tool; a result of no call keeps its id."""
    turn = {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]}
    results = [{"role": "tool", "tool_call_id": id, "content": ""} for id in "ba?"]
    named = mend([turn, *results, turn], {Mend.NAME_IDS})

    assert [one["id"] for one in named[0]["tool_calls"]] == ["functions.f:0", "functions.f:1"]
    assert [one.get("tool_call_id") for one in named[1:4]] == ["functions.f:0", "functions.f:1", "?"]
    assert [one["id"] for one in named[4]["tool_calls"]] == ["functions.f:2", "functions.f:3"]
    assert mend([turn, *results], {Mend.NAME_IDS}) == named[:4]


@pytest.mark.parametrize("form", list(HistoryForm)[1:])
def test_a_refusal_is_said(form):
    """Law: what a model refused in stands in a softer form as its words; it is left out in none."""
    history = [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "refusal": "I won't."}]

    assert soften(history, form)[1] == {"role": "assistant", "content": "I won't."}
