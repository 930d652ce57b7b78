"""From bytes to a request."""

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_chat import DEPTH_MAX, parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.errors import ApiError
from tests.support.refusing import refusal_of

HI = [{"role": "user", "content": "hi"}]


def parse(headers: dict[str, str] | None = None, **fields: Any):
    body = json.dumps({"messages": HI} | fields).encode()
    return parse_chat(body, headers or {}, request_id="r", tokens_max=100, timeout_s=9.0)


def test_fields_arrive_where_the_tiers_read_them():
    """Known fields under their names, unknown ones in `extra`, and nothing twice."""
    request = parse(temperature=0.5, top_p=0.9, seed=3, stop="x", made_up={"a": 1}, user="u").request

    assert (request.temperature, request.top_p, request.seed, request.stop) == (0.5, 0.9, 3, ("x",))
    assert request.extra == {"made_up": {"a": 1}, "user": "u"}


def test_probabilities_are_asked_for_by_two_fields():
    """`logprobs` switches them on, `top_logprobs` says how many others to name; one without the other is a mistake."""
    assert parse().request.top_logprobs is None
    assert parse(logprobs=False, top_logprobs=0).request.top_logprobs is None
    assert parse(logprobs=True).request.top_logprobs == 0
    assert parse(logprobs=True, top_logprobs=20).request.top_logprobs == 20
    for fields in ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": True, "top_logprobs": -1}):
        refused = refusal_of(parse, **fields)
        assert (refused.code, refused.param) == ("invalid_request", "top_logprobs")


@pytest.mark.parametrize(("given", "read"), [(0, 1e-6), (0.0, 1e-6), (0.9, 0.9), (1, 1.0), (None, None)])
def test_a_top_p_of_zero_asks_for_the_most_likely_token(given, read):
    """Law: the three APIs allow it, and each tier gets a number that means the same to all that may stand behind it."""
    terms: Any = {"request_id": "r", "tokens_max": 100, "timeout_s": 9.0}
    bodies = {parse_chat: {"messages": HI}, parse_messages: {"messages": HI, "max_tokens": 9}}
    for parse_dialect, body in {**bodies, parse_response: {"input": "hi", "store": False}}.items():
        call = parse_dialect(json.dumps(body | {"top_p": given}).encode(), {}, **terms)
        assert call.request.top_p == read


WRONG_IN_ONE_FORM = [
    ({"stop": ["a"] * 17}, "stop", "at most 16 items"),
    ({"stop": ["a", ""]}, "stop.1", "at least 1 character"),
    ({"stop": [1]}, "stop.0", "valid string"),
    ({"stop": 1}, "stop", "valid string"),
    ({"messages": [{"role": "user", "content": ["hi"]}]}, "messages.0.content.0", "valid dictionary"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content", "valid string"),
    ({"messages": HI, "tools": 5, "stop": ["a"] * 17}, "stop", "at most 16 items"),
]


@pytest.mark.parametrize(("fields", "param", "words"), WRONG_IN_ONE_FORM)
def test_a_field_of_two_forms_is_told_what_is_wrong_in_its_own(fields, param, words):
    """Law: a list is told of its items and its length, not that it is no text."""
    with pytest.raises(ApiError, match=words) as refused:
        parse(**fields)
    assert refused.value.param == param


def test_the_output_cap():
    """`max_completion_tokens` goes before `max_tokens`; the cap bounds both and is the default, and what -1 means."""
    assert parse().request.max_tokens == 100
    assert parse(max_tokens=7).request.max_tokens == 7
    assert parse(max_tokens=7, max_completion_tokens=8).request.max_tokens == 8
    assert parse(max_tokens=1000).request.max_tokens == 100
    assert (parse(max_tokens=-1).request.max_tokens, parse(max_tokens=-1).request.max_tokens_named) == (100, False)


def test_legacy_functions_become_tools():
    """`functions` and `function_call` are translated at the edge; an answer to them has room for one call."""
    call = parse(functions=[{"name": "f"}], function_call={"name": "f"})

    assert call.wanted.legacy_functions
    assert call.request.tools == ({"type": "function", "function": {"name": "f"}},)
    assert call.request.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert call.request.parallel_tool_calls is False
    assert parse(functions=[{"name": "f"}], parallel_tool_calls=True).request.parallel_tool_calls is False
    assert parse(parallel_tool_calls=True).request.parallel_tool_calls is True


F = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ANTHROPIC = {"name": "f", "description": "d", "input_schema": F["parameters"]}
MCP = {"name": "f", "description": "d", "inputSchema": F["parameters"]}
SERVED = ("web_search_20250305", "web_search", "web_search_preview", "web_fetch_20250910", "code_execution_20250825")


@pytest.mark.parametrize("single", [None, False, True])
@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_a_choice_in_anthropic_s_words_is_that_of_chat_completions(choice, meant, single):
    """Law: it is sent as OpenAI's API knows it, and so is `disable_parallel_tool_use`, from Messages too."""
    given = choice if single is None else {**choice, "disable_parallel_tool_use": single}
    body = json.dumps({"messages": HI, "max_tokens": 9, "tools": [ANTHROPIC], "tool_choice": given}).encode()
    of_messages = parse_messages(body, {}, request_id="r", tokens_max=100, timeout_s=9.0)
    for request in (parse(tools=[ANTHROPIC], tool_choice=given).request, of_messages.request):
        assert (request.tool_choice, request.parallel_tool_calls) == (meant, False if single else None)
    for wrong in ({"type": "tool"}, {"type": "auto", "disable_parallel_tool_use": "no"}, {"type": "tool", "name": "g"}):
        refused = refusal_of(parse, tools=[ANTHROPIC], tool_choice=wrong)
        assert refused.status == 400


NAMED = {"type": "function", "function": {"name": "f"}}
CHOICES: list[tuple[Any, Any]] = [
    *(("auto", "auto"), ("required", "required"), ("any", "required")),
    ({"type": "function", "name": "f", "function": "f"}, NAMED),
    *(({"type": word}, "required" if word == "any" else word) for word in ("auto", "none", "required", "any")),
    *(({"function": {"name": "f"}, **kind}, NAMED) for kind in ({}, {"type": "tool"}, {"type": "function"})),
    *(({"name": "f", **kind}, NAMED) for kind in ({}, *({"type": word} for word in ("tool", "function", "custom")))),
    ({"type": "function", "function": "f"}, NAMED),
    *(
        (form, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}})
        for tool in (NAMED, {"type": "function", "name": "f"}, {"name": "f"}, {"function": {"name": "f"}})
        for inner in ({"mode": "required", "tools": [tool]},)
        for form in ({"type": "allowed_tools", **inner}, {"type": "allowed_tools", "allowed_tools": inner})
    ),
]


@pytest.mark.parametrize(("choice", "meant"), CHOICES)
def test_a_choice_of_any_form_goes_on_in_that_of_chat_completions(choice, meant):
    """Law: a choice whose meaning is clear is sent in OpenAI's form, whichever form the client's tool has."""
    for tool in (F, ANTHROPIC, {"type": "function", "function": F}, {"type": "tool", "function": F}):
        assert parse(tools=[tool], tool_choice=choice).request.tool_choice == meant


@pytest.mark.parametrize("choice", [{}, {"type": "tool"}, {"type": "function"}, {"name": "g"}, {"function": {}}])
def test_a_choice_that_names_no_tool_is_refused_by_name(choice):
    """Law: the client is told that the name is missing or wrong."""
    refused = refusal_of(parse, tools=[F], tool_choice=choice)
    assert (refused.status, str(refused.param).rsplit(".")[-1]) == (400, "name")


@pytest.mark.parametrize(
    "choice",
    [{"type": "mcp", "server_label": "x"}, {"type": "web_search"}, {"type": "custom", "custom": {"name": "f"}}],
)
def test_a_choice_of_a_kind_that_is_not_had_is_refused_by_kind(choice):
    """Law: a choice without a name that a tool here could have is told of its kind, not of a name."""
    with pytest.raises(ApiError, match=choice["type"]) as refused:
        parse(tools=[F], tool_choice=choice)
    assert (refused.value.code, refused.value.param) == ("unsupported", "tool_choice.type")


SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
FLAT = [{"name": "f", "description": "d", key: F["parameters"]} for key in SCHEMA_KEYS]


@pytest.mark.parametrize(
    "tool",
    [
        *({**kind, "function": tool} for tool in FLAT for kind in ({}, {"type": "function"}, {"type": "tool"})),
        *({**kind, **tool} for tool in FLAT for kind in ({}, *({"type": k} for k in ("function", "tool", "custom")))),
        {**MCP, "title": "F", "annotations": {"readOnlyHint": True}},
        {"type": "function", **MCP, "parameters": None},
    ],
)
def test_a_tool_with_a_schema_is_a_function_whatever_it_calls_itself(tool):
    """Law: each tier gets exactly OpenAI's form, with the marker for the cache, and its schema is what calls are
    judged by."""
    call = parse(tools=[tool])
    assert call.request.tools == ({"type": "function", "function": F},)
    assert call.toolbox.tools[0].parameters["properties"] == F["parameters"]["properties"]
    assert parse(tools=[{**F, "cache_control": {"type": "ephemeral"}}]).request.tools[0]["cache_control"]


# Anthropic's tools that its client runs by a schema that only Claude knows, and what OpenAI has beside functions.
WITHOUT_A_SCHEMA: list[dict[str, Any]] = [
    *({"type": f"{name}_20250124", "name": name} for name in ("bash", "text_editor", "computer", "memory")),
    *({"type": kind} for kind in ("file_search", "code_interpreter", "computer_use_preview", "local_shell", "shell")),
    {"type": "mcp", "server_label": "x", "server_url": "u"},
    {"type": "namespace", "name": "x", "tools": [F]},
    {"type": "custom", "name": "f", "description": "d"},
    {"type": "custom", "name": "f", "format": {"type": "text"}},
    {"type": "custom", "custom": {"name": "f", "description": "d"}},
]


@pytest.mark.parametrize("before", [[], [F], [{"type": "web_search"}, F]])
@pytest.mark.parametrize("tool", WITHOUT_A_SCHEMA)
def test_a_tool_without_a_schema_is_refused_by_its_kind(tool, before):
    """Law: it is no function without parameters, which could only be called with `{}`; the error names the kind and the
    client's place of it, and is that of Messages where the tool is Anthropic's. A function may have no parameters."""
    with pytest.raises(ApiError, match=tool["type"]) as refused:
        parse(tools=[*before, tool])
    assert (refused.value.code, refused.value.param) == ("unsupported", f"tools.{len(before)}.type")
    if tool["type"].endswith("_20250124"):
        body = json.dumps({"messages": HI, "max_tokens": 9, "tools": [*map(dict, [ANTHROPIC] * len(before)), tool]})
        of_messages = refusal_of(parse_messages, body.encode(), {}, request_id="r", tokens_max=100, timeout_s=9.0)
        assert (of_messages.code, of_messages.message) == (refused.value.code, refused.value.message)
    for bare in ({"name": "f"}, {"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}):
        assert parse(tools=[bare]).request.tools[0]["function"]["name"] == "f"


@given(st.lists(st.sampled_from((*SERVED, None)), min_size=1, max_size=6))
def test_a_tool_that_another_server_runs_is_left_out(kinds):
    """Law: it is kept from the model, with a note; alone it is refused; an error names the client's place."""
    tools = [
        {"name": f"f{at}", "input_schema": {}} if kind is None else {"type": kind, "name": "x", "max_uses": 3}
        for at, kind in enumerate(kinds)
    ]
    own = [at for at, kind in enumerate(kinds) if kind is None]
    if not own:
        refused = refusal_of(parse, tools=tools)
        assert (refused.code, refused.param) == ("unsupported", "tools.0.type")
        return
    call = parse(tools=tools)
    assert [tool["function"]["name"] for tool in call.request.tools] == [f"f{at}" for at in own]
    noted = [kind for kind in SERVED if any(kind in note for note in call.notes)]
    assert noted == [kind for kind in SERVED if kind in str(kinds)]
    tools[own[-1]]["input_schema"] = {"type": "objec"}
    refused = refusal_of(parse, tools=tools)
    assert str(refused.param).startswith(f"tools.{own[-1]}.")


@pytest.mark.parametrize("where", ["messages", "tools", "made_up"])
@pytest.mark.parametrize("kind", [list, dict])
def test_a_body_has_a_depth(where, kind):
    """What is nested deeper than the bound is refused at the edge, wherever it stands; what isn't can be pickled and
    dumped further in."""

    def deep(levels: int) -> Any:
        return [] if not levels else [deep(levels - 1)] if kind is list else {"a": deep(levels - 1)}

    def fields(levels: int) -> dict[str, Any]:
        x = deep(levels)
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "x": x}}}
        return {
            "messages": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "x": x}]}]},
            "tools": {"tools": [tool]},
            "made_up": {"made_up": x},
        }[where]

    # A schema has a bound of its own, below this one.
    request = parse(**fields(20 if where == "tools" else DEPTH_MAX - 10)).request
    assert pickle.loads(pickle.dumps(request)) == request
    for levels in (DEPTH_MAX, 260, 600):
        refused = refusal_of(parse, **fields(levels))
        assert refused.status == 400


def test_null_is_as_good_as_absent():
    """Law: clients send null for what they don't set, also in a tool, and no tier hears of it. A chat template joins a
    description to texts, and an upstream may refuse a field that it doesn't know, whatever its value."""
    names = ("tools", "stop", "max_tokens", "stream", "temperature", "response_format", "tool_choice")
    others = ("logit_bias", "user", "metadata", "made_up")
    plain = {"type": "function", "function": {"name": "f"}}
    unset = dict.fromkeys(("description", "strict", "parameters"))

    call, bare = parse(**dict.fromkeys([*names, *others])), parse()
    assert replace(call, request=replace(call.request, body_bytes=bare.request.body_bytes)) == bare
    for tool in ({**plain, "function": {"name": "f"} | unset}, {"type": "function", "name": "f"} | unset):
        assert parse(tools=[tool]).request.tools == (plain,)


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_a_schema_beside_the_type_is_the_schema(kind):
    """Law: `schema` stands where llama.cpp, Together and Fireworks have it, and is what OpenAI's form of it is; in that
    form the request goes on, and the answer is judged by it. A schema that can't be is refused."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    formal = parse(response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})
    called = parse(response_format={"type": kind, "schema": schema})

    assert called.request.response_format == formal.request.response_format
    assert called.form is not None
    assert [bool(called.form.judge(text)[1].violations) for text in ('{"city": "Oslo"}', '{"town": 1}')] == [
        False,
        True,
    ]
    with pytest.raises(ApiError, match="type"):
        parse(response_format={"type": kind, "schema": {"type": "strange"}})
