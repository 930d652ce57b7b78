"""Past calls and results, as clients send them, in the one form that is read further in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_chat import parse_chat
from deployments.api.past_calls import name_past_calls
from deployments.tiers.history_repair import HistoryForm, soften
from deployments.tiers.prompt import learn_template, render
from tests.support.family_templates import SOME_TEMPLATES
from tests.support.tier_asking import WEATHER_TOOL, ask
from tests.unit.deployments.tiers.test_prompt import Tokenizer

IDS = st.lists(st.sampled_from([None, "", "x", "y", "call_1_0", 5]), min_size=1, max_size=4)
LEGACY: list[dict[str, Any]] = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"place": "bern"}'}},
    {"role": "function", "name": "look", "content": "sunny"},
]


def make_turn(ids: list[Any]) -> list[dict[str, Any]]:
    """A turn with a call for each id, and a result for each call, in their order."""
    calls = [
        {"type": "function", "function": {"name": f"f{n}", "arguments": "{}"}} | ({} if id is None else {"id": id})
        for n, id in enumerate(ids)
    ]
    results = [
        {"role": "tool", "content": f"r{n}"} | ({} if id is None else {"tool_call_id": str(id)})
        for n, id in enumerate(ids)
    ]
    return [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": calls}, *results]


@given(ids=IDS)
def test_each_call_has_an_id_and_each_result_names_its_call(ids):
    """Law: whatever ids a client gave, none at all or one to several calls, each call of a turn has one of its own and
    each result has its call's; done once is enough."""
    named = name_past_calls(tuple(make_turn(ids)))
    own = [call["id"] for call in named[1]["tool_calls"]]

    assert len(set(own)) == len(ids)
    assert all(isinstance(id, str) and id for id in own)
    assert [result["tool_call_id"] for result in named[2:]] == own
    assert name_past_calls(named) == named


def test_what_names_its_calls_is_left_alone():
    """Law: ids that tell calls apart stay, and a result of no call stays as it came."""
    messages = (*make_turn(["a", "b"]), {"role": "tool", "tool_call_id": "nobody's", "content": "r"})
    assert name_past_calls(messages) is messages
    assert name_past_calls((*messages, *LEGACY))[: len(messages)] == messages


def test_a_result_without_an_id_is_of_the_call_that_it_names():
    """Law: of calls with ids a result without one belongs to that by its name, else to the next one."""
    turn = make_turn(["a", "b"])[:2]
    results = ({"role": "tool", "name": "f1", "content": "1"}, {"role": "tool", "content": "0"})
    assert [message["tool_call_id"] for message in name_past_calls((*turn, *results))[2:]] == ["b", "a"]


@pytest.mark.parametrize("family", SOME_TEMPLATES)
def test_a_call_of_the_old_form_stands_in_every_prompt(family):
    """Law: who speaks `functions` sends back what we answered, a `function_call`: the model reads its own call."""
    call = parse_chat(json.dumps({"messages": LEGACY}).encode(), {}, request_id="r", tokens_max=9, timeout_s=9)
    tokenizer = Tokenizer(SOME_TEMPLATES[family])
    form = learn_template(tokenizer)
    text = render(tokenizer, ask(messages=call.request.messages, tools=(WEATHER_TOOL,)), form=form)

    assert [text.count(word) for word in ("first", "look", "bern", "sunny")] == [1, 1, 1, 1]
    assert text.find("bern") < text.find("sunny")


@pytest.mark.parametrize("form", HistoryForm)
@given(ids=IDS)
def test_every_form_for_an_upstream_has_each_result_behind_its_call(form, ids):
    """Law: in a softer form too, no call is told that it has no result where it has one."""
    softened = soften(name_past_calls(tuple(make_turn(ids))), form)
    calls = [call["id"] for message in softened for call in message.get("tool_calls") or ()]
    results = {message["tool_call_id"]: message["content"] for message in softened if message["role"] == "tool"}

    assert [results[id] for id in calls] == [f"r{n}" for n in range(len(ids))]
