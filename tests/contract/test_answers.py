"""Answers that are not good enough, over a real socket: bad calls, calls as text, empty answers, loops."""

import json
from typing import Any

import openai
import pytest

from tests.support import scripts
from tests.support.serving import Deploy, Server

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
GOOD = {"tool_call": {"name": "get_weather", "arguments": {"city": "Paris"}}}
# As weak models write it: in the text, in a fence, as a Python literal.
WRITTEN = "```\n{'name': 'get_weather', 'arguments': {'city': 'Paris'}}\n```"
CORRECTED = "Your previous response contained an invalid tool call"
NUDGED = "with the same arguments for the"
BAD: dict[str, list[dict[str, Any]]] = {
    "malformed": [{"tool_call": {"name": "get_weather", "arguments": '{"city": "Par'}}],
    "wrong-field": [{"tool_call": {"name": "get_weather", "arguments": {"town": "Paris"}}}],
    "invented": [{"tool_call": {"name": "fetch_weather", "arguments": {"city": "Paris"}}}],
    "cut": [{"raw": '<tool_call>{"name": "get_weather", "argum'}],
    "empty": [{"text": ""}],
    "after-text": [{"text": "I'll look that up. "}, {"tool_call": {"name": "get_weather", "arguments": {}}}],
}


def rules(tier: str, *, mends: bool) -> list[dict[str, Any]]:
    """A tier that answers badly where it is told to; one that `mends` does better once it was corrected."""
    good_again = [{"when": {"last_user": CORRECTED}, "answer": [GOOD]}] if mends else []
    bad = [
        {
            "when": {"transcript": f"{tier}:{name}"},
            "answer": steps,
            "finish": "stop" if name in ("cut", "empty") else None,
        }
        for name, steps in BAD.items()
    ]
    return [
        *good_again,
        {"when": {"last_user": f"{tier}:text"}, "answer": [{"raw": WRITTEN}]},
        {"when": {"last_user": NUDGED, "transcript": f"{tier}:heeds"}, "answer": f"{tier} stops here."},
        {"when": {"transcript": f"{tier}:loops"}, "answer": [GOOD]},
        {"when": {"transcript": f"{tier}:heeds"}, "answer": [GOOD]},
        *[{key: value for key, value in rule.items() if value is not None} for rule in bad],
        {"when": {"has_tools": True}, "answer": [GOOD]},
        {"answer": f"Hello from {tier}."},
    ]


@pytest.fixture(scope="module")
def server(deploy: Deploy) -> Server:
    chain = ["fast", "standard"]
    tiers = {
        "fast": {"kind": "scripted", "script": rules("fast", mends=True)},
        "standard": {"kind": "scripted", "script": rules("standard", mends=False)},
    }
    reliability = {"escalation": {"chain": chain, "max_retries_before_escalate": 1}, **scripts.UNBOUNDED}
    return deploy({"tiers": tiers, "reliability": reliability, "server": {"timeouts": scripts.QUICK}}, "answers")


def ask(server: Server, text: str, *, stream: bool, messages: list[Any] | None = None) -> tuple[Any, dict[str, str]]:
    """The final choice and the headers, however the answer came."""
    with server.client() as client:
        messages = messages or [{"role": "user", "content": text}]
        raw = client.chat.completions.with_raw_response.create(
            model="auto", messages=messages, tools=TOOLS, stream=stream
        )
        if not stream:
            return raw.parse().choices[0], dict(raw.headers)
        from openai.lib.streaming.chat import ChatCompletionStreamState

        state = ChatCompletionStreamState()
        for chunk in raw.parse():
            state.handle_chunk(chunk)
        return state.get_final_completion().choices[0], dict(raw.headers)


def is_good(choice: Any) -> bool:
    (call,) = choice.message.tool_calls
    return choice.finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"city": "Paris"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bad", ["malformed", "wrong-field", "invented", "after-text"])
def test_a_bad_call_is_corrected_on_the_same_tier(server, bad, stream):
    """The tier is told what was wrong and does better; the client sees one good call, and never the bad one."""
    choice, headers = ask(server, f"fast:{bad}", stream=stream)

    assert is_good(choice)
    if bad != "after-text" or not stream:
        assert headers["x-mlx-stack-tier"] == "fast"
        assert headers["x-mlx-stack-retries"] == "1"
    if bad == "after-text" and stream:
        assert choice.message.content == "I'll look that up. "


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bad", ["cut", "empty"])
def test_what_can_not_be_mended_there_comes_from_the_next_tier(server, bad, stream):
    """A tier that stays bad is left; its text and its calls never reach the client."""
    choice, headers = ask(server, f"fast:{bad}", stream=stream)

    assert is_good(choice)
    assert headers["x-mlx-stack-tier"] in ("fast", "standard")


@pytest.mark.parametrize("stream", [False, True])
def test_where_every_tier_is_bad_there_is_one_clear_error(server, stream):
    """No tier left: a 400 that says what was wrong, and no call."""
    with pytest.raises(openai.APIStatusError) as caught:
        ask(server, "fast:empty standard:wrong-field", stream=stream)

    assert caught.value.status_code == 400
    assert caught.value.code == "invalid_answer"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_in_plain_text_is_a_call(server, stream):
    """A literal in a code fence that names a declared tool leaves as a tool call, and the repair is shown."""
    choice, headers = ask(server, "fast:text", stream=stream)

    assert is_good(choice)
    assert not choice.message.content
    if not stream:
        assert "literal" in headers["x-mlx-stack-repaired"]


def history(text: str, laps: int, results: list[str] | None = None) -> list[Any]:
    out: list[Any] = [{"role": "user", "content": text}]
    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    for lap in range(laps):
        out.append({"role": "assistant", "tool_calls": [{"id": f"c{lap}", "type": "function", "function": call}]})
        out.append({"role": "tool", "tool_call_id": f"c{lap}", "content": results[lap] if results else "It rains."})
    return out


@pytest.mark.parametrize("stream", [False, True])
def test_the_third_lap_is_nudged(server, stream):
    """A model that heeds the nudge leaves the loop; the client sees an ordinary answer, marked."""
    choice, headers = ask(server, "", stream=stream, messages=history("fast:heeds", 2))

    assert choice.message.content == "fast stops here."
    assert headers["x-mlx-stack-loop"] == "nudged"
    assert headers["x-mlx-stack-retries"] == "1"


@pytest.mark.parametrize("stream", [False, True])
def test_the_fifth_lap_breaks_the_circuit(server, stream):
    """Where every tier goes round in circles the request ends in `loop_detected`, with a `retry_after`."""
    with pytest.raises(openai.APIStatusError) as caught:
        ask(server, "", stream=stream, messages=history("fast:loops standard:loops", 4))

    error = caught.value
    assert error.status_code == 422
    assert error.body["type"] == "loop_detected"
    assert error.body["retry_after"] == 5
    assert error.body["message"].startswith("Repeated identical output detected (5x).")
    assert error.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_never_makes_a_conversation_unusable(server, stream):
    """A new user message after the loop is answered, and a poller whose results change is never touched."""
    after = [*history("fast:loops standard:loops", 4), {"role": "user", "content": "Say hello."}]
    polling = history("fast:loops", 4, [f"{n} of 9 files done" for n in range(4)])

    for messages in (after, polling):
        choice, headers = ask(server, "", stream=stream, messages=messages)
        assert is_good(choice)
        assert "x-mlx-stack-loop" not in headers
