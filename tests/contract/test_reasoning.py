"""Reasoning that an upstream leaves in its text, through the whole server in every dialect: apart from the answer, and
apart from the history that comes back with the next request."""

import json

import httpx
import pytest

from tests.support import plays, scripts
from tests.support.dialects import ROUTES, ask_in, write_body
from tests.support.http_asking import WEATHER_TOOLS, ask, user
from tests.support.plays import SSE, Head, Send

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
HARMONY = (
    "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|channel|>",
    "final<|message|>It is 21.<|return|>",
    'commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
)
# What a model writes that answers, and one that calls.
WRITTEN = {
    "think": ("<think>\nI need it.\n</think>\n\nIt is 21.", f"<think>\nI need it.\n</think>\n\n{CALL}"),
    "Magistral": ("[THINK]I need it.[/THINK]It is 21.", f"[THINK]I need it.[/THINK]{CALL}"),
    "Harmony": (HARMONY[0] + HARMONY[1], HARMONY[0] + HARMONY[2]),
}


@pytest.fixture(scope="module")
def server(deploy, upstream):
    return deploy(scripts.graph({"far": scripts.hosted(upstream, "far")}), "reasoning")


def in_pieces(text: str) -> plays.Play:
    sends = [Send(plays.chunk({"content": text[at : at + 3]})) for at in range(0, len(text), 3)]
    return (Head(headers=SSE), *sends, *plays.tail())


def test_the_answer_and_the_call_are_apart(server, upstream, dialect, stream):
    """Law: with tools and without, the text is the answer's alone, and the call behind a thought is one."""
    for answers, calls in WRITTEN.values():
        upstream.plays("far", in_pieces(answers))
        for options in ({}, {"tools": WEATHER_TOOLS}):
            told = ask_in(dialect, server, user("weather?"), stream=stream, **options)
            assert (told.text, told.calls, told.finish) == ("It is 21.", [], "stop")
        upstream.plays("far", in_pieces(calls))
        told = ask_in(dialect, server, user("weather?"), stream=stream, tools=WEATHER_TOOLS)
        assert (told.text, told.calls) == ("", [("get_weather", {"city": "Oslo"})])


def test_a_chat_client_may_send_the_reasoning_back(server, upstream, stream):
    """Law: it comes as `reasoning_content`; sent back as it was delivered, the upstream reads no mark of it."""
    for _, calls in WRITTEN.values():
        upstream.plays("far", in_pieces(calls))
        message = ask(server, user("weather?"), stream=stream, tools=WEATHER_TOOLS).choice.message
        assert message.reasoning_content == "I need it."

        upstream.plays("far", plays.good("Fine."))
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}
        server.post({"messages": [*user("weather?"), message.to_dict(), result], "tools": WEATHER_TOOLS})
        sent = upstream.log[-1].body["messages"][1]
        assert (sent.get("content") or "", len(sent["tool_calls"])) == ("", 1)
        assert not any(mark in json.dumps(sent) for mark in ("<|", "think>", "THINK]"))


def test_a_thought_without_an_end_is_asked_for_again(server, upstream, dialect, stream):
    """Law: with tools and without, the call in it isn't made, and the next answer is told, as where it comes as
    `reasoning_content`."""
    thought = f"I need it.\n{CALL}"
    for first in (in_pieces(f"<think>{thought}"), plays.good("", reasoning=thought)):
        for options in ({}, {"tools": WEATHER_TOOLS}):
            upstream.plays("far", first, plays.good("It is 21."))
            told = ask_in(dialect, server, user("weather?"), stream=stream, **options)
            assert (told.text, told.calls) == ("It is 21.", [])
            assert [one["flaw"] for one in told.report["attempts"]] == ["empty", None]


def _read_thoughts(stream: str) -> list[str]:
    """The thoughts of a stream, one for each block or item that has any."""
    thoughts: dict[int, str] = {}
    for frame in (json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")):
        deltas = [choice["delta"].get("reasoning_content") for choice in frame.get("choices", ())]
        if frame.get("type") in ("content_block_delta", "response.reasoning_text.delta"):
            deltas = [frame["delta"].get("thinking") if isinstance(frame["delta"], dict) else frame["delta"]]
        for text in filter(None, deltas):
            place = frame.get("index", frame.get("output_index", 0))
            thoughts[place] = thoughts.get(place, "") + text
    return list(thoughts.values())


@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_the_thoughts_of_two_attempts_are_apart(server, upstream, dialect, pause_s):
    """Law: in a stream the thought of an attempt that failed stands, and the next one's begins a block or an item of
    its own, in chat a paragraph; told again to a repeat it is the same."""
    thought = Send(plays.chunk({"reasoning_content": "I need it."}))
    broken = (Head(headers=SSE), thought, plays.Wait(pause_s), plays.Abort())
    upstream.plays("far", broken, plays.good("It is 21.", reasoning="I still need it."))
    headers = {"Idempotency-Key": f"thoughts-{dialect}-{pause_s}"}
    body = {"model": "auto", "stream": True, **write_body(dialect, user("weather?"))}
    body |= {"thinking": {"type": "adaptive"}} if dialect == "messages" else {}
    for _ in range(2):
        response = httpx.post(server.url + ROUTES[dialect], json=body, headers=headers, timeout=30.0)
        told = _read_thoughts(response.text)
        assert told == (["I need it.\n\nI still need it."] if dialect == "chat" else ["I need it.", "I still need it."])
