"""JSON values that are calls."""

from dataclasses import replace

import pytest

from reliability.tool_calls import RepairKind, Uncertainty
from reliability.tools import Extraction, extract_calls
from reliability.tools.extract.shapes import goes_on, looks_like_a_call
from reliability.tools.formats import CALL_FORMATS
from tests.support.call_values import made
from tests.support.extracting import BOX, CALL, calls
from tests.support.renderings import tool
from tests.support.streaming import cut_at, inked, live, play, settled, whole


def test_model_ids_are_kept():
    """An id that stands next to a call comes with it."""
    assert extract_calls('{"id": "c1", "function": {"name": "search", "arguments": {}}}', BOX).calls[0].id == "c1"
    assert extract_calls("[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{}", BOX).calls[0].id == "abc123def"
    kimi = "<|tool_call_begin|>functions.search:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert [(call.name, call.id) for call in extract_calls(kimi, BOX).calls] == [("search", "functions.search:3")]


@pytest.mark.parametrize("frame", ["{}", "```json\n{}\n```", "\n{}\n"])
@pytest.mark.parametrize(
    "call",
    [
        CALL,
        '{"type": "function", "function": {"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}}',
        '{"id": "pending", "type": "function", "function": {"name": "search"}, "parameters": {"query": "x"}}',
    ],
)
@pytest.mark.parametrize("said", ['"I look."', '""', "null"])
def test_a_whole_message_is_its_calls_and_its_text(frame, call, said):
    """Law: a chat completion's message, written as text, is its calls and what it says beside them; without a declared
    call it is data."""
    for fields in (
        f'"tool_calls": [{call}], "content": {said}',
        f'"role": "assistant", "content": {said}, "refusal": null, "tool_calls": [{call}]',
    ):
        text = frame.format(f"{{{fields}}}")
        assert settled(text, BOX) == ([("search", {"query": "x"})], False, inked("I look." if "look" in said else ""))
    for told in (f'{{"tool_calls": [], "content": {said}}}', f'{{"role": "assistant", "content": {said}}}'):
        assert whole(told, BOX) == ([], False, inked(told))


@pytest.mark.parametrize("text", ['{"total": 3}', '[{"total": 3}]', '{"total": {"query": "x"}}'])
def test_data_before_a_closer_is_data(text):
    """Law: what names no tool, holds no arguments and has other keys than a tool's is an answer: the closer is dropped,
    streamed and whole. What a closer may end as a call, or an opener begins, is refused."""
    for full in (f"{text}</tool_call>", f"So:\n{text}\n</tool_call>\nDone."):
        assert settled(full, BOX) == ([], False, inked(full.replace("</tool_call>", "")))
    assert extract_calls(f"<tool_call>{text}</tool_call>", BOX).malformed


@pytest.mark.parametrize("text", ['{"query": "x"}', '{"arguments": {"total": 3}}', '{"search": 1}', '{"name": "a b"}'])
def test_half_a_call_before_a_closer_is_one(text):
    """Law: with a closer behind it a value that has a part of a call is no answer."""
    found = extract_calls(f"{text}</tool_call>", BOX)
    assert found.malformed or found.calls


LISTS = ['[search(query="x")', '[search(query="x"), get_time()', '[{"name": "search", "arguments": {"query": "x"}}']


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize("frame", ["{}", "{}\n", "<tool_call>{}</tool_call>", "[TOOL_CALLS]{}", "Sure:\n{}"])
def test_a_list_that_lacks_its_bracket_is_read(text, frame):
    """Law: where each call is complete and nothing follows, the bracket alone is missing; where the text ends there,
    it may have been cut off."""
    full = frame.format(text)
    found = extract_calls(full, BOX)
    assert [call.name for call in found.calls] == ["search", "get_time"][: 1 + text.count("get_time")]
    assert all(RepairKind.ENVELOPE in [repair.kind for repair in call.repairs] for call in found.calls)
    assert (found.malformed, found.unended) == ((), not full.endswith(">"))
    assert play(list(full), BOX) == play([full], BOX) == whole(full, BOX)


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize("end", [",", ", ", " and", ', search(query="'])
def test_a_list_that_goes_on_is_not_complete(text, end):
    """Law: a call that was begun, or announced by a comma, is never dropped."""
    assert calls(text + end) == []


@pytest.mark.parametrize("frame", ["{}", "I look.\n\n{}\n", "```json\n{}\n```", "<tool_call>\n{}\n</tool_call>"])
def test_a_misspelled_key_is_asked_for_again(frame):
    """Law: a declared name and its tool's arguments under keys of which one lacks a letter, has one too many or two in
    each other's place are meant as a call, whole and streamed; under another word they are data."""
    for name in ("name", "nme", "names", "naem", "tool"):
        for key in ("arguments", "argments", "argumentss", "paramters", "inptu"):
            text = frame.format(f'{{"{name}": "search", "{key}": {{"query": "x"}}}}')
            if (name, key) not in (("name", "arguments"), ("tool", "arguments")):
                found = extract_calls(text, BOX)
                assert (found.calls, len(found.malformed)) == ((), 1), text
                assert play([*text], BOX) == whole(text, BOX)
    if not frame.startswith("<"):
        for name, key in (("name", "example"), ("tool", "tool_output"), ("name", "argument_types"), ("title", "args")):
            assert not extract_calls(frame.format(f'{{"{name}": "search", "{key}": {{"query": "x"}}}}'), BOX).malformed
        assert not extract_calls(frame.format('{"name": "search", "argments": {"other": 1}}'), BOX).malformed
    told = 'It wrote {"name": "search", "argments": {"query": "x"}}, with a slip.'
    assert extract_calls(told, BOX) == Extraction(text=told)


@pytest.mark.parametrize("end", ["", "}", "}}", "}}\n"])
def test_an_undeclared_name_with_a_tools_arguments_is_asked_for_again(end):
    """Law: at the end of an answer, whole and streamed, a call of a name that isn't declared is meant as one where its
    arguments are a declared tool's; with other arguments, or within a sentence, it is data."""
    text = 'Sure! Here it is:\n\n{"name": "look_up", "arguments": {"query": "x"' + end
    if end:
        assert [one.reason for one in extract_calls(text, BOX).malformed] == ["'look_up' is no declared tool"]
    assert play([*text], BOX) == whole(text, BOX)
    for told in (text.replace("query", "other"), text.replace("it is:\n\n", "it is: "), text + "\nis an example."):
        assert extract_calls(told, BOX) == Extraction(text=told)
        assert play([*told], BOX) == whole(told, BOX)


def test_a_lone_name_is_a_call_only_where_nothing_is_needed():
    """`{"name": ...}` without arguments: in an envelope or as the whole answer, for a tool that requires
    none."""
    assert calls('<tool_call>{"name": "get_time"}</tool_call>') == [("get_time", {})]
    assert calls('{"name": "get_time"}') == [("get_time", {})]
    assert calls('Then {"name": "get_time"} follows.') == []
    assert calls("<tool_call>get_time</tool_call>") == [("get_time", {})]


def test_a_name_as_key_is_a_call_where_the_arguments_are_the_tools():
    """`{"search": {...}}` at the end of an answer: with its parameters only; other data under that key is data."""
    assert calls('{"search": {"query": "x"}}') == [("search", {"query": "x"})]
    assert calls('Now:\n[{"search": {"query": "x"}}]') == [("search", {"query": "x"})]
    for text in ('{"search": {"hits": 3}}', '{"search": {"query": "x"}} is it.', 'So {"search": {"query": "x"}}'):
        assert calls(text) == []


def test_python_as_the_whole_answer():
    """An object is all arguments where its keys are the parameters; what can't be read is refused, not an answer."""
    for text in ('search({"hits": 3})', 'search("x")', r'get\_time(a="x\_y")', "search(query=f(1))"):
        found = extract_calls(text, BOX)
        assert (found.calls, len(found.malformed)) == ((), 1), text


@pytest.mark.parametrize("text", [
    '{"name": "Ada Lovelace"}', '[{"name": "Ada"}, {"name": "Bo"}]', '{"action": "wait"}', '{"tool": "hammer"}',
    '{"function": "sine"}',
])  # fmt: skip
def test_a_name_that_is_no_tools_is_data(text):
    """An answer in JSON is the answer, though tools are declared; a name that is nearly a tool's is asked about."""
    assert extract_calls(text, BOX) == Extraction(text=text)
    assert len(extract_calls('{"name": "getTime"}', BOX).calls) == 1
    assert len(extract_calls('{"name": "serch"}', BOX).malformed) == 1


def test_where_json_is_wanted_it_is_the_answer():
    """With calls forbidden, or JSON asked for, only a declared name with its arguments is a call."""
    box = replace(BOX, wants_json=True)
    for text in (
        '{"name": "get_time"}', '{"name": "x", "arguments": {}}', '{"search": {"query": "x"}}',
        '{"action": "search", "query": "x"}',
    ):  # fmt: skip
        assert extract_calls(text, box) == Extraction(text=text)
    assert len(extract_calls('{"name": "search", "arguments": {"query": "x"}}', box).calls) == 1


MEANT = [
    '{"name": search", "arguments": {"query": "x"}}', '{"name" "search", "arguments": {"query": "x"}}',
    "[{'name': 'search', 'arguments': {'query': 5*11}}]", '{"tool": "search", "args": ', '{"name": "search"',
]  # fmt: skip
PROSE = [
    '{"name": "Bob", "arguments": {}}', '{"note": "search", "arguments": {}}',
    "{ return name: search, arguments: }", "name: search, arguments: {}",
    '{"a": 1} {"name": "search", "arguments": {', '{"a": 1, <tool_call>' + CALL,
    '{"name": "search"} is a name, and so is "arguments": ' + "x" * 400,
    '{"name": "search", ' + '"x": 1, ' * 100 + '"arguments": {}}',
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), [(text, True) for text in MEANT] + [(text, False) for text in PROSE])
def test_a_call_is_meant_by_a_name_and_arguments_within_its_brackets(text, meant):
    """A declared name under a name's key, and a key of arguments or the end, near by and before the bracket closes."""
    assert looks_like_a_call(text, 0, BOX) is meant


FORMS = ['{{"search": {{"query": "{}"}}}}', """["search(query='{}')"]""", '[search]\n{{"query": "{}"}}']


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("between", ["\n", "\n\n", ",\n", ";\n"])
def test_a_row_is_calls_up_to_the_last(form, count, between):
    """Each of a row is a call where it ends the answer, and none where prose stands behind it."""
    row = between.join(form.format(at) for at in range(count))
    found = extract_calls(row, BOX)
    assert [call.arguments for call in found.calls] == [{"query": str(at)} for at in range(count)]
    assert not found.text
    assert extract_calls(f"{row}\nThat is how it is done.", BOX).calls == ()
    assert extract_calls(f"{row}\nThat is how it is done.", BOX).text == f"{row}\nThat is how it is done."


@pytest.mark.parametrize("form", FORMS)
def test_a_call_of_any_form_may_end_the_row(form):
    """Nothing is left as text between two calls; what stands apart from them by prose is data."""
    assert len(extract_calls(f"{form.format(1)}\n{CALL}", BOX).calls) == 2
    assert len(extract_calls(f"{form.format(1)}\nSo:\n{CALL}", BOX).calls) == 1


def test_fenced_calls_are_a_row():
    """The fence around each goes with it."""
    fenced = "\n".join(f"```json\n{FORMS[0].format(at)}\n```" for at in range(3))
    assert len(extract_calls(fenced, BOX).calls) == 3
    assert not extract_calls(fenced, BOX).text


@pytest.mark.parametrize(
    "text", ["[search]\n", "search(query='x", "search (", '{"search": {"query": "a } }', "sear", "search(a)\n[["]
)
def test_what_may_become_a_call_goes_on(text):
    """Brackets are open, or a name is cut off; prose is no name, or goes on behind its brackets."""
    assert goes_on(text, 0, BOX)
    assert not any(goes_on(told, 0, BOX) for told in ("", "And then (as", "search(a) and {", "{} more", "[1] x"))


@pytest.mark.parametrize("joint", [", \\\n", "\nand\n", "\nthen\n", "\n# second\n", "\n// then\n", ";\n", ",\n", "\n"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_joint_between_calls_loses_none(joint, count):
    """All of a row are delivered, never one of several; and none where prose ends it. Whole and streamed."""
    row = joint.join(f"search(query='{at}')" for at in range(count))
    for text in (row, f"I look it up:\n{row}"):
        assert settled(text, BOX, (1, 2, 5, 9, 1000)).calls == [("search", {"query": str(at)}) for at in range(count)]
    shown = f"{row}\nThat is how it is done."
    assert all(play(cut_at(shown, [size]), BOX) == ([], False, inked(shown)) for size in (1, 2, 5, 9, 1000))


NOW = made([tool("now", {"properties": {}}), tool("search", {"properties": {"query": {"type": "string"}}})])
NOTATIONS = [example for row in CALL_FORMATS if row.reader for example in row.examples]


@pytest.mark.parametrize("call", NOTATIONS)
def test_python_waits_for_a_call_in_any_notation(call):
    """Law: a line of Python that a call stands behind is a call too: none of it leaves a stream as text beside that."""
    told = settled(f"now()\n{call}", NOW, (1, 3, 1000))
    assert [name for name, _ in told.calls] == ["now", "search"]
    assert "now" not in told.text


@pytest.mark.parametrize("told", ["Action: none is needed.", "<search> is a tag.", "search\nfor it", "to=functions."])
def test_python_waits_for_no_words(told):
    """Law: what only looks like the beginning of a call holds the text no longer than it does so."""
    text = f"now()\n{told}\n\nAnd so on, with other words.\nAnd more words.\nAnd more.\nAnd then\n"
    assert "".join(live([text], NOW)) == text


SCHEMA = '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}'
DEFINITIONS = [
    f'{{"name": "search", "description": "Finds.", "parameters": {SCHEMA}}}',
    f'{{"type": "function", "function": {{"name": "search", "description": "Finds.", "parameters": {SCHEMA}}}}}',
    f'{{"name": "search", "description": "Finds.", "parameters": {SCHEMA}, "strict": true}}',
    f'{{"name": "search", "arguments": {SCHEMA}}}',
    '{"name": "search", "parameters": [{"name": "query"}]}',
    '{"name": "search", "arguments": [{"name": "query", "type": "string", "required": true}, {"name": "limit"}]}',
    '{"tool": "search", "description": "", "args": {"query": {"type": "string"}, "limit": {"type": "integer"}}}',
    '{"name": "search", "description": "Finds.", "parameters": {"query": {"type": "string"}}}',
]


@pytest.mark.parametrize(
    "frame", ["{}", "[{}]", "[{0}, {0}]", "```json\n{}\n```", "So:\n\n```json\n{}\n```\n\nIt searches."]
)
@pytest.mark.parametrize("text", DEFINITIONS)
def test_a_tools_definition_is_data(text, frame):
    """Law: a declared tool that an answer defines is no call, whatever stands beside its schema, in a stream as in a
    whole answer; inside an envelope it is refused, since a call was meant."""
    full = frame.format(text)
    assert whole(full, BOX) == ([], False, inked(full))
    assert play(list(full), BOX) == play([full], BOX) == whole(full, BOX)
    assert extract_calls(f"<tool_call>{text}</tool_call>", BOX).malformed


@pytest.mark.parametrize("text", [
    '{"name": "search", "arguments": [{"query": "x"}]}',
    '{"name": "search", "arguments": [{"name": "query", "value": "x"}]}',
    '{"name": "search", "arguments": [{"name": "x"}]}', '{"name": "search", "arguments": ["query"]}',
    '{"name": "search", "arguments": {"query": {"value": "x"}}}',
    '{"name": "search", "parameters": {"query": {"type": "string"}}}',
    '{"name": "search", "arguments": {"title": {"type": "string"}}}',
    '{"name": "search", "arguments": {"type": "object", "properties": {"query": "x"}}}',
    '{"name": "search", "description": "Finds.", "arguments": {"query": "x"}}',
    '{"name": "save", "arguments": {"data": {"type": "string"}}}',
    '{"name": "save", "description": "Saves.", "parameters": {"data": {"type": "object", "title": "x"}}}',
])  # fmt: skip
def test_arguments_that_define_nothing_are_a_call(text):
    """Law: a value, an unknown parameter, one that takes an object, or schemas as arguments without a description are
    no definition: it is called, or asked for again."""
    found = extract_calls(text, BOX)
    assert found.calls or found.malformed


def test_a_tool_that_takes_a_schema_is_called_with_one():
    """Law: what may be arguments of the tool is no definition of it."""
    box = made([tool("define", {"properties": {"type": {"type": "string"}, "properties": {"type": "object"}}})])
    assert extract_calls(f'{{"name": "define", "parameters": {SCHEMA}}}', box).calls


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("form", ["print({})", "{}", "print( {} );", "print({}),"])
@pytest.mark.parametrize("around", ["{}", "I look:\n{}", "{}\nDone."])
def test_printed_calls_in_a_row_are_held_together(form, count, around):
    """Law: calls that a fence of Gemma's prints, one a line, are the same streamed and whole: none of their text leaves
    while the next one may come."""
    lines = [form.replace("{}", f"search(query='{number}')") for number in range(count)]
    text = around.replace("{}", "```tool_code\n" + "\n".join(lines) + "\n```")
    told = whole(text, BOX)
    assert len(told.calls) == count
    assert "search" not in told.text
    assert [play(cut_at(text, [size]), BOX) for size in (1, 5, 40)] == [told] * 3


def test_a_tool_of_the_name_print_is_a_tool():
    """Law: where `print` is declared, a row of its calls is held as that of any other tool."""
    box = made([tool("print", {"properties": {"text": {"type": "string"}}})])
    assert goes_on("print(text='a')\nprint(te", 0, box)
    assert goes_on("print(search(query='a'))\npri", 0, BOX)
    assert not goes_on("print(other(query='a'))\npri", 0, BOX)


@pytest.mark.parametrize("key", ["action", "tool", "command", "function", "tool_call"])
def test_a_call_may_stand_under_the_key_of_its_name(key):
    """Law: next to a thought the object or the list under such a key is the call; a word there is only its name."""
    for form in (
        f'{{"thought": "I look.", "{key}": {CALL}}}',
        f'{{"{key}": {{"tool": "search", "args": {{"query": "x"}}}}}}',
    ):
        assert calls(form) == [("search", {"query": "x"})]
        assert play(cut_at(form, [3]), BOX) == whole(form, BOX)
    assert calls(f'{{"{key}": {CALL}, "other": 1}}') == []


HIDING = [
    '{{"toolUse": {}}}', '{{"method": "tools/call", "params": {}}}',
    '{{"role": "assistant", "content": [{{"type": "tool_use", "name": "search", "input": {{"query": "x"}}}}]}}',
    '{{"tool_call": {}, "comment": "ok"}}', '{{"function": {}, "arguments": {{"query": "y"}}}}',
    '{{"tools": [{{"use": {}}}]}}',
]  # fmt: skip


@pytest.mark.parametrize("form", HIDING)
@pytest.mark.parametrize("before", ["", "I look it up.\n"])
def test_a_call_under_keys_that_no_call_has_is_asked_again(form, before):
    """Law: an object at the end of an answer that holds a declared tool's name and arguments is no silent text: it may
    be the answer itself. It is, where no tool is called so, the arguments aren't the tool's, or text follows, and where
    no key around it speaks of calls."""
    text = before + form.format(CALL)
    (one,) = extract_calls(text, BOX).malformed
    assert one.doubt is Uncertainty.PLAIN
    for size in (1, 5):
        assert play(cut_at(text, [size]), BOX) == whole(text, BOX)
    others = (text.replace('"search"', '"other"'), text.replace('"query"', '"title"'), text + "\nThat is the form.")
    for data in (*others, f'{{"steps": [{CALL}]}}'):
        found = extract_calls(data, BOX)
        assert (found.calls, found.malformed, found.text) == ((), (), data)
