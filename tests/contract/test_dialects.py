"""Faults, bad answers and loops in all dialects: the same request gets the same verdict, whole and streamed.

Each scenario is asked by the real clients of chat completions, Messages and Responses. What the server did is read from
its own report, what the client was told from the client. Whatever a scenario ends in, no dialect may end otherwise.
"""

from typing import Any

import anthropic
import httpx
import pytest

from tests.support import scripts
from tests.support.dialects import ask_in, ask_in_all
from tests.support.http_asking import WEATHER_TOOLS, user
from tests.support.many_tools import TOOLS, write_call
from tests.support.matrices import STREAMS, take_turns
from tests.support.serving import until

CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}
BAD: dict[str, Any] = {
    "text-call": {"raw": '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'},
    "said-and-text-call": {"raw": 'I look. <tool_call>{"name": "get_weather", "arguments": {"city": 5}}</tool_call>'},
    "invented-tool": {"tool_call": {"name": "get_forecast", "arguments": {"city": "Paris"}}},
    "broken-json": {"tool_call": {"name": "get_weather", "arguments": "{'city': 'Paris',}"}},
    "missing-argument": {"tool_call": {"name": "get_weather", "arguments": {}}},
    "wrong-type": {"tool_call": {"name": "get_weather", "arguments": {"city": ["Paris"]}}},
    "nothing": {"raw": " "},
    "circles": {"raw": "and so on, and so on, as I have said before. " * 240},
}
LOAD = write_call("load_tools", names=["tool_3"])
REFUSES = [{"refusal": "I can't help with that."}]
ENDS: dict[str, list[dict[str, Any]]] = {"length": [{"text": "As far as I"}], "content_filter": [{"text": "I may not"}]}


def rules(tier: str) -> list[dict[str, Any]]:
    """A tier that is bad as it is told, and once told what was wrong is bad again; `standard` is always good."""
    bad = [{"when": {"transcript": f"bad:{name} "}, "answer": [step]} for name, step in BAD.items()]
    ends = [{"when": {"last_user": f"end:{name}"}, "answer": steps, "finish": name} for name, steps in ENDS.items()]
    stuck = [{"when": {"transcript": "stuck:both"}, "answer": [{"tool_call": CALL}]}]
    leaves = [{"when": {"transcript": "stuck:fast"}, "answer": f"{tier} leaves it."}]
    own = [*bad, {"when": {"transcript": "stuck:fast"}, "answer": [{"tool_call": CALL}]}] if tier == "fast" else leaves
    return [
        *stuck,
        *own,
        *ends,
        {"when": {"last_user": "refuse"}, "answer": REFUSES},
        {"when": {"last_user": "deferred", "turn": 1}, "answer": [{"text": "I look. "}, LOAD]},
        {"when": {"transcript": "deferred"}, "answer": [{"text": "I call."}, write_call("tool_3", number=1)]},
        {"when": {"transcript": "bad:"}, "answer": [{"tool_call": CALL}]},
        {"when": {"last_user": "forced"}, "answer": [{"raw": 'Sure:\n```json\n{"city": "Paris"}\n```'}]},
        {"when": {"transcript": "errand", "turn": 2}, "answer": "The errand is done: {{tool_result}}"},
        {"when": {"transcript": "errand"}, "answer": [{"tool_call": CALL}]},
        *scripts.rules(tier),
    ]


@pytest.fixture(scope="module")
def server(deploy):
    tiers = {name: {"kind": "scripted", "script": rules(name), "tools": "deferred"} for name in scripts.TWO}
    return deploy(scripts.args(scripts.TWO) | {"tiers": tiers}, "dialects")


def laps(task: str, count: int) -> list[dict[str, Any]]:
    """A history in which the same call has had the same result so often."""
    messages = user(task)
    for number in range(count):
        call = {"id": f"call_{number}", "type": "function"}
        call["function"] = {"name": "get_weather", "arguments": '{"city": "Paris"}'}  # type: ignore[assignment]
        messages.append({"role": "assistant", "content": "I look.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "It rains."})
    return messages


FAULTS = ["500", "429", "hang", "cut", "stall", "break", "loading", "unavailable", "too-long", "cut-call"]
SCENARIOS: dict[str, list[dict[str, Any]]] = {
    "good": user("hi"),
    "call": user("weather in Paris"),
    "thinks": user("think"),
    **{f"fast-{name}": user(f"fast:{name}") for name in FAULTS},
    **{f"both-{name}": user(f"fast:{name} standard:{name}") for name in ("500", "400", "too-long", "break", "loading")},
    **{f"bad-{name}": user(f"bad:{name} what is the weather?") for name in BAD},
    **{f"ends-{name}": user(f"end:{name}") for name in ENDS},
    **{
        f"{who}-lap-{count}": laps(f"stuck:{who} what is it?", count) for who in ("fast", "both") for count in (1, 2, 4)
    },
    "system": [{"role": "system", "content": "You are good."}, *user("hi")],
}


@pytest.mark.parametrize(("name", "stream"), take_turns(SCENARIOS, STREAMS))
def test_a_scenario_ends_the_same_in_all_dialects(server, name, stream):
    """The server's deeds, the status or the error frame, the words, the calls, the reason and the tokens are those of
    the chat completion; no call is delivered that breaks its schema. Only the status of a loop is another one where the
    clients of a dialect would ask again."""
    told = ask_in_all(server, SCENARIOS[name], stream=stream, tools=WEATHER_TOOLS)
    chat = told.pop("chat")

    for dialect, one in told.items():
        loop = dialect == "responses" and chat.code == "loop_detected"
        assert one.verdict == chat.verdict
        assert (one.status, one.code, one.late) == (400 if loop else chat.status, chat.code, chat.late)
        assert (one.text, one.calls, one.finish) == (chat.text, chat.calls, chat.finish)
        assert one.tokens is None or chat.tokens is None or one.tokens[1:] == chat.tokens[1:]
    assert all(call == ("get_weather", {"city": "Paris"}) for call in chat.calls)
    assert (chat.code is None) == (chat.report["outcome"] == "answered")


def show(dialect: str, number: int) -> list[dict[str, Any]]:
    """A result with a picture, as the dialect spells it."""
    text, data = "It looks like this.", f"{number:0>64}"
    source, url = {"type": "base64", "media_type": "image/png", "data": data}, f"data:image/png;base64,{data}"
    part: dict[str, dict[str, Any]] = {
        "chat": {"type": "image_url", "image_url": {"url": url}},
        "messages": {"type": "image", "source": source},
        "responses": {"type": "input_image", "image_url": url},
    }
    return [{"type": "input_text" if dialect == "responses" else "text", "text": text}, part[dialect]]


@pytest.mark.parametrize(("pictures", "code"), [(1, "loop_detected"), (6, None)])
def test_another_picture_is_progress(server, dialect, pictures, code):
    """Law: under equal words the same picture again makes a loop, and another picture is progress, in each dialect."""
    messages = laps("stuck:both what is it?", 6)
    for number, result in enumerate(one for one in messages if one["role"] == "tool"):
        result["content"] = show(dialect, number % pictures)
    told = ask_in(dialect, server, messages, stream=False, tools=WEATHER_TOOLS)

    assert (told.code, told.report["loop"]) == (code, "broken" if code else None)


def test_a_refusal_is_an_answer(server, dialect, stream):
    """Law: whatever was asked for, the tier that gave it is asked once, it is delivered, and its tokens are counted."""
    told = ask_in(dialect, server, user("refuse: what is the weather?"), stream=stream, tools=WEATHER_TOOLS)

    assert (told.status, told.code, told.report["outcome"]) == (200, None, "answered")
    assert [(one["tier"], one["fault"], one["flaw"]) for one in told.report["attempts"]] == [("fast", None, None)]
    assert told.report["attempts"][0]["usage"]["completion_tokens"] > 0


def test_no_client_sees_a_load_of_tools(server, stream):
    """Law: the server answers it, in each dialect; the client gets the words and the call, and the report tells."""
    told = ask_in_all(server, user("deferred"), stream=stream, tools=list(TOOLS))

    for one in told.values():
        assert (one.calls, one.finish) == ([("tool_3", {"number": 1})], "tool_calls")
        assert one.text.split() == ["I", "look.", "I", "call."]
        assert any("loaded tools: tool_3" in note for note in one.report["notes"])
        assert [(attempt["fault"], attempt["flaw"]) for attempt in one.report["attempts"]] == [(None, None)] * 2


def test_a_client_that_wants_its_conversation_kept_sends_all_of_it(server, stream):
    """Law: the tool runner of Anthropic's SDK asks the server to keep its messages (`thread`), and is refused in the
    words at which it sends the whole history instead. The model knows the errand when the result comes."""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather."""
        return f"It rains in {city}."

    with anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0, timeout=60.0) as client:
        asked: dict[str, Any] = {"messages": user("errand"), "tools": [get_weather], "stream": stream}
        last = client.beta.messages.tool_runner(model="fast", max_tokens=100, **asked).until_done()

    assert [block.text for block in last.content if block.type == "text"] == ["The errand is done: It rains in Paris."]


def test_the_arguments_of_a_forced_call_are_the_call(server, dialect, stream):
    """Law: where a request wants one tool called, and the model writes its arguments and no call, the client gets the
    call, at the first attempt, and no text. So clients ask for an object of a schema."""
    told = ask_in(dialect, server, user("forced"), stream=stream, tools=WEATHER_TOOLS, tool_choice="required")

    assert (told.calls, told.finish, told.text) == ([("get_weather", {"city": "Paris"})], "tool_calls", "")
    assert [(one["fault"], one["flaw"]) for one in told.report["attempts"]] == [(None, None)]
    assert "envelope" in str(told.report["repairs"])


LOOPS = [("fast-lap-2", "nudged", None), ("both-lap-2", "nudged", None), ("both-lap-4", "broken", "loop_detected")]


@pytest.mark.parametrize(("name", "mark", "code"), LOOPS)
def test_a_loop_is_nudged_and_then_broken(server, dialect, name, mark, code):
    """In whatever blocks or items it stands: at the third lap the model is told, at the fifth the circuit breaks."""
    told = ask_in(dialect, server, SCENARIOS[name], stream=False, tools=WEATHER_TOOLS)

    assert (told.report["loop"], told.code) == (mark, code)


UNREAD = [
    ("chat/completions", {"messages": user("hi")}, {"web_search_options": {"search_context_size": "high"}}),
    ("responses", {"input": "hi"}, {"moderation": {"model": "omni"}}),
    ("responses", {"input": "hi"}, {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}),
    ("responses", {"input": "hi"}, {"image": {"context_compression": "enabled"}}),
    ("messages", {"messages": user("hi")}, {"speed": "fast"}),
]


@pytest.mark.parametrize(("route", "body", "unread"), UNREAD)
def test_the_report_names_what_had_no_effect(server, route, body, unread):
    """No field is ignored without a word, in whatever API it is known; a request without one has no note."""
    for fields in ({}, unread):
        sent = {"model": "fast", "max_tokens": 99, **body, **fields} if route == "messages" else {**body, **fields}
        answer = httpx.post(f"{server.url}/v1/{route}", json=sent)
        path = f"/v1/reliability/requests/{answer.headers['x-request-id']}"
        report = until(lambda path=path: server.find(path), "the report is there")

        assert answer.status_code == 200
        assert [name for name in fields if not any(name in note for note in report["notes"])] == []
        assert bool(report["notes"]) == bool(fields)


def test_messages_are_counted_and_somebody_is_there(server):
    """`count_tokens` estimates where no tokenizer is known and says so; `HEAD /` is answered; any version and beta of
    the API is taken."""
    headers = {"anthropic-version": "2099-01-01", "anthropic-beta": "a-1,b-2", "x-api-key": "k"}
    body = {"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "word " * 100}]}
    counted = httpx.post(f"{server.url}/v1/messages/count_tokens?beta=true", json=body, headers=headers).json()

    assert counted["input_tokens"] > 50
    assert counted["mlx_stack"] == {"tier": "fast", "exact": False}
    assert httpx.head(f"{server.url}/").status_code == 200
    assert httpx.get(f"{server.url}/v1/models/claude-haiku-4-5").json()["starts_at"] == "fast"
