"""Extraction by example: what is a call, what is malformed, what is prose, and what becomes of the text
around them."""

import json

import pytest

from reliability.tool_calls import Uncertainty
from reliability.tools import Extraction, RepairKind, build_toolbox, extract_calls
from reliability.tools.extract import scanner
from reliability.tools.extract.delimiter_search import SPOT, find_delimiter_at
from reliability.tools.format_row import Reader
from tests.support.call_values import made
from tests.support.extracting import BOX, CALL, calls, kinds
from tests.support.streaming import cut_at, play, settled, whole


@pytest.mark.parametrize("text", [
    f"<tool_call>{CALL}<tool_call>", f"<|tool_call|>[{CALL}]<|/tool_call|>", f"<tool_calls>{CALL}</tool_calls>",
    f"<TOOLCALL>[{CALL}]</TOOLCALL>", f"<scratch>{CALL}</scratch>", f"<tool_call>Here it is: {CALL}</tool_call>",
    f"<tool_call>{CALL}}}}}</tool_call>",
    f"<think>maybe <tool_call>{CALL}</tool_call></think>{CALL}",
    "```json\n" + CALL + "\n```", "```tool_code\nsearch(query='x')\n```",
    "{'name': 'search', 'arguments': {'query': 'x',},}",
    '{"function": {"name": "search", "arguments": {"query": "x"}}}',
    '{"tool_calls": [{"type": "function", "function": ' + CALL + "}]}",
    '{"tool_uses": [{"recipient_name": "search", "parameters": {"query": "x"}}]}',
    '{"role": "assistant", "content": null, "tool_calls": [' + CALL + "]}",
    '<tool_call>{"search": {"query": "x"}}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": "x"}</tool_call>',
    '<tool_call>search{"query": "x"}</tool_call>',
    "<function=search><parameter=query>x</parameter></tool_call>",
    '<function name="search"><param name="query"><![CDATA[x]]></param></function>',
    '<tool name="search" query="x"></tool>', "search <arg_key>query</arg_key> <arg_value>x</arg_value>",
    'call:search{<|"|>query<|"|>:<|"|>x<|"|>}',
    '<|channel|>commentary to=search<|message|>{"query": "x"}<|call|>',
    "{name: 'search', arguments: {query: 'x'}}", "<tool_call>search(query='''x''')</tool_call>",
])  # fmt: skip
def test_one_call_in_many_disguises(text):
    """Envelopes, wrappers, missing tags, foreign keys and literals: one call, exactly, and no prose left."""
    found = extract_calls(text, BOX)
    assert [
        (call.name, call.arguments if isinstance(call.arguments, dict) else json.loads(call.arguments))
        for call in found.calls
    ] == [("search", {"query": "x"})]
    assert not found.malformed
    assert "search" not in found.text.replace("<think>maybe <tool_call>" + CALL + "</tool_call></think>", "")


@pytest.mark.parametrize("text", [
    "I would search for it, then call get_time().", 'The record is {"name": "Bob", "age": 3}.',
    'It says {"name": "search", "description": "finds things"}.',
    '{"type": "function", "name": "search", "parameters": {"type": "object", "properties": {}}}',
    '{"data": {"name": "search", "arguments": {"query": "x"}}}',
    '{"name": "unknown_tool", "arguments": {}} is how a call looks.',
    'Use the `<tool_call>` tag, or "<tool_call>".', "Write `<function=search>` first.",
    "In prose a <tool_call> is only a word.", "See [search](https://x/y) and [1].", "search\nis what I do { not }",
    "Action: think about it\nAction Input: none", "function search() { return { name: 1 } }",
    "{'a', 'b'} and {1: 2} and [x for x in y]", "[other(a=1)]", "get_time() is a function", "an empty text",
    '<invoke name="other"></invoke>', "call:other{a:1}", '[search]\n{"query": "x"} is a link and an object',
    "[note]\n{see below}", 'The header to=functions.other {"a": 1}', "Hello <|im_end|>",
])  # fmt: skip
def test_prose_and_data_are_left_alone(text):
    """No mark and no declared name with a call's keys: nothing is found, and the text is as it came."""
    found = extract_calls(text, BOX)
    assert (found.calls, found.malformed, found.text) == ((), (), text)


@pytest.mark.parametrize("text", [
    '<tool_call>{"name": "search", "arguments": {"query": "x',
    '<tool_call>{"name": "search", "arguments": {"query": "a "b" c"}}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": 5*11}}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": "x"}, "extra": 1}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": "x"}}, "limit": 3}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": "x"}}, "limit": 3}',
    '<tool_call>{"name": "search", "arguments": {"a": {"b": 1}, "c": 2}</tool_call>',
    '<tool_call>{"name": "get_time"</tool_call>', '<tool_call>{"name": "search"}</tool_call>',
    '<tool_call>{"query": "x", "limit": 1}</tool_call>', "<tool_call>\n<function=search>\n<",
    f"<tool_call>{CALL} and then {{}} </tool_call>", "<function=search><parameter=query>x</parameter>",
    "<function=search><parameter=query>x<parameter=limit>1</parameter></function>",
    "<function=search><parameter=query>x</parameter><parameter=query>y</parameter></function>",
    "<function=search><parameter=query>x", "<function=search>[1]</function>", "<function=sear", "<function=",
    '<function=search[{"query": "x"}]</function>', '{"name" "search", "arguments": {"query": "x"}}',
    '{"name": search", "arguments": {"query": "x"}}',
    "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value>",
    "<tool_call>search<arg_key>query</arg_key><arg_value>x</tool_call>",
    'search<arg_key>query</arg_key><arg_value>"x"</arg_value>',
    "<tool_call>search<arg_key>a</arg_key><arg_value>x</arg_value><arg_key>a</arg_key><arg_value>y</arg_value></tool_call>",
    '<tool name="search" query="a &amp; b" />', '<tool name="search" query="a" query="b" />',
    "call:search{query:one, two}", "call:search{query:<escape>x}", "call:search{query:1,query:2}", "call:search{query}",
    "call:search{query:[1 2]}", "call:search{query:" + "[" * 100, '[search("x")]', "[search(query=x)]",
    "[search(query='x', query='y')]", "[search(query='x' 'y')]", "[search(query='x'), 3]", "search[ARGS]{'query': ",
    '<tool_call>search({"query": "x"}</tool_call>', "Action: search\nAction Input: the weather in Lima",
    '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": <|call|>',
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.search",
    '{"name": "search", "arguments": {"query": "x"', '{"action": "search", "query": "x"}',
    '{"tool": "search", "action": "go", "args": {"query": "x"}}',
    "[" + CALL + ', {"name": 3}]',
])  # fmt: skip
def test_what_looks_like_a_call_and_cant_be_read_is_reported(text):
    """Nothing is dropped in silence, and nothing is guessed: no call, and the raw text with a reason."""
    found = extract_calls(text, BOX)
    assert found.calls == ()
    assert len(found.malformed) == 1
    assert found.malformed[0].reason
    assert found.malformed[0].raw.strip()
    assert found.malformed[0].raw in text


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


def test_invented_names_in_an_envelope_are_passed_on():
    """A strange name with a mark is a call for the check to refuse, not prose."""
    assert calls('<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>') == [("rm_rf", {})]
    assert calls('{"name": "rm_rf", "arguments": {}}\n</tool_call>') == [("rm_rf", {})]
    assert calls('<|channel|>commentary to=python<|message|>{"a": 1}<|call|>') == [("python", {"a": 1})]


def test_without_tools_nothing_is_a_call():
    """No tools were declared: all text is text."""
    assert extract_calls(f"<tool_call>{CALL}</tool_call>", made([])).text == f"<tool_call>{CALL}</tool_call>"
    assert extract_calls("", BOX).text == ""


@pytest.mark.parametrize(
    "before", ["See {x} and [1]: ", "See {x and\n", "It has {a: b c} in it.\n", "{ return 1 } ", "[link](url) "]
)
@pytest.mark.parametrize("text", [
    CALL, f"<tool_call>{CALL}</tool_call>",
    '<|channel|>commentary to=functions.search<|message|>{"query": "x"}<|call|>',
])  # fmt: skip
def test_braces_in_the_prose_before_a_call_spoil_nothing(before, text):
    """What only looks like JSON is prose, and the call behind it is a call."""
    if before == "See {x and\n" and text.startswith("<|"):
        return  # an open brace: the marks may stand in the arguments of a call
    found = extract_calls(before + text, BOX)
    assert [call.name for call in found.calls] == ["search"]
    assert not found.malformed
    assert found.text == before


def test_python_lines_are_calls_where_nothing_follows():
    """`f(a=1)` on a line of its own is a call at the end of an answer or in a fence for tool calls, else an example.
    Where one stands before text, and another at the end, the first is not lost: the answer is asked for again."""
    for joint in ("\n\nThen:\n\n", "\nThen:\n", "\n好的：\n", "\n```\nThen:\n```python\n"):
        start, end = ("```python\n", "\n```") if "```" in joint else ("", "")
        text = f"First:\n{start}search(query='x'){joint}get_time(){end}"
        assert (calls(text), len(extract_calls(text, BOX).malformed)) == ([], 1)
        assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in (1, 9, 1000))
    for shown in (
        "I write\nsearch(query='x')\nto find it.",
        "Never:\n\n```python\nsearch(query='x')\n```\n\nUse make instead.",
        "import os\n\nsearch(query='x')\n\nx = 2", "Earlier I called:\n\nsearch(query='x')\n\nIt failed.",
    ):  # fmt: skip
        assert extract_calls(shown, BOX) == Extraction(text=shown)
    assert calls("I look it up:\nsearch(query='x')\nget_time()") == [("search", {"query": "x"}), ("get_time", {})]
    assert calls("So:\n```tool_code\nsearch(query='x')\n```\nDone.") == [("search", {"query": "x"})]
    assert calls("One writes\nsearch(query='x')\nto find things.") == []
    assert calls("```python\nsearch(query='x')\n```\nfinds things.") == []


@pytest.mark.parametrize("fence", ["{}", "```python\n{}\n```", "Like this:\n\n{}\n"])
@pytest.mark.parametrize("comment", ["wrong", "never do this", "=> [1, 2]", "raises ValueError", "the first"])
def test_python_with_comments_is_shown(fence, comment):
    """A comment behind a call mostly tells of it, so that it stays text: what it returns, that it is the wrong one. A
    whole answer of one such call is asked about."""
    for lines in ("search(query='x')  # {}", "search(query='x')  # {}\nsearch(query='y')  # right"):
        shown = fence.format(lines.format(comment))
        found = extract_calls(shown, BOX)
        assert found == Extraction(text=shown) or [one.doubt for one in found.malformed] == [Uncertainty.SUSPECTED]
        assert bool(found.malformed) is ("right" not in lines and "this" not in fence)


@pytest.mark.parametrize("text", [
    r"[save(pa\_th='x\_y')]", r"save(pa\_th='x\_y')", r"[get\_time(a='b\_c')]",
    r"[get\_time(a='b\_c'), get\_time(a='d')]", r"[get\_time(a='b\_c'), search(query='x')]", r"get\_time(a='b\_c')",
    r"<|tool_call_start|>[save(pa\_th='x\_y')]<|tool_call_end|>",
])  # fmt: skip
def test_an_underscore_that_markdown_may_have_escaped_is_refused(text):
    """Where the underscores of a name or a key are escaped, one in a string may be Markdown's too: no call, and no
    text either."""
    found = extract_calls(text, BOX)
    assert found.calls == ()
    assert found.malformed
    assert calls(r"[save(pa\_th='x_y')]") == [("save", {"pa_th": "x_y"})]
    assert calls(r"[save(path='x\_y')]") == [("save", {"path": r"x\_y"})]
    assert calls("search(query='x'),") == [("search", {"query": "x"})]


@pytest.mark.parametrize("text", ["`search(query='x')`", "Call `search(query='x')`", "`search(query='x')`\n"])
def test_inline_code_is_text(text):
    """It leaves as text, and only as text."""
    assert extract_calls(text, BOX) == Extraction(text=text)


@pytest.mark.parametrize(
    "data", ['{"a": "x"}', '{"query": "x"}', '[{"name": "Ada"}, {"name": "Bo"}]', 'It is {"a": 1}', "{}"]
)
@pytest.mark.parametrize("mark", ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "\n<|im_end|>\n"])
def test_data_before_the_end_of_a_turn_is_no_call(data, mark):
    """The end of a turn closes an answer of data as well as one of calls: a JSON answer is delivered without it, and
    what has a call's form is judged as if the mark weren't there."""
    found = extract_calls(data + mark, BOX)
    assert (found.calls, found.malformed, found.text.rstrip()) == ((), (), data)
    assert calls(CALL + mark) == calls(CALL)
    foreign = CALL.replace("search", "unknown")
    assert extract_calls(foreign + mark, BOX).malformed


@pytest.mark.parametrize(
    "text",
    [
        '<|tool_call>call:q7{a:{{"b": 1}:2,</think>|>é</tool_call>:<|"|>[q7(<|start|>assistant<|"|>}}<tool_call|>',
        "<tool_call>q7\n<arg_key>a</arg_key>\n<arg_value></arg_value><|im_end|>[END_TOOL_REQUEST]/*</arg_value>\n"
        "</tool_call>",
        "<tool_call>q7\n<arg_key>a</arg_key>\n<arg_value></arg_value></tool_call> b</arg_value>\n</tool_call>",
        '<minimax:tool_call>\n<invoke name="q7">\n<parameter name="a"></function><tool_call></think></parameter>\n'
        "</invoke>\n</minimax:tool_call>",
    ],
)
def test_a_value_that_holds_the_ends_of_its_call_is_refused(text):
    """Law: a value that can't be told from the end of its call, or of a thought, is neither cut nor sent as text."""
    box = build_toolbox([{"type": "function", "function": {"name": "q7", "parameters": {"type": "object"}}}])
    assert extract_calls(text, box).malformed


@pytest.mark.parametrize("value", ["</think>}<parameter=b>", "<parameter=b></think>x", "</parameter></think>x"])
@pytest.mark.parametrize("form", [
    '<invoke name="search">\n<parameter name="query">{}</parameter>\n</invoke>',
    "<function=search>\n<parameter=query>\n{}\n</parameter>\n</function>",
])  # fmt: skip
def test_a_call_without_an_envelope_is_cut_by_no_mark_in_its_value(form, value):
    """Law: what ends a thought, in a call that can't be read, makes neither a thought of the call nor text of its rest.
    Where a thought breaks a call off and the answer makes it, that one is delivered."""
    assert extract_calls(form.format(value), BOX).malformed
    assert not play(cut_at(form.format(value), [3]), BOX).text.strip()
    made = form.format("x")
    found = extract_calls(f"{made[: made.index('x') + 1]}</think>\n{made}", BOX)
    assert ([call.arguments for call in found.calls], found.malformed) == ([{"query": "x"}], ())


def test_a_call_may_hold_the_marks_of_harmony():
    """Law: a text is Harmony's where a header stands before its message, and not where a value holds the mark."""
    box = build_toolbox([{"type": "function", "function": {"name": "q7", "parameters": {"type": "object"}}}])
    [call] = extract_calls("q7(a='<|message|>')", box).calls
    assert call.arguments == {"a": "<|message|>"}


def found(text):
    delimiters = (find_delimiter_at(text, spot.start(), 0) for spot in SPOT.finditer(text))
    first = next(filter(None, delimiters))
    return first.kind, first.start, first.held


@pytest.mark.parametrize("word", ["call", "to", "functions", "commentary to"])
def test_a_word_that_begins_no_call_hides_no_delimiter(word):
    """`call` may begin `call:`; right before a tag it is a word, and the tag begins the call."""
    text = f"I {word}<tool_call>{CALL}</tool_call>"
    assert found(text) == (Reader.ENVELOPE, text.index("<"), text.index("<"))
    assert [call.name for call in extract_calls(text, BOX).calls] == ["search"]


@pytest.mark.parametrize(("words", "sign", "kind"), [
    ("call:search", '{query:<|"|>x<|"|>}', Reader.BRACES), ("to=functions.search ", '{"query": "x"}', Reader.CHANNEL),
    ("search", '[ARGS]{"query": "x"}', Reader.NAMED),
])  # fmt: skip
def test_a_word_within_a_sentence_has_left_already(words, sign, kind):
    """Where a sentence begins the call's text is taken away from its word on, within one from its first bracket on."""
    for before in ("", "So. ", "So:\n"):
        assert found(before + words + sign) == (kind, len(before), len(before))
    assert found("So " + words + sign) == (kind, 3, 3 + len(words))


@pytest.mark.parametrize("mark", ["<think>x</think>y", "x</think>y", "</think></think>", "<|im_end|>", "</tool_call>"])
@pytest.mark.parametrize("end", ["", "<|im_end|>", "<|eot_id|>\n"])
def test_a_mark_in_a_value_of_python_is_a_part_of_it(mark, end):
    """Law: what stands in the strings of `f(a='...')` ends no reasoning and no turn, whatever ends the answer; where
    other text follows, all of it is text."""
    written = f"search(query='{mark}')"
    assert whole(written + end, BOX).calls == [("search", {"query": mark})]
    assert play(cut_at(written + end, [3]), BOX).calls == [("search", {"query": mark})]
    assert extract_calls(f"{written}\nThat is all.", BOX).text == f"{written}\nThat is all."


@pytest.mark.parametrize(
    "text",
    [
        "See functions.get_time {} there.",
        'I set x=functions.search\n{"query": "x"}.',
        "So assistantcommentary to=functions.get_time json{} is written.",
        'to=functions.search<|message|><atem:function_calls>\n<atem:invoke name="search">\n'
        '<atem:parameter name="query">x</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>',
        'get_time() functions.search(query="x")',
        '{"name":"get_time"}<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query":"x"}',
    ],
)
def test_what_is_a_call_is_no_text_as_well(text):
    """Law: what a whole answer takes for a call leaves no stream as text, whatever namespace its name has."""
    settled(text, BOX, (1, 7, 1000))


def test_marks_are_looked_for_by_their_signs():
    """Law: a mark with a word before its sign is found by the sign: words are not tried at each letter of an answer."""
    found = scanner._MARKED.search("all <|content|>")
    assert found is not None
    assert found.start() == len("all ")
