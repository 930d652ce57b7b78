"""Upstreams that want of past answers what no client sends back, over real HTTP."""

import json
from itertools import combinations
from typing import Any

import pytest

from deployments.tiers.hosted.upstream_form import Missing, _find_missing, fill_missing
from reliability.types import Fault
from tests.support.plays import Play, Seen, good, status
from tests.support.tier_asking import exchange, text_of
from tests.unit.deployments.tiers.hosted.test_connection_forms import read

REFUSALS = {
    Missing.THOUGHT: [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2. For more information, see ...",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 13",
    ],
    Missing.SIGNATURE: [
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work",
        "Function call `f` in the `1.` content block is missing a `thought_signature`.",
        "Function call is missing a thoughtSignature",
    ],
}
WORDS = [(missing, said) for missing, all_ in REFUSALS.items() for said in all_]


def lacks(message: dict[str, Any], missing: Missing) -> bool:
    if missing is Missing.THOUGHT:
        return message["role"] == "assistant" and not message.get("reasoning_content")
    calls = message.get("tool_calls") or []
    return bool(calls) and "extra_content" not in calls[0]


@pytest.mark.parametrize("first", [None, "roles must alternate"])
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@pytest.mark.parametrize(("missing", "said"), WORDS)
def test_a_past_answer_without_it_ends_no_session(dialect: str, missing: Missing, said: str, first: str | None) -> None:
    """Law: what is missing is filled in once the upstream asks for it, also where it has asked for another form
    before; the next request has it at once."""
    refused = []

    def answer(seen: Seen) -> Play:
        if first is not None and not refused:
            refused.append(first)
            return status(400, first)
        if any(lacks(message, missing) for message in seen.body["messages"]):
            return status(400, said)
        return good("Fine.")

    told, log = exchange(answer, *[read(dialect)] * 2)

    assert [text_of(events) for events in told] == ["Fine."] * 2
    assert len(log) == (3 if first is None else 4)


@pytest.mark.parametrize(("missing", "said"), WORDS)
def test_an_upstream_that_is_never_content_is_asked_no_third_time(missing: Missing, said: str) -> None:
    """Law: the request is sent once more, and then another tier is asked."""
    (events,), log = exchange(status(400, said), read("chat"))
    asked = len(log)

    assert asked == 2
    assert events[-1].fault is Fault.REFUSED
    assert _find_missing(said) is missing


def test_an_upstream_that_contradicts_itself_is_asked_a_bounded_number_of_times() -> None:
    """Law: no form is tried twice in a request."""
    said = {False: WORDS[0][1], True: "property 'reasoning_content' is unsupported"}
    _, log = exchange(lambda seen: status(400, said["reasoning_content" in str(seen.body["messages"])]), read("chat"))

    assert len(log) <= 4


@pytest.mark.parametrize("said", ["property 'reasoning_content' is unsupported", "roles must alternate", ""])
def test_other_refusals_ask_for_nothing(said: str) -> None:
    """Law: only the words that say it are taken for it."""
    assert _find_missing(said) is None


@pytest.mark.parametrize("missing", [set(some) for n in range(3) for some in combinations(Missing, n)])
def test_what_is_there_stays(missing: set[Missing]) -> None:
    """Law: nothing that was sent changes; filling in once is enough, and changes nothing in place."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    signed = {**call, "extra_content": {"google": {"thought_signature": "own"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": None, "reasoning_content": "t", "tool_calls": [call, call]},
        {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [signed]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    before = json.dumps(messages)
    filled = fill_missing(messages, missing)

    assert fill_missing(filled, missing) == filled
    assert json.dumps(messages) == before
    for message, was in zip(filled, messages, strict=True):
        assert {**message, **was, "tool_calls": None} == {**message, "tool_calls": None}
        assert not any(lacks(dict(message), one) for one in missing)
        assert message.get("tool_calls", [])[1:] == was.get("tool_calls", [])[1:]
    assert filled[3]["tool_calls"] == [signed]
    if Missing.THOUGHT in missing:
        assert [message.get("reasoning_content") for message in filled[1:4]] == [" ", "t", "r"]
