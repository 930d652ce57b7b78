"""Bodies of `/v1/responses`: what each field becomes, and what is refused by which name."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.api.openai_responses.response_body import _translate_path, parse_response, translate_error
from deployments.api.openai_responses.stored_record import NeedsRecall
from deployments.errors import ApiError, refuse
from tests.support.refusing import refusal_of
from tests.support.response_wire import TOOLS, parse

FULL: dict[str, Any] = {
    "model": "fast",
    "instructions": "Be good.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "u"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "mlxs1.aGk="},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "custom_tool_call", "call_id": "c2", "name": "c", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "y"},
    ],
    "tools": [
        *TOOLS,
        {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "metadata": {"a": "b"},
    "max_output_tokens": 9,
    "temperature": 1,
    "top_p": 0.5,
    "top_logprobs": 2,
    "parallel_tool_calls": False,
    "truncation": "auto",
    "user": "u",
    "service_tier": "flex",
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "client_metadata": {"x": "y"},
    "seed": 7,
}
STRANGE: list[Any] = [None, 0, -1, 1.5, True, 10**30, "", "x", "\x00"]
STRANGE += [[], {}, [[]], [None], {"type": None}, {"type": "x"}]


def test_every_field_has_its_place():
    """A full request becomes the chat completion that means the same."""
    call = parse(FULL)
    request = call.request

    assert (call.model, call.stream, request.max_tokens, request.max_tokens_named) == ("fast", True, 9, True)
    assert (request.temperature, request.top_p, request.top_logprobs, request.seed) == (1.0, 0.5, 2, 7)
    assert request.parallel_tool_calls is False
    assert request.messages[0] == {"role": "system", "content": "Be good."}
    assert [message["role"] for message in request.messages[1:]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert request.messages[2]["reasoning_content"] == "hi"
    assert request.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}},
    }
    assert request.extra == {"reasoning_effort": "low", "verbosity": "low", "user": "u", "service_tier": "flex"}
    assert call.toolbox.names == ("f", "c", "g")


def test_what_has_no_effect_is_noted():
    """Nothing is dropped without a word."""
    notes = " ".join(parse(FULL | {"max_tool_calls": 3, "include": ["web_search_call.results"]}).notes)

    unheard = ("truncation", "reasoning.summary", "max_tool_calls", "web_search_call.results", "top_logprobs")
    assert all(word in notes for word in (*unheard, "kept from the model")), notes


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": None}, "invalid_request", "input"),
        ({"input": []}, "invalid_request", "input"),
        ({"input": 3}, "invalid_request", "input"),
        ({"background": True}, "unsupported", "background"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported", "prompt"),
        ({"conversation": "conv_1"}, "unsupported", "conversation"),
        ({"messages": []}, "invalid_request", "messages"),
        ({"max_tokens": 5}, "invalid_request", "max_tokens"),
        ({"max_output_tokens": 0}, "invalid_request", "max_output_tokens"),
        ({"temperature": 3}, "invalid_request", "temperature"),
        ({"include": ["x"]}, "invalid_request", "include.0"),
        ({"truncation": "x"}, "invalid_request", "truncation"),
        ({"text": {"format": {"type": "x"}}}, "invalid_request", "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "invalid_request", "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "invalid_request", "text.format.schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "x"}}}},
            "invalid_request",
            "text.format.schema.type",
        ),
        ({"reasoning": {"effort": 3}}, "invalid_request", "reasoning.effort"),
        ({"metadata": {"a": 3}}, "invalid_request", "metadata.a"),
        ({"tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]}, "invalid_tools", "tools.1.name"),
        (
            {"tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {"type": "x"}}]},
            "invalid_tools",
            "tools.1.parameters.type",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_not_found", "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "not_found", "input.0.id"),
    ],
)
def test_a_wrong_field_is_named(change, code, param):
    """The error names the field that the client has sent, in `param` and, but for what OpenAI words itself, in its
    text."""
    caught = refusal_of(parse, {"model": "fast", "input": "hi"} | change)
    assert (caught.code, caught.param) == (code, param)
    assert caught.message.startswith(f"{param}: ") or "not found." in caught.message


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the path of everything in a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*path, key)
        yield from list_places(child, (*path, key))


def change(path: tuple[Any, ...], *new: Any) -> dict[str, Any]:
    """Return the full body with something else at one place; without it where nothing is given."""
    body = copy.deepcopy(FULL)
    at: Any = body
    for key in path[:-1]:
        at = at[key]
    if new:
        at[path[-1]] = new[0]
    else:
        del at[path[-1]]
    return body


def find_refusal(body: Any) -> ApiError | None:
    """Parse a body; return why it is refused."""
    try:
        parse_response(json.dumps(body).encode(), {}, request_id="r", tokens_max=9, timeout_s=1.0)
    except ApiError as error:
        return error
    except NeedsRecall:
        return None
    return None


def is_well_refused(refusal: ApiError | None) -> bool:
    """Whether a refusal, if there is one, is a 4xx; the field that it names is one that the client may have sent."""
    if refusal is None or refusal.param is None:
        return refusal is None or refusal.code == "invalid_json"
    return 400 <= refusal.status < 500 and refusal.param.partition(".")[0] not in HIDDEN


PLACES = list(list_places(FULL))
# Names that only the translation has.
HIDDEN = {"messages", "response_format", "max_tokens", "max_completion_tokens", "logprobs", "reasoning_effort"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(sorted(FULL)), inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_a_strange_value_anywhere_is_a_4xx(path):
    """Whatever stands at a place of the body, it is taken, or refused with a path that the body has: never a crash,
    never a path of the translation."""
    bodies = [change(path), *(change(path, value) for value in STRANGE)]

    assert [body for body in bodies if not is_well_refused(find_refusal(body))] == []


FIELDS = st.sampled_from(sorted({*FULL, "previous_response_id", "store", "background"}))


@given(st.builds(change, st.sampled_from(PLACES), JSON) | st.dictionaries(FIELDS, JSON))
def test_any_body_is_a_4xx(body):
    """As above, with a generated value anywhere, and for bodies that are strange throughout."""
    assert is_well_refused(find_refusal(body))


def test_nothing_is_stored_where_nothing_shall_be():
    """`store: false` leaves no input to keep, and the response says so. A request of several megabytes is answered and
    not kept, and the report says so."""
    small, large = parse({"input": "hi", "store": False}), parse({"input": "x" * (5 << 20)})
    assert (small.wanted.items, small.wanted.echo["store"], large.wanted.items) == (None, b"false", None)
    assert parse({"input": "hi"}).wanted.items is not None
    assert any(note.startswith("store: ") for note in large.notes)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        *((path, "input") for path in ("messages", "messages.3.content", "messages[3].content")),
        ("tools.0.function.parameters.type", "tools.2.parameters.type"),
        ("tools.0.name", "tools.2.name"),
        ("tools.1.function.name", "tools.4.tools.1.name"),
        ("tools.7.name", "tools"),
        ("tools", "tools"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.tools", "tool_choice.tools"),
        ("response_format.json_schema.schema.x", "text.format.schema.x"),
        ("max_completion_tokens", "max_output_tokens"),
        ("reasoning_effort", "reasoning.effort"),
        ("seed", "seed"),
    ],
)
def test_a_path_is_the_clients(path, own):
    """Every path of a chat completion has its counterpart in what the client has sent; where nobody knows which tools
    were kept from the model, no place is better than a wrong one."""
    assert _translate_path(path, ["2", "4.tools.1"]) == own
    assert _translate_path("tools.0.function.name") == "tools"


parts = st.sampled_from(["tools", "messages", "response_format", "json_schema", "function", "name", "type", "0", "1",
                         "7", "tool_choice", "max_tokens", "parameters", "format", "input", "seed"])  # fmt: skip
paths = st.lists(parts, min_size=1, max_size=5).map(".".join)


@given(paths, st.none() | st.lists(st.sampled_from(["0", "3", "9", "4.tools.1"]), max_size=3))
@example("tools.0.function.name", ["3"])
@example("tools.0", ["0"])
def test_what_was_translated_stays(path, places):
    """The parser translates its errors, where it knows the places of the tools, and the answer is written by who
    doesn't: the tool that is wrong is still named."""
    once = _translate_path(path, places)

    assert _translate_path(once) == once


@pytest.mark.parametrize(
    ("param", "message", "own"),
    [
        ("messages", "messages: too long", "input: too long"),
        ("messages.0.role", "messages.0.role: wrong", "input: wrong"),
        ("messages", "too long", "too long"),
        ("messages.0", "messages: wrong", "input: wrong"),
    ],
)
def test_a_text_begins_with_the_clients_path(param, message, own):
    """`param` and text agree."""
    error = translate_error(ApiError("unsupported", message, param=param, retry_after_s=3.0))

    assert (error.message, error.param, error.retry_after_s) == (own, "input", 3.0)


@pytest.mark.parametrize("name", [None, "functions", "function_call"])
def test_what_the_translation_never_writes_keeps_its_name(name):
    """An error names the field that the client has sent, where it has one."""
    error = translate_error(ApiError("invalid_request", f"{name}: a field of chat completions", param=name))
    assert (error.param, str(error)) == (name, f"{name}: a field of chat completions")
    assert refuse("input.0", "wrong").message == "input.0: wrong"
