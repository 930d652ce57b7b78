"""Values, texts and tools that Hypothesis draws for the laws of tool calls."""

from typing import Any

from hypothesis import strategies as st

from reliability.tools import ToolBox, build_toolbox, id_source
from tests.support.renderings import schema_of, tool

IDS = id_source("laws")
NAMES = ("get_weather", "files.read", "Search-Web", "q7")

PIECES = (
    "\n", '"', "'", "\\", "{", "}", "[", "]", "```", "</tool_call>", "<think>", "[TOOL_REQUEST]", "é", "漢",
    "\U0001f600",
)  # fmt: skip
"""What breaks careless readers when it stands inside a string."""

MARKS = (
    *PIECES, "<tool_call>", "</think>", "<|channel|>commentary to=functions.get_weather", "<|message|>", "<|call|>",
    "<|start|>assistant", "[END_TOOL_REQUEST]", "[get_weather]", "<function=get_weather>", "<parameter=city>",
    "</parameter>", "</function>", "<arg_key>", "[ARGS]", "[TOOL_CALLS]", "get_weather", "get_weather(city='x')",
    "[get_weather(", '{"name": "get_weather", "arguments": ', '{"city": "Lima"}', '{"name": "Bob", "age": 3}',
    "call:get_weather{", '<|"|>', "functions.get_weather:0", "Action: get_weather\nAction Input: ", "```json\n", ", ",
    ": ", " ", "1", "True", "null", "/*", "//", "(", ")", "<｜tool▁call▁begin｜>", '<invoke name="get_weather">',
)  # fmt: skip
"""What calls are made of, for texts that are nearly calls."""

integers = st.integers(-(10**18), 10**18) | st.sampled_from([2**53 + 1, 2**64, 10**307, 10**309, -(10**309), 10**4_000])
"""Those of JSON have no end, and beyond 1e308 Python's can't become floats."""
numbers = integers | st.floats(allow_nan=False, allow_infinity=False)
strings = st.one_of(
    st.text(max_size=20), st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=5).map("".join)
)
scalars = st.one_of(st.none(), st.booleans(), numbers, strings)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
words = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True).filter(lambda word: word not in ("none", "true", "false"))
arguments = st.dictionaries(words, json_values, max_size=4)
nearly_calls = st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=14).map("".join)


_odd = st.sampled_from(["string", "object", "#", "#/x", "#/properties/a", "(a+)+", "[", True, 3, None, ["a"], ["null"]])
_keywords = (
    "type", "enum", "minimum", "pattern", "format", "$ref", "nullable", "required", "items", "dependencies",
)  # fmt: skip
schemas = st.recursive(
    st.dictionaries(st.sampled_from(_keywords), _odd, max_size=3),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "$defs": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "allOf": st.lists(inner, max_size=2),
            "items": inner,
            "nullable": st.booleans(),
            "type": st.sampled_from(["object", "OBJECT", "array", ""]),
        },
    ),
    max_leaves=6,
)


def box_for(**tools: dict[str, Any]) -> ToolBox:
    """A toolbox whose tools take exactly these values, blank strings too, next to another tool."""
    declared = [tool("other_tool", {"type": "object"})]
    for name, value in tools.items():
        schema = schema_of(value)
        for field in schema["properties"].values():
            field["description"] = "may be empty"
        declared.append(tool(name, schema))
    return made(declared)


def made(tools: Any, functions: Any = None) -> ToolBox:
    box = build_toolbox(tools, functions)
    assert isinstance(box, ToolBox), box
    return box
