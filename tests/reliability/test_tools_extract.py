"""Extraction by example: what is a call, what is malformed, what is prose, and what becomes of the text
around them."""

from __future__ import annotations

import json

import pytest

from reliability.tools import Extraction, RepairKind, extract_calls
from tests.reliability.extracting import BOX, CALL, calls, kinds
from tests.reliability.values import made


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>",
        f"<tool_call>{CALL}<tool_call>",
        f"<|tool_call|>[{CALL}]<|/tool_call|>",
        f"<tools_call>{CALL}</tools_call>".replace("tools_call", "tool_calls"),
        f"<TOOLCALL>[{CALL}]</TOOLCALL>",
        f"<scratch>{CALL}</scratch>",
        f"<|action_start|><|plugin|>{CALL}<|action_end|>",
        f"<tool_call>Here it is: {CALL}</tool_call>",
        f"<tool_call>{CALL}}}}}</tool_call>",
        f"<think>maybe <tool_call>{CALL}</tool_call></think>{CALL}",
        "```json\n" + CALL + "\n```",
        "```tool_code\nsearch(query='x')\n```",
        "{'name': 'search', 'arguments': {'query': 'x',},}",
        '{"function": {"name": "search", "arguments": {"query": "x"}}}',
        '{"tool_calls": [{"type": "function", "function": ' + CALL + "}]}",
        '{"tool_uses": [{"recipient_name": "functions.search", "parameters": {"query": "x"}}]}'.replace(
            "functions.", ""
        ),
        '{"role": "assistant", "content": null, "tool_calls": [' + CALL + "]}",
        '<tool_call>{"search": {"query": "x"}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x"}</tool_call>',
        '<tool_call>search{"query": "x"}</tool_call>',
        '[search]\n{"query": "x"}',
        'search[ARGS]{"query": "x"}',
        '[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"query": "x"}',
        '<function=search>{"query": "x"}</function>',
        "<function=search><parameter=query>x</parameter></tool_call>",
        '<function name="search"><param name="query"><![CDATA[x]]></param></function>',
        '<tool name="search" query="x" />',
        '<tool name="search" query="x"></tool>',
        "search <arg_key>query</arg_key> <arg_value>x</arg_value>",
        "call:search{query:<escape>x<escape>}",
        'call:search{<|"|>query<|"|>:<|"|>x<|"|>}',
        'Action: search\nAction Input: {"query": "x"}\n',
        '<|channel|>commentary to=search<|message|>{"query": "x"}<|call|>',
        "{name: 'search', arguments: {query: 'x'}}",
        '[search(query="x")]',
        "<tool_call>search(query='''x''')</tool_call>",
    ],
)
def test_one_call_in_many_disguises(text):
    """Envelopes, wrappers, missing tags, foreign keys and literals: one call, exactly, and no prose left."""
    found = extract_calls(text, BOX)

    assert [
        (call.name, call.arguments if isinstance(call.arguments, dict) else json.loads(call.arguments))
        for call in found.calls
    ] == [("search", {"query": "x"})]
    assert not found.malformed
    assert "search" not in found.text.replace("<think>maybe <tool_call>" + CALL + "</tool_call></think>", "")


@pytest.mark.parametrize(
    "text",
    [
        "I would search for it, then call get_time().",
        'The record is {"name": "Bob", "age": 3}.',
        'It says {"name": "search", "description": "finds things"}.',
        '{"type": "function", "name": "search", "parameters": {"type": "object", "properties": {}}}',
        '{"data": {"name": "search", "arguments": {"query": "x"}}}',
        '{"name": "unknown_tool", "arguments": {}} is how a call looks.',
        'Use the `<tool_call>` tag, or "<tool_call>".',
        "Write `<function=search>` first.",
        "In prose a <tool_call> is only a word.",
        "See [search](https://x/y) and [1].",
        "search\nis what I do { not }",
        f"<think>I could {CALL}</think> No.",
        "Action: think about it\nAction Input: none",
        "function search() { return { name: 1 } }",
        "{'a', 'b'} and {1: 2} and [x for x in y]",
        "[other(a=1)]",
        "get_time() is a function",
        "an empty text",
        '<invoke name="other"></invoke>',
        "call:other{a:1}",
        '[search]\n{"query": "x"} is a link and an object',
        "[note]\n{see below}",
        'The header to=functions.other {"a": 1}',
        "Hello <|im_end|>",
    ],
)
def test_prose_and_data_are_left_alone(text):
    """No mark and no declared name with a call's keys: nothing is found, and the text is as it came."""
    found = extract_calls(text, BOX)

    assert (found.calls, found.malformed, found.text) == ((), (), text)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "search", "arguments": {"query": "x',
        '<tool_call>{"name": "search", "arguments": {"query": "a "b" c"}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": 5*11}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x"}, "extra": 1}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x"}}, "limit": 3}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x"}}, "limit": 3}',
        '<tool_call>{"name": "search", "arguments": {"a": {"b": 1}, "c": 2}</tool_call>',
        '<tool_call>{"name": "get_time"</tool_call>',
        '<tool_call>{"name": "search"}</tool_call>',
        '<tool_call>{"query": "x", "limit": 1}</tool_call>',
        "<tool_call>I will now call the tool.</tool_call>",
        "<tool_call>",
        "<tool_call>\n<function=search>\n<",
        f"<tool_call>{CALL} and then {{}} </tool_call>",
        "<function=search><parameter=query>x</parameter>",
        "<function=search><parameter=query>x<parameter=limit>1</parameter></function>",
        "<function=search><parameter=query>x</parameter><parameter=query>y</parameter></function>",
        "<function=search><parameter=query>x",
        "<function=search>[1]</function>",
        "<function=sear",
        "<function=",
        '<function=search{"query": "x"}</function>',
        '{"name" "search", "arguments": {"query": "x"}}',
        '{"name": search", "arguments": {"query": "x"}}',
        "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value>",
        "<tool_call>search<arg_key>query</arg_key><arg_value>x</tool_call>",
        'search<arg_key>query</arg_key><arg_value>"x"</arg_value>',
        "<tool_call>search<arg_key>a</arg_key><arg_value>x</arg_value><arg_key>a</arg_key><arg_value>y</arg_value></tool_call>",
        '<tool name="search" query="a &amp; b" />',
        '<tool name="search" query="a" query="b" />',
        "call:search{query:bare words}",
        "call:search{query:<escape>x}",
        "call:search{query:1,query:2}",
        "call:search{query}",
        "call:search{query:[1 2]}",
        "call:search{query:" + "[" * 100,
        '[search("x")]',
        "[search(query=x)]",
        "[search(query='x', query='y')]",
        "[search(query='x' 'y')]",
        "[search(query='x'), 3]",
        "search[ARGS]{'query': ",
        '<tool_call>search({"query": "x"}</tool_call>',
        "Action: search\nAction Input: the weather in Lima",
        'Action: search\nAction Input: {"query": ',
        'to=functions.search {"query": ',
        '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": <|call|>',
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.search",
        '{"name": "search", "arguments": {"query": "x"',
        '{"action": "search", "query": "x"}',
        '{"tool": "search", "action": "go", "args": {"query": "x"}}',
        '{"name": "made_up", "arguments": {"query": "x"}}',
        "Something broke here }}</tool_call>",
        "[" + CALL + ', {"name": 3}]',
    ],
)
def test_what_looks_like_a_call_and_cant_be_read_is_reported(text):
    """Nothing is dropped in silence, and nothing is guessed: no call, and the raw text with a reason."""
    found = extract_calls(text, BOX)

    assert found.calls == ()
    assert len(found.malformed) == 1
    assert found.malformed[0].reason
    assert found.malformed[0].raw.strip()
    assert found.malformed[0].raw in text


def test_text_around_calls_is_kept_in_order():
    """Prose before, between and after calls stays; commas between calls and fences around them go."""
    found = extract_calls(f"First.\n```json\n{CALL}\n```\nThen:\n{CALL}, {CALL}\nDone.", BOX)

    assert len(found.calls) == 3
    assert found.before == "First."
    assert found.text == "First.\nThen:\nDone."


def test_repairs_of_the_reading_are_recorded():
    """Each thing that was mended while reading is named."""
    assert kinds(f"<tool_call>{CALL}") == {RepairKind.ENVELOPE}
    assert kinds(f"<tool_call>```json\n{CALL}\n```</tool_call>") == {RepairKind.FENCE}
    assert kinds(f"<tool_call>{CALL} ok</tool_call>") == {RepairKind.EXTRA_TEXT}
    assert kinds(f"<tool_call>so: well then {CALL}</tool_call>") == set()
    assert kinds("{'name': 'search', 'arguments': {'query': 'x'}}") == {RepairKind.LITERAL}
    assert kinds('{"name": "search", "arguments": {"query": "a\\d"}}') == {RepairKind.ESCAPE}
    assert kinds("[search(query='x')]") == set()
    assert kinds(f"[TOOL_CALLS]{CALL}") == set()
    assert kinds(f"<tool_call>{CALL}</tool_call>") == set()


def test_bare_values_take_the_type_that_the_schema_gives_them():
    """Text is text where a string is allowed; elsewhere it is a literal, or stays for the check to refuse."""
    text = (
        "<function=save>"
        + "".join(
            f"<parameter={key}>{value}</parameter>"
            for key, value in {
                "path": "007",
                "data": "{'a': True}",
                "tags": '[1, "x"]',
                "on": "yes",
                "mixed": "5",
                "size": "null",
                "new": "1",
            }.items()
        )
        + "</function>"
    )

    assert calls(text) == [
        (
            "save",
            {
                "path": "007",
                "data": {"a": True},
                "tags": [1, "x"],
                "on": "yes",
                "mixed": "5",
                "size": None,
                "new": "1",
            },
        )
    ]
    assert calls("<function=save><parameter=size>1.5 m</parameter></function>") == [("save", {"size": "1.5 m"})]
    assert calls("<function=nope><parameter=a>1</parameter></function>") == [("nope", {"a": "1"})]


def test_a_parameter_keeps_its_own_line_breaks():
    """One line break at each end is framing; every other one belongs to the value."""
    assert calls("<function=save>\n<parameter=path>\n\na\n\n</parameter>\n</function>") == [("save", {"path": "\na\n"})]


def test_invented_names_in_an_envelope_are_passed_on():
    """A strange name with a mark is a call for the check to refuse, not prose."""
    assert calls('<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>') == [("rm_rf", {})]
    assert calls('{"name": "rm_rf", "arguments": {}}\n</tool_call>') == [("rm_rf", {})]
    assert calls('<|channel|>commentary to=python<|message|>{"a": 1}<|call|>') == [("python", {"a": 1})]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}\n{CALL}</tool_call>",
        f"<tool_call>{CALL}, {CALL}",
        f"<tool_call>[{CALL}, {CALL}]</tool_call>",
        '[TOOL_CALLS]search[ARGS]{"query": "x"}search[ARGS]{"query": "x"}',
        '<minimax:tool_call><invoke name="search"><parameter name="query">x</parameter></invoke>\n'
        '<invoke name="search"><parameter name="query">x</parameter></invoke></minimax:tool_call>',
        "[search(query='x'), search(query='x')]",
        f"{CALL}\n{CALL}",
    ],
)
def test_one_envelope_may_hold_several_calls(text):
    """All calls of one envelope are found, however they are set apart; prose behind an open one stays."""
    assert calls(text) == [("search", {"query": "x"})] * 2
    assert calls(f"<tool_call>{CALL}\n[1, 2] and more") == [("search", {"query": "x"})]


def test_json_behind_a_name_and_in_parentheses():
    """`functions.name({...})` and a fenced object behind a name are calls of that tool."""
    assert calls('functions.search({"query": "x"})') == [("functions.search", {"query": "x"})]
    assert calls('search\n```json\n{"query": "x"}\n```') == [("search", {"query": "x"})]
    assert extract_calls('<tool_call>search(["x"])</tool_call>', BOX).malformed
    assert extract_calls('<tool_call>search[ARGS]["x"]</tool_call>', BOX).malformed


def test_harmony_messages_are_told_apart():
    """Thinking is reasoning, preambles and the final channel are text, a recipient makes a call."""
    found = extract_calls(
        "<|channel|>analysis<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        '{"query":"x"}'
        "<|call|>rest<|start|>assistant<|channel|>final<|message|>Bye.<|return|>",
        BOX,
    )

    assert found.reasoning == "Let me see."
    assert found.text == "I look.\nrest\nBye."
    assert [(call.name, call.arguments) for call in found.calls] == [("search", {"query": "x"})]


def test_harmony_marks_inside_a_call_are_its_text():
    """A call of another notation may write about Harmony."""
    inner = "<|start|>assistant<|channel|>final<|message|>x<|end|>"

    assert calls(f'<tool_call>{{"name": "search", "arguments": {{"query": "{inner}"}}}}</tool_call>') == [
        ("search", {"query": inner})
    ]


def test_model_ids_are_kept():
    """An id that stands next to a call comes with it."""
    assert extract_calls('{"id": "c1", "function": {"name": "search", "arguments": {}}}', BOX).calls[0].id == "c1"
    assert extract_calls("[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{}", BOX).calls[0].id == "abc123def"
    kimi = "<|tool_call_begin|>functions.search:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert [(call.name, call.id) for call in extract_calls(kimi, BOX).calls] == [("search", "functions.search:3")]


def test_a_lone_name_is_a_call_only_where_nothing_is_needed():
    """`{"name": ...}` without arguments: in an envelope or as the whole answer, for a tool that requires
    none."""
    assert calls('<tool_call>{"name": "get_time"}</tool_call>') == [("get_time", {})]
    assert calls('{"name": "get_time"}') == [("get_time", {})]
    assert calls('Then {"name": "get_time"} follows.') == []
    assert calls("<tool_call>get_time</tool_call>") == [("get_time", {})]


def test_without_tools_nothing_is_a_call():
    """No tools were declared: all text is text."""
    assert extract_calls(f"<tool_call>{CALL}</tool_call>", made([])).text == f"<tool_call>{CALL}</tool_call>"
    assert extract_calls("", BOX).text == ""


@pytest.mark.parametrize(
    "before",
    ["See {x} and [1]: ", "See {x and\n", "It has {a: b c} in it.\n", "{ return 1 } ", "[link](url) "],
)
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"<tool_call>{CALL}</tool_call>",
        '<|channel|>commentary to=functions.search<|message|>{"query": "x"}<|call|>',
    ],
)
def test_braces_in_the_prose_before_a_call_spoil_nothing(before, text):
    """What only looks like JSON is prose, and the call behind it is a call."""
    if before == "See {x and\n" and text.startswith("<|"):
        return  # an open brace: the marks may stand in the arguments of a call

    found = extract_calls(before + text, BOX)

    assert [call.name for call in found.calls] == ["search"]
    assert not found.malformed
    assert found.text == before.strip()


def test_a_mark_in_the_middle_of_a_line_opens_a_call_in_that_line_only():
    """A mark that prose mentions makes no call of the JSON that a later line shows."""
    data = '{"name": "made_up", "arguments": {}}'
    mentioned = f"I write <tool_call> now and then.\nMore of that, as an example: {data}"

    assert extract_calls(mentioned, BOX) == Extraction(text=mentioned)
    assert [call.name for call in extract_calls(f"So <tool_call> here it is: {data}", BOX).calls] == ["made_up"]
    assert [call.name for call in extract_calls(f"So <tool_call>\n{data}", BOX).calls] == ["made_up"]


def test_python_lines_are_calls_where_nothing_follows():
    """`f(a=1)` on a line of its own is a call at the end of an answer or in a fence for tool calls, else an example."""
    assert calls("I look it up:\nsearch(query='x')\nget_time()") == [("search", {"query": "x"}), ("get_time", {})]
    assert calls("So:\n```tool_code\nsearch(query='x')\n```\nDone.") == [("search", {"query": "x"})]
    assert calls("One writes\nsearch(query='x')\nto find things.") == []
    assert calls("```python\nsearch(query='x')\n```\nfinds things.") == []


def test_line_ends_of_windows_frame_a_parameter():
    """The line break that stands before and behind a parameter's text is no part of it, whichever it is."""
    for line_break in ("\n", "\r\n"):
        inner = line_break.join(["<parameter=query>", f"a{line_break}b", "</parameter>"])
        assert calls(f"<function=search>{inner}</function>") == [("search", {"query": f"a{line_break}b"})]
    assert calls("<function=search><parameter=query>\na\r\n</parameter></function>") == [("search", {"query": "a\r"})]


@pytest.mark.parametrize(("sent", "left"), [(0, "First.\nThen: Done."), (7, "Then: Done."), (12, "en: Done.")])
def test_what_has_left_is_not_given_back(sent, left):
    """Prose that a client has already is read, and not said again."""
    found = extract_calls(f"First.\n{CALL}Then: Done.", BOX, min(sent, 7) if sent < 8 else 7 + len(CALL) + 2)

    assert [call.name for call in found.calls] == ["search"]
    assert found.text == left
