"""Requests are read, and conversations brought into the forms of upstreams, in work that grows as what was sent."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.api.openai_responses.response_tools import read_tools
from deployments.api.past_calls import name_past_calls
from deployments.errors import ApiError
from deployments.tiers.history_repair import HistoryForm, Mend, mend, soften
from tests.support.counted_work import Word, measure_growth

Do = Callable[[], object]
Message = dict[str, Any]
USER: Message = {"role": "user", "content": "hi"}


def call(id: str | None, name: str) -> Message:
    made = {"type": "function", "function": {"name": Word(name), "arguments": "{}"}}
    return made if id is None else made | {"id": Word(id)}


def answer(number: int, of: str, **told: Any) -> Message:
    return {"role": "tool", "tool_call_id": Word(f"{of}{number}"), "content": f"r{number}", **told}


def take_turn(size: int, results: range) -> list[Message]:
    """One turn of as many calls, and results of them in an order."""
    calls = {"role": "assistant", "content": None, "tool_calls": [call(f"c{n}", f"f{n}") for n in range(size)]}
    return [USER, calls, *(answer(n, "c") for n in results), USER]


CONVERSATIONS: dict[str, Callable[[int], list[Message]]] = {
    "texts of the user": lambda size: [{"role": "user", "content": "w" * 200} for _ in range(size)],
    "parts of the user": lambda size: [{"role": "user", "content": [{"type": "text", "text": "w"}]}] * size,
    "texts of the system": lambda size: [{"role": "system", "content": "w" * 200}] * size + [USER],
    "reminders": lambda size: [USER, *([{"role": "system", "content": "w" * 200}, USER] * size)],
    "answers": lambda size: [USER, *([{"role": "assistant", "content": "w" * 200}] * size), USER],
    "results in turn": lambda size: take_turn(size, range(size)),
    "results from behind": lambda size: take_turn(size, range(size)[::-1]),
    "results of no call": lambda size: take_turn(size, range(size, 2 * size)),
    "calls without results": lambda size: take_turn(size, range(0)),
}


# Saying calls as text is for texts alone.
MENDS = {form.name: partial(soften, form=form) for form in HistoryForm}
MENDS |= {one.name: partial(mend, mends=(one,)) for one in Mend if one is not Mend.SAY_CALLS}


@pytest.mark.parametrize("repair", MENDS)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_conversation_is_softened_in_linear_work(conversation: str, repair: str) -> None:
    """Law: in each form, and by each mend alone, a conversation that is twice as long takes at most two and a half
    times the work; each text is joined once."""

    def prepare(size: int) -> Do:
        return partial(MENDS[repair], CONVERSATIONS[conversation](size))

    assert measure_growth(prepare, 60) <= 2.5


@pytest.mark.parametrize("told", [{}, {"name": "nobody"}, {"name": "f0"}, {"tool_call_id": "c0"}])
@pytest.mark.parametrize("role", ["tool", "function"])
def test_results_without_ids_find_their_calls_in_linear_work(role: str, told: Message) -> None:
    """Law: however many calls wait, a result looks at those of its id or its name, and at the next one."""

    def prepare(size: int) -> Do:
        calls = {"role": "assistant", "content": None, "tool_calls": [call(None, f"f{n}") for n in range(size)]}
        messages = (USER, calls, *({"role": role, "content": "r", **told} for _ in range(size)))
        return lambda: name_past_calls(messages)

    assert measure_growth(prepare, 60) <= 2.5


def test_what_searches_have_found_is_added_in_linear_work() -> None:
    """Law: each tool that a search has found is looked at once; the first of a name counts."""

    def prepare(size: int) -> Do:
        searches = [read_tools([{"type": "function", "name": f"t{n}"}], None) for n in range(size)]
        return lambda: read_tools(None, None).add(searches)

    assert measure_growth(prepare, 120) <= 2.5
    first = {"type": "function", "name": "a", "description": "first"}
    found = read_tools([first], None).add([read_tools([{**first, "description": n}], None) for n in "xy"])
    assert [tool["function"]["description"] for tool in found.tools] == ["first"]
    assert found.searched == frozenset()


def say(n: int, **fields: Any) -> dict[str, Any]:
    return {"messages": [USER] * n + [USER], **fields}


def declare(n: int) -> Message:
    return {"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object"}}}


def block(size: int, *blocks: Message) -> dict[str, Any]:
    """As many blocks of a user's message, behind one that says something."""
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "w"}, *(list(blocks) * size)]}]}


def load(size: int) -> dict[str, Any]:
    hidden = {"name": "big", "description": "x" * 5, "input_schema": {"type": "object"}, "defer_loading": True}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "big"}]}
    used = [{"type": "tool_use", "id": "t", "name": "other", "input": {}}]
    turns = [{"role": "assistant", "content": used}, {"role": "user", "content": [result]}]
    return {"messages": [USER, *(turns * size)], "tools": [hidden, {"name": "other", "input_schema": {}}]}


def say_and_call(size: int) -> list[Message]:
    """Answers in a row, each with a text, a thought and a call."""
    used = [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]
    said = [{"type": "thinking", "thinking": "h"}, {"type": "text", "text": "w"}]
    return [USER, *({"role": "assistant", "content": said + used} for _ in range(size)), USER]


def spare(size: int) -> Message:
    return {"type": "clear_tool_uses_20250919", "exclude_tools": [f"n{n}" for n in range(size)]}


CHATS: dict[str, Callable[[int], dict[str, Any]]] = {
    "messages": say,
    "tools": lambda size: say(1, tools=[declare(n) for n in range(size)]),
    "calls": lambda size: {"messages": [dict(one) for one in take_turn(size, range(size))]},
    "allowed tools": lambda size: say(
        1,
        tools=[declare(n) for n in range(size)],
        tool_choice={"type": "allowed_tools", "tools": [{"name": f"t{n}"} for n in range(size)]},
    ),
    "parts": lambda size: {"messages": [{"role": "user", "content": [{"type": "text", "text": "w"}] * size}]},
}
MESSAGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "messages": say,
    "texts": lambda size: block(size, {"type": "text", "text": "w"}),
    "results": lambda size: block(size, {"type": "tool_result", "tool_use_id": "t", "content": "w"}),
    "answers of one turn": lambda size: {"messages": say_and_call(size)},
    "searches": load,
    "spared tools": lambda size: say(size, context_management={"edits": [spare(size)]}),
}
RESPONSES: dict[str, Callable[[int], dict[str, Any]]] = {
    "items": lambda size: {"input": [USER] * size},
    "answers": lambda size: {"input": [USER, *([{"role": "assistant", "content": "w"}] * size), USER]},
    "calls": lambda size: {
        "input": [
            *({"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(size)),
            *({"type": "function_call_output", "call_id": f"c{n}", "output": "r"} for n in range(size)),
        ]
    },
    "searches": lambda size: {
        "input": [
            {
                "type": "tool_search_output",
                "execution": "client",
                "call_id": f"c{n}",
                "tools": [{"type": "function", "name": f"t{n}"}],
            }
            for n in range(size)
        ]
    },
}
PARSED = {parse_chat: CHATS, parse_messages: MESSAGES, parse_response: RESPONSES}


@pytest.mark.parametrize(
    ("parse", "make"),
    [
        pytest.param(parse, make, id=f"{parse.__name__} {name}")
        for parse, bodies in PARSED.items()
        for name, make in bodies.items()
    ],
)
def test_a_body_is_read_in_linear_work(parse: Callable[..., object], make: Callable[[int], dict[str, Any]]) -> None:
    """Law: in each dialect a body with twice as much of something takes at most two and a half times the work."""

    def prepare(size: int) -> Do:
        fields = {"model": "fast", **make(size)}
        if parse is parse_messages:
            fields["max_tokens"] = 9
        raw = json.dumps(fields).encode()
        return lambda: parse(raw, {}, request_id="r", tokens_max=100, timeout_s=9.0)

    assert measure_growth(prepare, 100) <= 2.5


def test_too_many_found_tools_are_refused() -> None:
    """Law: a request declares as many tools as it may, also where searches have found them."""
    raw = json.dumps({"model": "fast", **RESPONSES["searches"](513)}).encode()
    with pytest.raises(ApiError):
        parse_response(raw, {}, request_id="r", tokens_max=100, timeout_s=9.0)
