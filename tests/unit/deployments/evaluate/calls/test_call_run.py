"""One case on one model: which layer delivered, and what is kept of it."""

import json
from typing import Any

import pytest

from deployments.evaluate.asking.chat_client import ChatClient, ChatReply
from deployments.evaluate.calls.call_cases import draw_cases
from deployments.evaluate.calls.call_run import _are_valid, _find_first_layer, are_right, run_case
from tests.support.played_model import PlayedServer, call, say

WANTED = [{"name": "f", "arguments": {"city": ["New York"], "days": ["", 1]}}]
SCHEMA = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"} | SCHEMA}}


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        *(([("f", '{"city": "New York"}')], True), ([("f", '{"city": "new york", "days": 1}')], True)),
        *(([("f", '{"city": "new-york."}')], True), ([("f", '{"city": "Boston"}')], False)),
        *(([("f", '{"city": "New York", "days": 2}')], False), ([("f", '{"city": "New York", "more": 1}')], False)),
        *(([("f", '{"days": 1}')], False), ([("g", '{"city": "New York"}')], False)),
        ([("f", '{"city": "New York"}'), ("f", '{"city": "New York"}')], False),
        *(([("f", "[]")], False), ([("f", "{")], False), ([], False)),
    ],
)
def test_a_call_is_right(calls, right):
    """The wanted one and no other, whatever the spelling of its texts."""
    assert are_right(calls, WANTED) is right


@pytest.mark.parametrize(
    ("calls", "valid"),
    [
        *(([("f", '{"city": "x"}')], True), ([("f", '{"city": 3}')], False), ([("f", '{"days": 3}')], False)),
        *(([("g", '{"city": "x"}')], False), ([("f", "no")], False), ([], False)),
    ],
)
def test_a_call_is_valid(calls, valid):
    """By its tool's schema, and only where there is one."""
    assert _are_valid(calls, [TOOL]) is valid


CASE = draw_cases(1, 1)[0]


def attempt(flaw: str | None = None, native: int = 0, tier: str = "t", **more: Any) -> dict[str, Any]:
    usage = {"total_tokens": 10}
    base = {"tier": tier, "ran": True, "flaw": flaw, "fault": None, "elapsed_ms": 500, "usage": usage}
    return base | {"native_calls": native} | more


def reply(*attempts: dict[str, Any], repairs: tuple[str, ...] = ()) -> ChatReply:
    return ChatReply(message=call("f", a=1), tier="t", repairs=repairs, attempts=attempts)


@pytest.mark.parametrize(
    ("given", "hasty", "layer"),
    [
        (reply(attempt(native=1)), False, "raw"),
        (reply(attempt(native=1), repairs=("boolean",)), False, "repair"),
        (reply(attempt()), False, "repair"),
        (reply(attempt("tool_call_invalid"), attempt()), False, "retries"),
        (reply(attempt("tool_call_invalid"), attempt(native=1)), True, "grammar"),
        (reply(attempt("empty"), attempt("tool_call_invalid"), attempt(native=1)), False, "grammar"),
        (reply(attempt("empty", tier="other"), attempt(native=1)), False, "raw"),
        (ChatReply(message=call("f", a=1)), False, "served"),
    ],
)
def test_the_layer_that_delivered(given, hasty, layer):
    """By the report's attempts: native and unrepaired, found and repaired, asked again, asked under the grammar."""
    assert _find_first_layer(given, hasty=hasty) == layer


def test_a_right_answer_is_kept_with_what_it_took():
    """And a wrong one, and none: each is a result."""
    arguments = {key: values[0] for key, values in CASE.arguments.items() if values[0] != ""}
    plays = {"right": call(CASE.tool, **arguments), "wrong": call(CASE.tool, nothing=1), "mute": say("I don't know.")}
    with PlayedServer({name: lambda body, message=message: message for name, message in plays.items()}) as server:
        client = ChatClient(server.url)
        found = {name: run_case(client, name, CASE, seed=1, within_s=20, hasty=False) for name in plays}

    shown = [(one["valid"], one["right"], one["layer"]) for one in found.values()]
    assert shown == [(True, True, "served"), (False, False, None), (False, False, None)]
    assert json.loads(json.dumps(found)) == found
