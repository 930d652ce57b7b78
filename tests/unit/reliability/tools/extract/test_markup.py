"""Calls written as tags: the types and the edges of bare values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tool_calls import RepairKind
from reliability.tools import build_toolbox, extract_calls
from reliability.tools.extract.markup import may_have_children
from tests.support.extracting import calls, kinds
from tests.support.renderings import tool


def test_bare_values_take_the_type_that_the_schema_gives_them():
    """Text is text where a string is allowed; elsewhere it is a literal, or stays for the check to refuse."""
    written = {"path": "007", "data": "{'a': True}", "tags": '[1, "x"]', "on": "yes", "mixed": "5", "size": "null"}
    inner = "".join(f"<parameter={key}>{value}</parameter>" for key, value in {**written, "new": "1"}.items())
    meant = {"path": "007", "data": {"a": True}, "tags": [1, "x"], "on": "yes", "mixed": "5", "size": None, "new": "1"}
    assert calls(f"<function=save>{inner}</function>") == [("save", meant)]
    assert calls("<function=save><parameter=size>1.5 m</parameter></function>") == [("save", {"size": "1.5 m"})]
    assert calls("<function=nope><parameter=a>1</parameter></function>") == [("nope", {"a": "1"})]


@pytest.mark.parametrize("value", ["a\r", "a\r\nb\r", "\r"])
def test_half_a_line_break_is_never_a_values(value):
    """Where the tag's line break is plain, a text whose last line break is Windows' would keep a lone half of it: it
    may be the text's own or the layout's, and the call is asked for again. A carriage return inside is the text's."""
    framed = "<function=search><parameter=query>\n{}\n</parameter></function>"
    assert calls(framed.format(value)) == []
    assert calls(framed.format(value + "b")) == [("search", {"query": value + "b"})]
    assert calls(framed.format(value + "\n")) == [("search", {"query": value + "\n"})]


values = st.text(alphabet="a \n\r<&", max_size=8).filter(lambda value: "<" not in value)
TAGS = [
    "<function=save><parameter=path>{0}</parameter></function>",
    '<invoke name="save"><parameter name="path">{0}</parameter></invoke>',
    '<function name="save"><param name="path">{0}</param></function>',
]


@pytest.mark.parametrize("tags", TAGS)
@given(values, st.sampled_from(["\n", "\r\n"]))
def test_a_framed_value_is_what_stands_in_its_frame(tags, value, line_break):
    """Whatever a value begins and ends with, a line break around it is taken off, once at each end."""
    if value[-1:] != "\r" and not (line_break == "\n" and value[:1] == "\n" and value[-1:] == "\r"):
        assert calls(tags.format(f"{line_break}{value}{line_break}")) == [("save", {"path": value})]


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("value", ["def f():\n    pass\n", "a\n", "a\r\n", " a ", " \n a", "a\n  "])
def test_an_inline_value_is_kept_to_the_letter(tags, value):
    """A value that begins on the line of its opening tag has no frame: an edit's last line break is its own."""
    assert calls(tags.format(value)) == [("save", {"path": value})]
    assert kinds(tags.format(value)) == set()


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("value", ["a", "\na", "a\n\n  b", " a", ""])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_line_break_behind_the_opening_tag_is_layout(tags, value, line_break):
    """A value never begins with the line break behind its opening tag, whatever stands before the closing tag; that it
    was taken off is noted, since the value may have meant it."""
    assert calls(tags.format(line_break + value)) == [("save", {"path": value})]
    assert kinds(tags.format(line_break + value)) == {RepairKind.LAYOUT}


def test_the_indentation_of_tags_is_layout():
    """A closing tag's indentation is never the value's. Where all tags and the one line are indented, its
    indentation is layout too; of several indented lines it may be their own, so that the call is refused."""
    indented = "<function=save>\n  <parameter=path>\n{}\n  </parameter>\n</function>"
    assert calls(indented.format("    a.txt")) == [("save", {"path": "a.txt"})]
    assert calls(indented.format("a\n    b")) == [("save", {"path": "a\n    b"})]
    assert calls(indented.format("    a\n    b")) == []
    assert calls("<function=save><parameter=path>\n  a\n  </parameter></function>") == [("save", {"path": "  a"})]


def test_a_closing_tag_too_many_or_too_few_is_mended():
    """A parameter's closing tag that stands there twice is one, and the call's own stands for the last parameter's:
    noted as repaired. A value that may hold a closing tag is refused."""
    whole = "<function=save>\n<parameter=path>\na\n</parameter>\n</function>"
    for text in (whole.replace("</parameter>", "</parameter>\n</parameter>"), whole.replace("</parameter>\n", "")):
        assert calls(text) == [("save", {"path": "a"})]
        assert kinds(text) == {RepairKind.ENVELOPE}
        both = text + "\n" + whole.replace("\na\n", "\nb\n")
        assert calls(both) == [("save", {"path": path}) for path in "ab"]
    assert calls(whole.replace("\na\n", "\na</function>b\n")) == []
    assert calls(whole.replace("\na\n", "\na</parameter>b\n")) == []


@pytest.mark.parametrize("tags", TAGS)
def test_what_is_no_layout_of_this_format_stays_in_the_value(tags):
    """The token of another format before a closing tag is the value's, and a CDATA section is taken off with a note."""
    assert calls(tags.format("a]<]minimax[>[")) == [("save", {"path": "a]<]minimax[>["})]
    for framed in ("<![CDATA[a]]>", "\n<![CDATA[a]]>\n"):
        assert calls(tags.format(framed)) == [("save", {"path": "a"})]
        assert kinds(tags.format(framed)) == {RepairKind.LAYOUT}


@pytest.mark.parametrize("value", ["<param>a</param>", "a</param>", "/// <param>a</param>", "<parameter>a</parameter>"])
@pytest.mark.parametrize("framed", ["{}", "\n{}\n"])
def test_a_closing_tag_that_may_be_the_texts_own_is_not_dropped(value, framed):
    """Of two closing tags in a row one is too many only where they are the same and the text opens none: else a part
    of the text would be lost."""
    text = f"<function=save><parameter=path>{framed.format(value)}</parameter></function>"
    assert calls(text) in ([], [("save", {"path": value})])


def test_white_space_that_is_taken_off_is_noted():
    """Where white space around a key, or the line ends of Windows around a text, may be its own, taking it off is
    noted."""
    for text in (
        "<tool_call>save\n<arg_key> path </arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
        "<function=save>\n<parameter=path>\r\na\r\n</parameter>\n</function>",
    ):
        assert calls(text) == [("save", {"path": "a"})]
        assert kinds(text) == {RepairKind.LAYOUT}


@pytest.mark.parametrize("value", ["X", "X\n", "\nX", "import os\n\nprint(1)", "", "  X"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_line_breaks_are_noted_where_the_template_writes_inline(value, line_break):
    """Law: a text on lines of its own is no repair only where its template writes it so: in Seed's envelope, and beside
    a parameter on the line of its tags, the line breaks may be the text's. Where all stand on lines none is noted."""
    opener, path, content = "<tool_call>", "<parameter=path>{}</parameter>", "<parameter=mixed>{}</parameter>"
    content, noted = content.format(f"{line_break}{value}{line_break}"), {RepairKind.LAYOUT}
    apart, inline = path.format("\na\n"), path.format("a")
    for head, inner, kind in (
        ("<seed:tool_call>", content, noted), ("<seed:tool_call>", inline + content, noted),
        (opener, inline + content, noted), (opener, content + inline, noted),
        (opener, apart + content, noted if line_break == "\r\n" else set()),
        ("<seed:tool_call>", inline, set()), ("<seed:tool_call>", path.format("\ra"), set()),
    ):  # fmt: skip
        text = f"{head}\n<function=save>\n{inner}\n</function>\n{head.replace('<', '</')}"
        assert calls(text)[0][1].get("mixed", value) == value
        assert kinds(text) == kind


@pytest.mark.parametrize(
    "value", ["</arg_value></tool_call>", "a</arg_value>\n</tool_call>\nb", "x</arg_value></tool_call> "]
)
def test_a_pair_s_value_that_holds_the_end_of_its_call_is_refused(value):
    """The first end of the call is taken for its end only where no end of a value follows before the next call: it may
    be the text's own, and a part of the text would be lost."""
    pair = "<tool_call>save\n<arg_key>path</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
    assert calls(pair.format(value)) == []
    assert calls(pair.format("a") + "\nDone.") == [("save", {"path": "a"})]
    assert calls(pair.format("a") + pair.format("b")) == [("save", {"path": "a"}), ("save", {"path": "b"})]


COUNT = {"type": "integer"}
TAGS_OF, BOX_OF = {"type": "array", "items": COUNT}, {"type": "object", "properties": {"w": COUNT}}
NOTE = {"title": {"type": "string"}, "count": COUNT, "tags": TAGS_OF, "box": BOX_OF}
BOX = build_toolbox([tool("note", {"type": "object", "properties": NOTE, "required": ["title"]}), tool("rooms", {})])
M3 = "]<]minimax[>["


def found(text):
    one = extract_calls(text, BOX)
    return [(call.name, call.arguments) for call in one.calls], len(one.malformed)


def m3(inner: str) -> str:
    return f'{M3}<invoke name="note">{M3}<title>a{M3}</title>{inner}{M3}</invoke>'


A = {"title": "a"}
NOTES = [
    ("<note><title>a</title></note>", A),
    ("<note>\n<title>\na\nb\n</title>\n<count>2</count>\n</note>", {"title": "a\nb", "count": 2}),
    ("<note><title><b>x</b></title></note>", {"title": "<b>x</b>"}),
    (m3(f"{M3}<tags>{M3}<item>1{M3}</item>{M3}<item>2{M3}</item>{M3}</tags>"), A | {"tags": [1, 2]}),
    (m3(f"{M3}<box>{M3}<w>3{M3}</w>{M3}</box>"), A | {"box": {"w": 3}}),
    (m3(f"{M3}<count>3</count>"), A | {"count": 3}),
]
OTHER_TAGS = [
    "<note>A remark.</note>", "<note></note>", "<p><title>a</title></p>", "`<note>`<title>a</title>", "<note/>",
]  # fmt: skip
BROKEN = [
    "<note><title>a</title>", "<note><title>a", "<note><count>1</count></note>", "<note><title>a</title><x>1</x>",
    m3(f"{M3}<count>3"), m3(f"{M3}<tags>x{M3}<item>1{M3}</item>{M3}</tags>"), m3(f"{M3}<title>b{M3}</title>"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), [
    *((text, ([("note", arguments)], 0)) for text, arguments in NOTES),
    *((text, ([("rooms", {})], 0)) for text in ("<rooms></rooms>", "<rooms/>", "<rooms>\n</rooms>")),
    *((text, ([], 0)) for text in OTHER_TAGS), *((text, ([], 1)) for text in BROKEN),
])  # fmt: skip
def test_the_tags_of_a_declared_tool_are_a_call(text, meant):
    """Each child is a parameter, typed by its schema, and its text is kept to the letter; children of MiniMax's are
    items or members. An empty tag is a call where nothing is required. Without a parameter in it, or of another name, a
    tag is prose; where a parameter has begun a call was meant, and what is cut, strange or given twice is reported."""
    assert found(text) == meant


@pytest.mark.parametrize(("inner", "kind"), [
    (f"{M3}<count>3</count>", RepairKind.ENVELOPE), (f"{M3}<tags>[1, ]{M3}</tags>", RepairKind.LITERAL),
    (f"{M3}<box>{{'w': 1}}{M3}</box>", RepairKind.LITERAL),
])  # fmt: skip
def test_what_is_repaired_in_a_child_is_noted(inner, kind):
    """A lost token, and a literal that is no JSON."""
    (call,) = extract_calls(m3(inner), BOX).calls
    assert {repair.kind for repair in call.repairs} == {kind}


def test_a_child_may_still_come():
    """What a stream waits for behind a tag of a declared name."""
    assert all(may_have_children(text) for text in ("<note>", "<note>\n", "<note><", "<note>\n<ti"))
    assert not any(may_have_children(text) for text in ("<note>a", "<note><title>", "<note"))
