"""Tools of a message: which the model sees, and where the definitions stand that a client's own search has found."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.message_tools import WRITTEN_CHARS_MAX, MessageTools, read_message_tools
from deployments.errors import ApiError
from tests.support.refusing import refusal_of
from tests.unit.deployments.api.anthropic.test_messages_body import message, parse

HIDDEN = ("WebFetch", "Monitor", "CronList", "TaskStop")
SEARCH = {"name": "ToolSearch", "input_schema": {"type": "object"}}
PLACEHOLDER = {"name": "DeferredToolPlaceholder", "input_schema": {}, "defer_loading": True}
SERVED = {"type": "web_search_20250305", "name": "web_search"}
SERVED_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def hide(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"of": {"type": "string"}}}
    return {"name": name, "description": f"What {name} does.", "input_schema": schema, "defer_loading": True}


def refer(number: int, names: list[str]) -> dict[str, Any]:
    content = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": content}]}


def read(tools: list[Any], *messages: Any) -> MessageTools:
    return read_message_tools(tools, [{"role": "user", "content": "hi"}, *messages])


def list_names(read_tools: MessageTools) -> list[str]:
    return [tool["function"]["name"] for tool in read_tools.tools]


@given(st.lists(st.lists(st.sampled_from(HIDDEN), max_size=3), min_size=1, max_size=5))
def test_what_a_search_finds_stands_in_its_result(found: list[list[str]]) -> None:
    """Law: a deferred tool may be called once a result names it, its definition stands there once, and no later search
    changes a message before."""
    turns: list[MessageTools] = []
    for count in range(len(found) + 1):
        named = {name for names in found[:count] for name in names}
        tools = [SEARCH, PLACEHOLDER, *map(hide, sorted(named))]
        turns.append(read(tools, *(refer(number, names) for number, names in enumerate(found[:count]))))
        assert list_names(turns[-1]) == ["ToolSearch", *sorted(named)]
        assert turns[-1].searched == named
    for before, after in pairwise(turns):
        assert list(after.messages[: len(before.messages)]) == list(before.messages)
    for number, names in enumerate(found, start=1):
        blocks = turns[-1].messages[number]["content"][0]["content"]
        assert [json.loads(block["text"])["function"]["name"] for block in blocks] == [*dict.fromkeys(names)]


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        pytest.param([SEARCH, hide("Monitor")], ["ToolSearch"], id="not found yet"),
        pytest.param([hide("WebFetch"), hide("Monitor")], ["WebFetch", "Monitor"], id="none could be searched"),
        pytest.param([SERVED_SEARCH, hide("WebFetch"), SEARCH], ["WebFetch", "ToolSearch"], id="Anthropic's search"),
        pytest.param([SERVED, SEARCH], ["ToolSearch"], id="Anthropic's tool next to others"),
    ],
)
def test_a_tool_is_hidden_only_where_it_can_be_found(tools: list[Any], shown: list[str]) -> None:
    """Law: what no search here can load is shown at once; what Anthropic's servers run is left out, with a note."""
    given = read(tools)

    assert list_names(given) == shown
    assert bool(given.notes) == any("type" in tool for tool in tools)


def test_an_error_names_the_place_in_the_clients_list() -> None:
    """Law: tools that are left out don't count away the place of one that is wrong."""
    wrong = {"name": "g", "input_schema": {"type": "objec"}}
    refused = refusal_of(parse, message(tools=[SERVED, SEARCH, PLACEHOLDER, wrong]))
    assert refused.param == "tools.3.input_schema.type"


@pytest.mark.parametrize("name", [None, 5, ["a"], {"a": 1}, "", "WebFetch"])
def test_no_reference_is_read_as_another(name: Any) -> None:
    """Law: a reference to no declared tool changes nothing, whatever it holds."""
    given = read([SEARCH, hide("Monitor")], refer(0, [name]))

    assert list_names(given) == ["ToolSearch"]
    assert given.messages[1] == refer(0, [name])


def make_big(chars: int) -> dict[str, Any]:
    return hide("Monitor") | {"description": "x" * chars}


@pytest.mark.parametrize("references", [1, 2, 300])
def test_a_result_has_a_definition_once(references: int) -> None:
    """Law: however often one result names a tool, its definition takes its bytes once; what stands beside the
    references stays, as often as it does."""
    beside = [{"type": "text", "text": "found"}, {"type": "tool_reference", "tool_name": "nobody's"}]
    asked = refer(0, ["Monitor"] * references)
    asked["content"][0]["content"] += beside * 2

    given = read([SEARCH, make_big(5_000)], asked)

    written, *rest = given.messages[1]["content"][0]["content"]
    assert rest == beside * 2
    assert len(written["text"]) == given.written_chars
    assert 5_000 < given.written_chars < 6_000


@pytest.mark.parametrize("results", [1, 7, 200])
def test_a_definition_in_many_results_is_bounded(results: int) -> None:
    """Law: the definitions in all results together have at most so many characters, and a request with more of them is
    refused before one is written out. What a request takes counts them."""
    chars = WRITTEN_CHARS_MAX // results - 500
    asked = [refer(number, ["Monitor"] * 3) for number in range(results)]
    given = read([SEARCH, make_big(chars)], *asked)
    assert sum(len(one["content"][0]["content"][0]["text"]) for one in given.messages[1:]) == given.written_chars
    body = message(tools=[SEARCH, make_big(chars)])
    body["messages"] += asked
    assert parse(body).request.body_bytes > given.written_chars

    tracemalloc.start()
    with pytest.raises(ApiError) as refused:
        read([SEARCH, make_big(chars + 500)], *asked)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.param == "messages"
    assert taken < 4 * (chars + 500) + 1_000_000
