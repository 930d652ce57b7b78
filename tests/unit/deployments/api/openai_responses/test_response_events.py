"""Streams and answers of `/v1/responses`, against OpenAI's own typed models, order and accumulator."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from deployments.api.openai_render import COMMENTS_PER_EVENT, render_tokens
from deployments.api.openai_responses.response_events import RESPONSES, _explain_failure
from deployments.errors import TABLE, ApiError
from reliability.types import CallDelta, Finish, FinishReason, Logprobs, Reasoning, Text, TokenLogprob, Usage
from tests.support import response_wire
from tests.support.response_wire import ANY_ANSWERS, FINISHES, TOOLS, answer, ask, check_events, read_frames, stream

STOP = Finish(reason=FinishReason.STOP)
SEALED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
SUMMARY: dict[str, Any] = {"reasoning": {"summary": "auto"}}


@given(ANY_ANSWERS, FINISHES, st.sampled_from([{}, SEALED, SUMMARY, SEALED | SUMMARY]))
def test_a_stream_is_as_the_typed_models_have_it(batches, finish, asked):
    """Each event and each response in one has all that its model asks for and nothing of an unknown type; they come in
    OpenAI's order; what the deltas add up to is what the items say, and those are the response's."""
    check_events(stream(ask(**asked), batches, finish))


@given(ANY_ANSWERS, FINISHES)
def test_a_stream_says_what_the_whole_answer_says(batches, finish):
    """But for the moment, the last event's response is the one that isn't streamed."""
    call = ask(**SEALED)
    streamed, whole = stream(call, batches, finish)[-1]["response"], answer(call, batches, finish)
    response_wire.check_response(whole)

    assert streamed | {"created_at": 0, "completed_at": 0} == whole | {"created_at": 0, "completed_at": 0}


@given(ANY_ANSWERS, FINISHES)
def test_the_clients_accumulator_agrees(batches, finish):
    """What the openai SDK accumulates of the events has the same text and calls as the last of them."""
    events = stream(ask(), batches, finish)
    state = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))
    response = events[-1]["response"]
    grown = [item.to_dict() for _, item in sorted(state._completed_output.items())]

    assert grown == response["output"]
    if response["status"] == "completed":
        parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
        said = [part["text"] for part in parts if part["type"] == "output_text"]
        assert state._completed_response.output_text == "".join(said)


@given(ANY_ANSWERS, st.sampled_from(sorted(TABLE)), st.integers(0, 13))
def test_a_stream_that_breaks_off_ends_failed(batches, code, silent):
    """Whatever has left before, the stream is closed properly, says why in a code of OpenAI's, and has our own beside
    it; silence may have been all that came. Calls that came and didn't leave are not in the response."""
    writer = RESPONSES.writer(ask(), None)
    sent = b"".join(writer.silence("fast") for _ in range(silent))
    sent += b"".join(writer.chunks("fast", batch) for batch in batches)
    sent += writer.error(ApiError(code, "it broke", param="messages"), {"tier": "fast"})
    events = read_frames(sent)
    response = check_events(events)

    assert response["status"] == "failed"
    assert {item["type"] for item in response["output"]} <= {"message", "reasoning"}
    assert response["error"]["mlx_stack_code"] == code
    assert response["error"]["param"] == "input"
    assert events[-1]["mlx_stack"] == {"tier": "fast"}


@given(ANY_ANSWERS, st.lists(st.integers(0, 13), min_size=1, max_size=4))
def test_a_long_silence_has_events_in_it(batches, silences):
    """Law: clients that count events hear one in every few silences, wherever they fall, and the answer is the same."""
    writer = RESPONSES.writer(ask(), None)
    sent, heard = b"", 0
    for number, batch in enumerate(batches):
        silence = b"".join(writer.silence("fast") for _ in range(silences[number % len(silences)]))
        heard += silence.count(b"event: response.in_progress")
        sent += silence + writer.chunks("fast", batch)
    sent += writer.last("fast", STOP, {})
    told = sum(silences[number % len(silences)] for number in range(len(batches)))

    assert heard == told // COMMENTS_PER_EVENT
    assert check_events(read_frames(sent))["status"] == "completed"


@pytest.mark.parametrize("code", sorted(TABLE))
def test_only_what_passes_is_asked_for_again(code):
    """Codex gives up at `invalid_prompt` and asks again at every other code: what stays has that one. Where the time is
    known and the code is `rate_limit_exceeded` the text names it as Codex reads it."""
    failure = _explain_failure(ApiError(code, "it broke", retry_after_s=4.2))

    assert (failure["code"] == "invalid_prompt") is not TABLE[code].retry
    assert ("try again in 5s" in failure["message"]) is (failure["code"] == "rate_limit_exceeded")


def test_nothing_comes_as_an_empty_message():
    """A client that waits for a message finds one."""
    (item,) = answer(ask(), [], STOP)["output"]

    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_a_batch_is_one_delta_for_each_run():
    """Ten pieces of text are one event."""
    events = stream(ask(), [[Text("a")] * 10 + [Reasoning("b")] * 10], STOP)

    assert [event["delta"] for event in events if event["type"].endswith(".delta")] == ["a" * 10, "b" * 10]


def test_a_custom_tool_is_called_with_its_text():
    """Its call has the text itself and no JSON around it."""
    called = CallDelta(index=0, id="call_1", name="c", arguments='{"input": "a\\nb"}')
    (item,) = answer(ask(), [[called]], STOP)["output"]

    assert (item["type"], item["input"], item["call_id"]) == ("custom_tool_call", "a\nb", "call_1")


def test_a_tool_of_a_namespace_is_called_by_its_own_name():
    """Law: client and model each read and write their own names, in answers, streams and histories."""
    tools = [{"type": "namespace", "name": "mcp__s", "description": "d", "tools": TOOLS[:1]}]
    deltas = [[CallDelta(index=0, id="call_1", name="mcp__s__f", arguments="{}")]]
    (item,) = answer(ask(tools=tools), deltas, STOP)["output"]
    events = stream(ask(tools=tools), deltas, STOP)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    (message, _) = ask(tools=tools, input=[item, output]).request.messages

    assert (item["namespace"], item["name"]) == ("mcp__s", "f")
    assert [event["item"]["namespace"] for event in events if "item" in event] == ["mcp__s", "mcp__s"]
    assert message["tool_calls"][0]["function"]["name"] == "mcp__s__f"


def test_the_client_searches_its_tools():
    """Law: the model may call a `tool_search` that the client runs, and then each tool that it has found: definitions
    stand in the result, so that the prompt before stays what it was. Codex hides the tools of MCP servers so from the
    models that it knows, and nothing found them."""
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    search = {"type": "tool_search", "execution": "client", "description": "d", "parameters": schema}
    found = {"type": "namespace", "name": "mcp__s", "description": "d", "tools": [TOOLS[0] | {"defer_loading": True}]}
    deltas = [[CallDelta(index=0, id="call_1", name="tool_search", arguments='{"query": "f"}')]]
    (item,) = answer(ask(tools=[search]), deltas, STOP)["output"]
    events = stream(ask(tools=[search]), deltas, STOP)
    output = {"type": "tool_search_output", "execution": "client", "call_id": "call_1", "tools": [found]}
    call = ask(tools=[search], input=[item, output, item | {"call_id": "call_2"}, output | {"call_id": "call_2"}])
    messages = call.request.messages

    assert (item["type"], item["execution"], item["arguments"]) == ("tool_search_call", "client", {"query": "f"})
    assert [event["item"]["call_id"] for event in events if "item" in event] == ["call_1", "call_1"]
    assert json.loads(messages[0]["tool_calls"][0]["function"]["arguments"]) == {"query": "f"}
    assert json.loads(messages[1]["content"])["function"]["name"] == "mcp__s__f"
    assert call.toolbox.names == ("tool_search", "mcp__s__f")
    assert call.request.searched == {"mcp__s__f"}
    assert call.wanted.namespaces == {"mcp__s__f": ("mcp__s", "f")}


def test_tools_that_an_item_declares():
    """Law: tools that stand in the input are declared as if they stood in `tools`, the newest of each name: Codex sends
    them so for its own models, those of no namespace in that of `functions`. A call of one goes out by its own name,
    and is known by it when it comes back."""
    custom = {"type": "custom", "name": "exec", "description": "d"}
    item = {"type": "additional_tools", "role": "developer", "id": "at_1"}
    old = [{"type": "namespace", "name": "functions", "tools": [custom, TOOLS[0]]}]
    new = [
        {"type": "namespace", "name": "functions", "tools": [custom]},
        {"type": "namespace", "name": "n", "tools": TOOLS},
    ]
    hello = {"role": "user", "content": "hi"}
    asked = [item | {"tools": old}, hello, item | {"tools": new}]
    choice = {"type": "custom", "name": "exec"}
    deltas = [[CallDelta(index=0, id="call_1", name="exec", arguments='{"input": "ls"}')]]
    called = answer(ask(tools=[], input=asked, tool_choice=choice), deltas, STOP)["output"][0]
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "x"}
    again = ask(tools=[], input=[*asked, called, output])

    assert again.toolbox.names[0] == "exec"
    assert "n__f" in again.toolbox.names
    assert "f" not in again.toolbox.names
    assert (called["type"], called["name"], called.get("namespace"), called["input"]) == (
        "custom_tool_call",
        "exec",
        None,
        "ls",
    )
    assert again.request.messages[1]["tool_calls"][0]["function"]["name"] == "exec"
    assert [message["role"] for message in again.request.messages] == ["user", "assistant", "tool"]
    assert "input.0.tools" in " ".join(ask(input=[item, hello]).notes)


def test_what_an_agent_tells_another_is_read():
    """Law: a message of Codex's agents is a user's; what it calls sealed is plain where a model here wrote it, and
    named where another server sealed it."""
    parts = [
        {"type": "input_text", "text": "Task:"},
        {"type": "encrypted_content", "encrypted_content": "Look at a.py."},
    ]
    item = {"type": "agent_message", "author": "/lead", "recipient": "/lead/a", "content": parts}
    sealed = {"type": "encrypted_content", "encrypted_content": "gAAAAABxyz"}
    messages = ask(input=[item, item | {"content": [sealed]}]).request.messages

    assert [part["text"] for part in messages[0]["content"]] == ["Task:", "Look at a.py."]
    assert messages[1] == {"role": "user", "content": "[a text that another server has sealed]"}


def test_a_search_that_found_nothing_is_answered():
    """A result that isn't a list of tools is left out, with a note."""
    call = {"type": "tool_search_call", "execution": "client", "call_id": "call_1", "arguments": {}}
    output = {"type": "tool_search_output", "execution": "client", "call_id": "call_1"}

    assert ask(input=[call, output | {"tools": []}]).request.messages[1]["content"] == "No tools were found."
    assert "input.1.tools" in " ".join(ask(input=[call, output | {"tools": "x"}]).notes)


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        (FinishReason.LENGTH, "incomplete", {"reason": "max_output_tokens"}),
        (FinishReason.CONTENT_FILTER, "incomplete", {"reason": "content_filter"}),
        (FinishReason.STOP, "completed", None),
        (FinishReason.TOOL_CALLS, "completed", None),
    ],
)
def test_an_answer_that_was_cut_is_incomplete(reason, status, details):
    """It says why, and so does its last item."""
    response = answer(ask(), [[Text("so far")]], Finish(reason=reason))

    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert response["output"][-1]["status"] == status


def test_usage_is_told_in_the_words_of_the_api():
    """Cached tokens are a part of the input, reasoning tokens of the output."""
    usage = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=8, reasoning_tokens=3)

    assert answer(ask(), [[Text("a")]], Finish(reason=FinishReason.STOP, usage=usage))["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }


def test_probabilities_stand_with_their_text():
    """They are in the delta and in the complete part alike."""
    tokens = (TokenLogprob(b"\xc3", -0.5, ((b"e", -1.0),)),)
    events = stream(ask(), [[Text("é"), Logprobs(tokens)]], STOP)
    (delta,) = [event for event in events if event["type"] == "response.output_text.delta"]
    assert delta["logprobs"] == render_tokens(tokens)


def test_an_error_of_the_body_has_openais_shape():
    """`error_body` names the field as the client has it."""
    error = ApiError("context_length_exceeded", "messages: too long", param="messages")

    assert json.loads(json.dumps(RESPONSES.error_body(error, "r")))["error"] == {
        "message": "input: too long",
        "type": "invalid_request_error",
        "param": "input",
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize("code", [code for code, row in TABLE.items() if not row.retry])
def test_what_stays_has_a_status_that_codex_gives_up_at(code):
    """Of all errors that a request for an answer may end in and that no waiting mends, but for those of access and of
    the route, which no request of a set-up client meets."""
    status = RESPONSES.statuses.get(code, TABLE[code].status)

    assert status in (400, 401, 403, 404, 405, 431)
    others = ("invalid_api_key", "forbidden", "not_found", "method_not_allowed", "headers_too_large")
    assert (status == 400) == (code not in others)
