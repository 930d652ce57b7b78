"""Deferred tools: which stay, how the others are listed, and what a load is answered."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.deferred_tools import (
    LINE_CHARS_MAX,
    LIST_CHARS_MAX,
    LOADERS,
    NAMES_MAX,
    SYSTEM_NAMED_CHARS_ALL,
    SYSTEM_NAMED_CHARS_MAX,
    TOOLS_MIN,
    answer_load,
    build_loader,
    choose_kept,
    choose_loader,
    find_named,
    take_load,
)
from reliability.tool_calls import Extraction, RawCall
from reliability.tools import ToolBox, build_toolbox
from tests.support.many_tools import TOOLS, make_call, make_tool
from tests.support.tier_asking import ask

NAMES = [tool["function"]["name"] for tool in TOOLS]
BOX = build_toolbox([*TOOLS, build_loader(LOADERS[0], ())])
assert isinstance(BOX, ToolBox)
REQUEST = ask(tools=TOOLS)
NAMED = {"type": "function", "function": {"name": "tool_3"}}
FORM = {"type": "json_object"}


@pytest.mark.parametrize(("change", "loader"), [
    ({}, "load_tools"), ({"tool_choice": "required"}, "load_tools"), ({"tool_choice": NAMED}, "load_tools"),
    ({"tool_choice": "none"}, ""), ({"response_format": FORM}, ""), ({"tools": TOOLS[: TOOLS_MIN - 1]}, ""),
    ({"tools": tuple({"type": "function", "function": {"name": name}} for name in NAMES)}, ""),
    ({"tools": (*TOOLS, make_tool(LOADERS[0]))}, LOADERS[1]), ({"tools": (*TOOLS, *map(make_tool, LOADERS))}, ""),
])  # fmt: skip
def test_tools_are_deferred_where_it_pays(change: dict[str, Any], loader: str) -> None:
    """Law: few or short tools, a form and forbidden calls are left alone; the client's own tool keeps its name."""
    assert choose_loader(replace(REQUEST, **change)) == loader


def test_what_is_used_or_named_is_kept() -> None:
    """Law: calls of the history, whole words of the system and the user, and the tool that is demanded; no part of a
    word, no word of a result or of the model. A long definition isn't kept for the words of the system, or of the
    harness in the user's name: agents name all."""
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Begin with `tool_1`."}]},
        {"role": "user", "content": "Use tool_12, not my_tool_4 and tool_55."},
        {"role": "assistant", "content": "tool_5", "tool_calls": [make_call("tool_2", "c", number=1)]},
        {"role": "tool", "tool_call_id": "c", "content": "tool_6"},
    ]
    assert choose_kept(messages, TOOLS, NAMED) == {"tool_1", "tool_12", "tool_2", "tool_3"}
    long = {"description": "x" * SYSTEM_NAMED_CHARS_MAX}
    tools = [{"function": tool["function"] | long} for tool in TOOLS]
    assert choose_kept(messages, tools, NAMED) == {"tool_12", "tool_2", "tool_3"}
    reminder = {"role": "user", "content": "<system-reminder>\nUse tool_4.\n</system-reminder>"}
    assert choose_kept([reminder], TOOLS, None) == {"tool_4"}
    assert not choose_kept([reminder], tools, None)
    assert (find_named(NAMED), find_named("required"), find_named(None)) == ("tool_3", "", "")


@given(st.lists(st.integers(0, 4), min_size=len(NAMES), max_size=len(NAMES)), st.integers(0, len(NAMES) - 1))
def test_what_the_system_names_most_often_is_kept_while_there_is_room(times: list[int], user: int) -> None:
    """Law: of the tools that only the system names, those named most often are kept, up to a limit in all, and none
    is left out for one named less often that is as long; what the user names is kept beyond it."""
    said = {name: count for name, count in zip(NAMES, times, strict=True) if count and name != NAMES[user]}
    words = " ".join(name for name, count in said.items() for _ in range(count))
    messages = [{"role": "system", "content": words}, {"role": "user", "content": NAMES[user]}]
    kept = choose_kept(messages, TOOLS, None)
    length = {tool["function"]["name"]: len(json.dumps(tool, ensure_ascii=False)) for tool in TOOLS}

    assert NAMES[user] in kept
    ours = kept - {NAMES[user]}
    room = SYSTEM_NAMED_CHARS_ALL - sum(length[name] for name in ours)
    assert room >= 0
    for name in said.keys() - kept:
        assert length[name] > room
        assert all(said[name] <= said[one] or length[one] < length[name] for one in ours)


@given(st.lists(st.text(max_size=300), min_size=1, max_size=30), st.integers(1, 120))
def test_the_list_names_each_tool_and_is_bounded(words: list[str], times: int) -> None:
    """Law: a line for each tool, with its name; beyond the names, at most `LIST_CHARS_MAX`."""
    tools = [
        {"type": "function", "function": {"name": f"t{number}", "description": words[number % len(words)]}}
        for number in range(len(words) * times)
    ]
    text = build_loader("load_tools", tools)["function"]["description"]
    lines = [line for line in text.split("\n") if line.startswith("- t")]
    names = [tool["function"]["name"] for tool in tools]

    assert [line[2:].partition(":")[0] for line in lines] == names
    assert all(len(line) <= LINE_CHARS_MAX + len(name) + 4 for line, name in zip(lines, names, strict=True))
    assert sum(len(line) - len("- : ") for line in lines) <= max(LIST_CHARS_MAX, sum(map(len, names)))


@pytest.mark.parametrize("arguments", [
    '{"names": ["tool_1", "tool_2"]}', {"names": ["tool_1", "tool_2", "tool_1"]}, '{"names": "tool_1, tool_2"}',
    '["tool_1", "tool_2"]', {"names": '["tool_1", "tool_2"]'}, '{"name": "tool_1", "other": "tool_2"}',
])  # fmt: skip
def test_a_load_is_read_in_whatever_form(arguments: Any) -> None:
    """Law: the names that are asked for, each once, in their order."""
    load = RawCall(name="functions.load_tools", arguments=arguments)
    assert take_load("load_tools", BOX, Extraction(text=""), [load]) == (("tool_1", "tool_2"), Extraction(text=""), [])


def test_beside_a_call_a_load_is_dropped() -> None:
    """Law: a call of the client's goes before a load, wherever it stands."""
    load, call = RawCall(name="load_tools", arguments="{}"), RawCall(name="tool_1", arguments='{"number": 1}')
    nothing, both = Extraction(text=""), Extraction(text="", calls=(load, call))
    assert take_load("load_tools", BOX, nothing, [load, call]) == (None, nothing, [call])
    assert take_load("load_tools", BOX, both, [load]) == (None, Extraction(text="", calls=(call,)), [])
    assert take_load("load_tools", BOX, nothing, [call]) == (None, nothing, [call])
    assert take_load("load_tools", BOX, nothing, [load]) == ((), nothing, [])


def test_a_load_is_answered_with_definitions_and_reasons() -> None:
    """Law: each known tool's definition to the letter; of an unknown one that there is none; no more than
    `NAMES_MAX`; nothing asked for is said, too."""
    lines = answer_load(["tool_3", "toool_5", "TOOL-4"], TOOLS, BOX).split("\n")

    assert list(map(json.loads, lines[:2])) == [TOOLS[3], TOOLS[4]]
    assert len(lines) == 4
    assert lines[3].startswith("there is no tool named 'toool_5'; did you mean 'tool_5'")
    many = answer_load(NAMES, TOOLS, BOX).split("\n")
    assert len(many) == NAMES_MAX + 2
    assert str(NAMES_MAX) in many[-1]
    assert "names" in answer_load([], TOOLS, BOX)
