"""Half characters and long integers, through the whole server in every dialect: what a model or a client sends so is
U+FFFD, or exact, and no request fails of it."""

import json
from typing import Any

import httpx
import pytest

from tests.support import plays, scripts
from tests.support.dialects import ROUTES, ask_in, write_body
from tests.support.http_asking import WEATHER_TOOLS, user
from tests.support.plays import SSE, Head, Send
from tests.support.serving import until

LONG = 12345678901234567890123
ARGUMENTS = f'{{"city": "smile \\ud83d end \\ud83d\\ude00", "n": {LONG}, "a\\udc00": ["\\ud83d"]}}'
WHOLE = {"city": "smile \ufffd end 😀", "n": LONG, "a\ufffd": ["\ufffd"]}
HALF = "x\ud83dy"


@pytest.fixture(scope="module")
def server(deploy, upstream):
    tiers = {"far": scripts.hosted(upstream, "far")}
    return deploy(scripts.graph(tiers, retries=0, tool_validation={"placeholders": []}), "halves")


def test_a_call_arrives_whole_and_its_repair_is_reported(server, upstream, dialect, stream):
    """Law: half a character in a value or a key is U+FFFD, with a repair; a pair in two pieces is its character; an
    integer keeps its digits."""
    upstream.plays("far", plays.tools(("get_weather", ARGUMENTS)))
    told = ask_in(dialect, server, user("weather?"), stream=stream, tools=WEATHER_TOOLS)
    assert told.calls == [("get_weather", WHOLE)]
    assert told.report["repairs"] == ["surrogate"]


def test_a_text_arrives_whole(server, upstream, dialect, stream):
    """Law: the halves of a character in two chunks are that character, and a lone one is U+FFFD."""
    pieces = ("a \ud83d", "\ude00 b", " \ud83d", " c \udc00")
    sends = [Send(plays.chunk({"content": piece})) for piece in pieces]
    upstream.plays("far", (Head(headers=SSE), *sends, *plays.tail()))
    assert ask_in(dialect, server, user("hi"), stream=stream).text == "a 😀 b \ufffd c \ufffd"


CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
TOOL: dict[str, Any] = {"description": HALF, "parameters": {"type": "object", "properties": {HALF: {"maximum": LONG}}}}
# What else a dialect has room for.
MORE: dict[str, dict[str, Any]] = {
    "chat": {"metadata": {HALF: HALF}},
    "messages": {"metadata": {"user_id": HALF}},
    "responses": {"metadata": {HALF: HALF}, "instructions": HALF},
}


def write_half(dialect: str) -> dict[str, Any]:
    """A conversation that has half characters wherever a text may stand."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": HALF},
        {"role": "user", "content": HALF if dialect == "responses" else [{"type": "text", "text": HALF}]},
        {"role": "assistant", "content": HALF, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": HALF},
    ]
    tools = [{"type": "function", "function": {"name": "get_weather", **TOOL}}]
    return write_body(dialect, messages, tools) | MORE[dialect]


def test_a_conversation_with_half_characters_goes_on(server, upstream, dialect, stream):
    """Law: a body with half characters in its texts, keys, calls, results, tools and metadata is answered, and says so
    in its notes; the upstream gets whole ones, and every digit of the integers."""
    upstream.plays("far", plays.good("Fine."))
    headers = {"x-request-id": f"half-{dialect}-{stream}"}
    raw = json.dumps(write_half(dialect) | {"model": "auto", "stream": stream}).encode()
    got = httpx.post(server.url + ROUTES[dialect], content=raw, headers=headers, timeout=60.0)
    assert got.status_code == 200, got.text
    assert "Fine." in got.text
    assert "\\ud83d" not in got.text
    seen = upstream.log[-1]
    assert "x\ufffdy" in seen.raw.decode()
    assert "\\\\ud83d" not in seen.raw.decode()
    arguments = next(m for m in seen.body["messages"] if m.get("tool_calls"))["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == WHOLE
    assert seen.body["tools"][0]["function"]["parameters"]["properties"]["x\ufffdy"]["maximum"] == LONG
    told = until(lambda: server.find(f"/v1/reliability/requests/half-{dialect}-{stream}"), "the report is there")
    assert any("half a character" in note for note in told["notes"])


def test_a_custom_tools_text_arrives_whole(server, upstream, stream):
    """Law: the free text of a custom tool on Responses holds no half character either."""
    upstream.plays("far", plays.tools(("patch", '{"input": "a \\ud83d b"}')))
    with server.client() as client:
        tools: Any = [{"type": "custom", "name": "patch"}]
        made: Any = client.responses.create(model="auto", input="hi", tools=tools, stream=stream, store=False)
        response = list(made)[-1].response if stream else made
    assert [item.input for item in response.output if item.type == "custom_tool_call"] == ["a \ufffd b"]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages": ["\\ud83d", ' + b"[" * 5000,
        b'{"messages": [' + b"9" * 5000 + b"]}",
        b'{"messages": [{"\\ud83d": 1, "\\ud83e": 2}]}',
        b'{"messages": ["\\ud83d", NaN]}',
        b'{"messages": [' + b'{"\\ud83d":1},' * 110_000 + b"1]}",
    ],
)
def test_what_only_the_slow_reader_takes_stays_bounded(server, raw):
    """Law: depth, digits, values and equal keys are a 4xx, as in every other body."""
    for path in ROUTES.values():
        got = httpx.post(server.url + path, content=raw, timeout=60.0)
        assert got.status_code == 400, (path, got.text[:200])
