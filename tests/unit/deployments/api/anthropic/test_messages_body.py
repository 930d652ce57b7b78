"""From a body of Anthropic's to the internal request: what clients send is taken, and what is wrong is named."""

import copy
import json
from typing import Any

import pytest
from anthropic.types import message_create_params
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deployments.api.anthropic.messages_body import NOTES_MAX, parse_messages
from deployments.api.openai_chat import ChatCall
from deployments.errors import ApiError
from tests.support.anthropic_values import MARKER, TOOL, bodies
from tests.support.refusing import refusal_of

PARAMS: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsNonStreaming)
FORM: dict[str, Any] = {"type": "json_schema", "schema": {"type": "object"}}
STRANGE = [None, 5, -1, "", "x", [], {}, True, [1], {"type": "no"}, {"type": 7}, [[]], {"a": {"b": []}}, 1e300]


def parse(fields: Any, headers: dict[str, str] | None = None) -> ChatCall:
    raw = json.dumps(fields).encode()
    return parse_messages(raw, headers or {}, request_id="r", tokens_max=1000, timeout_s=9.0)


def message(**fields: Any) -> dict[str, Any]:
    return {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]} | fields


@given(bodies())
def test_what_the_sdk_may_send_is_taken(body):
    """A body that fits the SDK's own types becomes a request with all of its texts, calls and results."""
    PARAMS.validate_python({**body, "stream": False})
    call = parse(body)
    told = json.dumps(call.request.messages, ensure_ascii=False)

    for said in texts_in(body["messages"]):
        assert json.dumps(said, ensure_ascii=False)[1:-1] in told
    used = [b["id"] for m in body["messages"] if isinstance(m["content"], list) for b in m["content"] if "input" in b]
    sent = [c["id"] for m in call.request.messages for c in m.get("tool_calls") or ()]
    answered = [m["tool_call_id"] for m in call.request.messages if m["role"] == "tool"]
    assert sent == used == answered


def texts_in(value: Any) -> list[str]:
    """All that is said in a conversation."""
    if isinstance(value, list):
        return [text for one in value for text in texts_in(one)]
    if not isinstance(value, dict):
        return []
    said = [value[name] for name in ("text", "thinking") if isinstance(value.get(name), str)]
    content = value.get("content")
    return said + ([content] if isinstance(content, str) else texts_in(content))


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A body with one value replaced by something strange, or a key dropped, anywhere in it."""
    body: Any = copy.deepcopy(draw(bodies()))
    at = body
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        if isinstance(at, dict) and draw(st.booleans()):
            del at[key]
        else:
            at[key] = draw(st.sampled_from(STRANGE))
        return dict(body)


@given(damaged())
def test_a_damaged_body_is_taken_or_refused_by_its_place(body):
    """Whatever is wrong in it, and wherever: a request, or an error whose `param` is a path of the client's own body
    (or of the fields that it lacks), at the head of its words. Never anything else."""
    error = find_error(body)
    if error is None:
        return
    assert error.status == 400
    assert error.message.startswith(error.param)
    assert error.param.split(".")[0] in {*body, "messages", "tools", "tool_choice", "output_config"}
    assert not error.param.startswith(("response_format", "stop."))
    assert ".function" not in error.param


def find_error(body: dict[str, Any]) -> ApiError | None:
    try:
        parse(body)
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, "tools.1.type"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [{**TOOL, "input_schema": {"type": "objec"}}]}, "tools.0.input_schema.type"),
        ({"tools": [{**TOOL, "name": ""}]}, "tools.0.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1.5}},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [*message()["messages"], {"role": "assistant", "content": "{"}]}, "messages.1.role"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"temperature": 2}, "temperature"),
        ({"thinking": {"type": "often"}}, "thinking.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"output_config": {"task_budget": {}}}, "output_config.task_budget"),
        ({"output_config": {"format": "json"}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": FORM | {"schema": {"type": 5}}}}, "output_config.format.schema.type"),
        ({"context_management": {"edits": [{"type": "compact_20300101"}]}}, "context_management.edits.0.type"),
        ({"compaction": {"type": "summarize"}, "context_management": {}}, "compaction"),
    ],
)
def test_what_cant_be_honoured_is_refused_by_name(fields, param):
    """The client's own path, in `param` and in the words."""
    refused = refusal_of(parse, message(**fields))
    assert refused.param == param
    assert refused.message.startswith(param)


@pytest.mark.parametrize(
    ("config", "noted"),
    [
        ({"task_budget": {"type": "tokens", "total": 64_000}}, ["output_config.task_budget"]),
        ({"task_budget": {"type": "tokens", "total": 64_000, "remaining": 5}}, ["output_config.task_budget"]),
        ({"task_budget": None, "effort": None, "format": None}, []),
        ({"effort": "high", "format": FORM}, []),
        ({"made_up": 1}, ["output_config.made_up"]),
        ({}, []),
    ],
)
def test_advice_in_output_config_is_noted(config, noted):
    """Law: what `output_config` asks for beyond effort and format is taken with a note, as fields that ask for speed
    are; null asks for nothing, and what every request has is not worth a note."""
    call = parse(message(output_config=config, speed="fast", metadata={"user_id": "u"}, service_tier="auto"))
    assert sorted(note.partition(" ")[0] for note in call.notes) == [*noted, "speed"]


@pytest.mark.parametrize(
    ("setting", "asked", "shown"),
    [
        (None, None, False),
        ({"type": "adaptive"}, None, True),
        ({"type": "adaptive", "display": "omitted"}, None, False),
        ({"type": "between_tools"}, None, True),
        ({"type": "enabled", "budget_tokens": 1024}, True, True),
        ({"type": "disabled"}, False, False),
    ],
)
def test_thinking_is_asked_for_and_shown_as_the_client_says(setting, asked, shown):
    """Thoughts are shown to who asks for them, and a model is asked for none where they are switched off."""
    call = parse(message(thinking=setting))

    assert (call.request.thinking, call.wanted.thinking) == (asked, shown)


def test_settings_are_those_of_the_request():
    """The cap, sampling, stops, the choice and the form arrive as a chat completion's."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    call = parse(
        message(
            max_tokens=7,
            temperature=0.5,
            top_k=40,
            top_p=0.9,
            stop_sequences=["END"],
            tools=[TOOL],
            tool_choice={"type": "tool", "name": "read_file", "disable_parallel_tool_use": True},
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )
    )
    request = call.request

    assert (request.max_tokens, request.temperature, request.top_p, request.stop) == (7, 0.5, 0.9, ("END",))
    assert request.extra == {"top_k": 40}
    assert request.tool_choice == {"type": "function", "function": {"name": "read_file"}}
    assert request.parallel_tool_calls is False
    assert request.response_format is not None
    assert request.response_format["json_schema"]["schema"] == schema
    assert [tool.name for tool in call.toolbox.tools] == ["read_file"]


def test_claude_codes_session_is_the_requests():
    """By its header, else by the session in `metadata.user_id`."""
    user = json.dumps({"device_id": "d", "session_id": "aebd75cc-c63e"})

    assert parse(message(metadata={"user_id": user})).request.session_id == "aebd75cc-c63e"
    assert parse(message(), {"x-claude-code-session-id": "s-1"}).request.session_id == "s-1"


@pytest.mark.parametrize(("config", "older"), [(FORM, None), ("low", FORM), (None, FORM)])
def test_a_form_is_a_response_format(config, older):
    """In its place of today and in its older one."""
    today = {"effort": config} if isinstance(config, str) else {"format": config}
    call = parse(message(output_config=today if config else None, output_format=older))

    assert call.request.response_format is not None
    assert call.request.response_format["json_schema"]["schema"] == FORM["schema"]


@given(st.dictionaries(st.text("xyz", min_size=8, max_size=200), st.just({}), max_size=40))
def test_notes_are_bounded(fields):
    """However many unknown fields a body has, and however long their names."""
    notes = parse(message(**fields)).notes

    assert len(notes) == min(NOTES_MAX, len(fields))
    assert all(len(note) <= 100 for note in notes)


def test_a_tool_is_a_function():
    """Name, description and schema are its own; what is for other servers stays behind. Nothing chooses by itself."""
    tool = TOOL | {"cache_control": MARKER, "strict": True, "eager_input_streaming": True}
    function = {"name": "read_file", "description": "Read a file.", "parameters": TOOL["input_schema"], "strict": True}

    request = parse(message(tools=[tool])).request
    assert request.tools == ({"type": "function", "function": function},)
    assert (request.tool_choice, request.parallel_tool_calls) == (None, None)
