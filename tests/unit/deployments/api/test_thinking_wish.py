"""How much a model may think, as clients say it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.api.thinking_wish import EFFORT_TOKENS, ThinkingWish, read_thinking_wish
from reliability.types import ChatRequest
from tests.support.refusing import refusal_of

TERMS: dict[str, Any] = {"request_id": "r", "tokens_max": 4096, "timeout_s": 60.0}
HI = [{"role": "user", "content": "hi"}]
NOTHING, OFF = (None, None), (False, None)


def wish_of(request: ChatRequest) -> tuple[bool | None, int | None]:
    return request.thinking, request.thinking_tokens_max


@pytest.mark.parametrize(
    ("fields", "wish"),
    [
        ({}, NOTHING), ({"reasoning_effort": "none"}, OFF), ({"reasoning_effort": "minimal"}, (None, 512)),
        ({"reasoning_effort": "low"}, (None, 2048)), ({"reasoning_effort": "medium"}, (None, 8192)),
        ({"reasoning_effort": "high"}, (None, 24576)), ({"reasoning_effort": "xhigh"}, NOTHING),
        ({"reasoning": {"effort": "low"}}, (None, 2048)), ({"reasoning": {"max_tokens": 77}}, (None, 77)),
        ({"reasoning": {"enabled": False}}, OFF), ({"max_thinking_tokens": 300}, (None, 300)),
        ({"thinking_budget": 300}, (None, 300)), ({"thinking_budget": 0}, OFF), ({"thinking_budget": -1}, NOTHING),
        ({"thinking": {"type": "enabled", "budget_tokens": 99}}, (None, 99)), ({"thinking": {"type": "disabled"}}, OFF),
        ({"reasoning_effort": "high", "thinking_budget": 5, "max_thinking_tokens": 6}, (None, 5)),
    ],
)  # fmt: skip
def test_a_chat_completion_says_it_in_many_ways(fields: dict[str, Any], wish: Any) -> None:
    """Law: each field is one number, the least of them holds, and all of them are passed on to hosted tiers."""
    request = parse_chat(json.dumps({"messages": HI} | fields).encode(), {}, **TERMS).request

    assert wish_of(request) == wish
    assert request.extra == fields


@pytest.mark.parametrize("effort", [None, "none", *EFFORT_TOKENS, "xhigh"])
def test_an_effort_means_the_same_in_each_api(effort: str | None) -> None:
    """Law: a level is one number in chat completions, Responses and Messages."""
    chat = parse_chat(json.dumps({"messages": HI, "reasoning_effort": effort}).encode(), {}, **TERMS)
    response = parse_response(json.dumps({"input": "hi", "reasoning": {"effort": effort}}).encode(), {}, **TERMS)
    fields = {"messages": HI, "max_tokens": 9, "output_config": {"effort": effort}}
    message = parse_messages(json.dumps(fields).encode(), {}, **TERMS)

    assert wish_of(chat.request) == wish_of(response.request) == wish_of(message.request)


@pytest.mark.parametrize(
    ("fields", "wish"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, (True, 2000)),
        ({"thinking": {"type": "enabled", "budget_tokens": 9000}, "output_config": {"effort": "low"}}, (True, 2048)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, NOTHING),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, OFF),
    ],
)
def test_a_message_names_its_budget(fields: dict[str, Any], wish: Any) -> None:
    """Law: `budget_tokens` bounds the thought, next to the effort, and neither is noted as without effect."""
    call = parse_messages(json.dumps({"messages": HI, "max_tokens": 9} | fields).encode(), {}, **TERMS)

    assert wish_of(call.request) == wish
    assert call.notes == ()


@pytest.mark.parametrize("budget", [0, -1, 1.5, "many", True, 10**12])
def test_a_message_with_no_such_budget_is_refused_by_name(budget: Any) -> None:
    """Law: Anthropic's own field is checked, like its other fields."""
    fields = {"messages": HI, "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": budget}}
    refused = refusal_of(parse_messages, json.dumps(fields).encode(), {}, **TERMS)
    assert refused.param == "thinking.budget_tokens"


JUNK = st.sampled_from([None, True, False, -1, 0, 7, 10**30, 0.5, float("nan"), "", "none", "low", "x", [], [0], {}])
NAMES = ["reasoning_effort", "max_thinking_tokens", "thinking_budget", "reasoning", "thinking"]


@given(st.dictionaries(st.sampled_from(NAMES), JUNK | st.dictionaries(st.sampled_from(["effort", "type"]), JUNK)))
def test_whatever_stands_there_is_read(fields: dict[str, Any]) -> None:
    """Law: fields that aren't the API's own refuse no request, whatever they hold."""
    wish = read_thinking_wish(fields)
    assert isinstance(wish, ThinkingWish)
    assert wish.tokens_max is None or wish.tokens_max > 0
