"""Bad input is the client's 4xx, with the field; it never is a 500, and the server lives on."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import scripts
from tests.support.http_asking import ask, report_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.schema_attacks import RULES, object_of, strings, tools

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server(deploy):
    # No test here is about time: a large body may take its while on a busy machine.
    args = scripts.args(["fast"], server={"timeouts": scripts.QUICK | {"connect_s": 30.0}})
    args["tiers"]["fast"]["script"][:0] = RULES
    return deploy(args, "bad")


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f"} | function}]


# What is wrong in a request, and its place; None: the field isn't there.
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "hi"}),
    ("messages.0.role", {"messages": [{"content": "hi"}]}),
    ("messages.0.role", {"messages": [{"role": "wizard", "content": "hi"}]}),
    ("messages.0.content.0.type", {"messages": [{"role": "user", "content": [{"text": "x"}]}]}),
    ("messages.0.tool_calls.0.function.name", {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}),
    ("model", {"model": 5}),
    ("max_tokens", {"max_tokens": -2}),
    ("max_tokens", {"max_tokens": "5"}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("max_completion_tokens", {"max_completion_tokens": 0}),
    ("temperature", {"temperature": 9}),
    ("temperature", {"temperature": "hot"}),
    ("top_p", {"top_p": -0.1}),
    ("n", {"n": 2}),
    ("stream", {"stream": "yes"}),
    ("seed", {"seed": "x"}),
    ("tools", {"tools": {}}),
    ("tools.0.function", {"tools": [{"type": "function"}]}),
    ("tools.0.function.name", {"tools": tool(name="no spaces")}),
    ("tools.0.function.parameters", {"tools": tool(parameters=5)}),
    (
        "tools.0.function.parameters.properties.a.type",
        {"tools": tool(parameters={"type": "object", "properties": {"a": {"type": "strin"}}})},
    ),
    ("tools.0.function.parameters.type", {"tools": tool(parameters={"type": "string"})}),
    ("tools.1.function.name", {"tools": tool() * 2}),
    ("tool_choice", {"tools": tool(), "tool_choice": "perhaps"}),
    ("tool_choice.function.name", {"tools": tool(), "tool_choice": {"type": "function", "function": {"name": "g"}}}),
    ("tool_choice", {"tool_choice": "required"}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
    ("response_format.json_schema.schema", {"response_format": {"type": "json_schema"}}),
    ("functions", {"tools": tool(), "functions": [{"name": "f"}]}),
]


@pytest.mark.parametrize(("param", "fields", "stream"), take_turns(WRONG, STREAMS))
def test_a_wrong_field_is_named(server, param, fields, stream):
    """Each wrong field is a 400 with OpenAI's error shape, its code, and `param`; a retry is advised against."""
    body = {"stream": stream, "messages": HI} | fields
    response = server.post({key: value for key, value in body.items() if value is not None})
    error = response.json()["error"]

    code = "invalid_tools" if param.startswith("tools.") else "invalid_request"
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert response.headers["x-should-retry"] == "false"


def doubling(levels: int) -> dict[str, Any]:
    parts = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "place", "said"),
    [
        ({"$ref": "https://example.com/s.json"}, ".$ref", "only references inside the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, ".properties.a.$ref", "leads nowhere"),
        (doubling(30), "", "references multiply"),
        ({"type": "strange"}, ".type", "is no valid JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, ".properties.a.pattern", "is no regular expression"),
        (strings(30_000), "", "larger or deeper"),
    ],
)
def test_an_answers_schema_is_refused_by_its_place(server, schema, place, said):
    """`response_format` is held to the bounds of a tool's schema, on arrival. What a schema costs others is
    `test_on_ray`'s."""
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    response = server.post({"messages": HI, "response_format": wanted})
    error = response.json()["error"]

    assert (response.status_code, error["code"]) == (400, "invalid_request")
    assert error["param"].startswith("response_format.json_schema.schema" + place)
    assert said in error["message"]


def test_what_isnt_checked_is_said_in_the_report(server):
    """A pattern that no linear engine has is not asserted; the call leaves, with a note."""
    schema = object_of(q={"type": "string", "pattern": "(a)\\1"})
    outcome = ask(server, user("<bounded-repeats>"), model="fast", stream=False, tools=tools(schema))

    assert outcome.calls == [("f", {"q": "a" * 56 + "!"})]
    (note,) = report_of(server, outcome)["notes"]
    assert note == "not checked in the arguments of f: /properties/q/pattern: the pattern refers back to a group"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'"hi"', b"null", b"[" * 5000, b'{"messages": NaN}'])
def test_what_is_not_json_is_said_so(server, body):
    """A body that isn't a JSON object is `invalid_json`."""
    response = server.post(content=body)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


def write_long(size: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "x" * size}]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"messages": write_long(20_000_000)}, 413),  # over the bound of 10 MiB
        ({"messages": write_long(9_000_000)}, 200),  # no transport has a smaller bound than the configured one
        ({"messages": HI, "metadata": {"a": "b"}, "store": True, "made_up": [1]}, 200),  # fields that nobody knows
    ],
    ids=["huge", "large", "unknown"],
)
def test_a_body_is_answered_unless_it_is_huge(server, fields, status):
    """Over its bound a body is refused, and the next request is answered; a large one passes through the handle to the
    tier; clients send more fields than any documentation names."""
    response = server.post(fields)

    assert response.status_code == status
    assert status == 200 or response.json()["error"]["code"] == "body_too_large"
    assert server.post({"messages": HI}).status_code == 200


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20))
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
)
FIELDS = [
    "model", "messages", "stream", "stream_options", "max_tokens", "temperature", "top_p", "seed", "n", "stop", "tools",
    "tool_choice", "parallel_tool_calls", "response_format", "functions", "function_call", "user", "metadata",
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=6), st.booleans())
def test_no_body_is_a_500(server, fields, talks):
    """Whatever stands in the known fields, the answer is good or a 4xx."""
    body = {"messages": HI} | fields if talks else fields
    response = server.post(content=json.dumps(body).encode())

    assert response.status_code == 200 or 400 <= response.status_code < 500
