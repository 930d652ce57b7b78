"""A frame with a damage: the call is delivered as it was meant, or it is refused."""

import json
import re
from random import Random

import pytest

from reliability.tools import check_calls, extract_calls
from reliability.tools.extract.markup import ends_like_a_closer
from reliability.tools.extract.payloads import goes_on_behind
from reliability.tools.extract.text import is_damaged_key
from tests.support import extracting
from tests.support.call_values import IDS, made
from tests.support.extracting import calls
from tests.support.renderings import ALL, JSON, fits, tool

TEXT = {"type": "string"}
FILE = {"path": TEXT, "content": TEXT, "n": {"type": "integer"}, "flag": {"type": "boolean"}}
BASH = tool("Bash", {"properties": {"command": TEXT}, "required": ["command"]})
BOX = made([tool("write_file", {"properties": FILE, "required": ["path"]}), BASH])
CALLS = (
    ("write_file", {"path": "alpha", "content": "gamma one", "n": 7, "flag": True}),
    ("Bash", {"command": "ls"}),
    ("write_file", {"path": "beta"}),
)
SIGNS = "\"',:{}[]()<>/=|"
_SIGN = re.compile(rf"[{re.escape(SIGNS)}\n]")
DAMAGES = 60


def damage(text, random):
    """Take one sign away, write it twice, or write another in its place."""
    signs = list(_SIGN.finditer(text))
    hurt, other = random.choice(signs), random.choice(signs)
    new = random.choice(["", hurt[0] * 2, other[0], other[0] + hurt[0]])
    return text[: hurt.start()] + new + text[hurt.end() :]


def plain(value):
    """A value without the signs that a damage may have put into it, which can't be told from its own."""
    return re.sub(rf"[{re.escape(SIGNS)}\s]|\\n", "", json.dumps(value))


def found(text):
    """The calls that a text delivers."""
    extraction = extract_calls(text, BOX)
    checked = check_calls(extraction.calls, BOX, new_id=IDS, malformed=extraction.malformed)
    read = []
    for call in checked.calls:
        arguments = json.loads(call.arguments)
        read.append((call.name, {key.strip(SIGNS): plain(value) for key, value in arguments.items()}))
    return read


@pytest.mark.parametrize("kind", ALL)
def test_a_damaged_frame_changes_no_value(kind):
    """Of a call with one sign too few, too many or another, each argument arrives as it was meant, or the call is
    refused: no part of its frame gets into a value or a key, and no argument is lost."""
    assert fits(kind, CALLS[0][1])
    random = Random(kind)
    for meant in (CALLS[:1], CALLS[:2], CALLS[1:]):
        text = "\n".join(ALL[kind](*call) for call in meant)
        expected = [(name, {key: plain(value) for key, value in arguments.items()}) for name, arguments in meant]
        for _ in range(DAMAGES):
            hurt = damage(text, random)
            assert all(call in expected for call in found(hurt)), hurt


CLOSERS = [
    "/parameter>", "<parameter>", "<//parameter>", "</parameter", "< /parameter>", "</ parameter>", "</parameter>>",
    "</Parameter>", "</parameter >", "<\\/parameter>", "</paramater>", "[/parameter]", "</query>", "</parameter=query>",
    "<", "</",
]  # fmt: skip
TAGS = [
    "<tool_call>\n<function=search>\n<parameter=query>\nls\n{}\n</function>\n</tool_call>",
    '<invoke name="search">\n<parameter name="query">ls{}\n</invoke>',
    '<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">ls{}\n</｜DSML｜invoke>',
]


@pytest.mark.parametrize("closer", CLOSERS)
@pytest.mark.parametrize("tags", TAGS)
def test_a_closing_tag_that_is_misspelled_gets_into_no_value(tags, closer):
    """The call's own end stands for the closing tag of its last parameter only where nothing was meant to be it."""
    assert calls(tags.format(closer)) == []
    assert extract_calls(tags.format(closer), extracting.BOX).malformed


@pytest.mark.parametrize("value", ["ls", "a > b", "<b>x</b>", "</html>", "cat /query", "return parameter;", "x[0]"])
def test_a_value_without_its_closing_tag_that_ends_as_values_do_is_read(value):
    """Tags of other names, and the words of a closing tag without its signs, are the value's own."""
    assert not ends_like_a_closer(value, "query")
    assert calls(TAGS[0].format("").replace("\nls\n\n", f"\n{value}\n")) == [("search", {"query": value})]


@pytest.mark.parametrize("kind", [kind for kind in JSON if kind not in ("arguments first", "tool_calls")])
@pytest.mark.parametrize("early", ['}, "content"', '} "content"', ', }"content"'])
def test_an_object_that_closes_too_early_loses_no_argument(kind, early):
    """A call is not delivered with the first of its arguments while the others stand behind it."""
    text = JSON[kind]("write_file", {"path": "a.txt", "content": "hello"})
    for written, hurt in ((', "content"', early), (', \\"content\\"', early.replace('"', '\\"'))):
        text = text.replace(written, hurt)
    assert found(text) in ([], [("write_file", {"path": plain("a.txt"), "content": plain("hello")})])


def test_what_stands_behind_an_object_in_prose_is_no_part_of_it():
    """Only another key right behind an object, or behind a comma or a bracket, shows that it was closed too early."""
    for rest in (
        "", "\n\nThen I read it.", ' The key "a": see above.', '\n"Done": that is what it said.', ", then: go",
    ):  # fmt: skip
        assert not goes_on_behind(rest, 0)
    for rest in (', "a": 1', ' "a": 1', '},\n "a": 1', "}flag': 1"):
        assert goes_on_behind(rest, 0)


@pytest.mark.parametrize("key", ["=path", "path=", "path:", "path|", "n/", '"n"', "<n"])
def test_a_key_with_signs_of_its_tag_is_refused(key):
    """A key that no tool declares holds no sign of its tag at its edges; inside, or declared, it may."""
    assert is_damaged_key(key)
    assert not is_damaged_key(f"a{key}b") or '"' in key
    text = f"<function=search><parameter={key}>x</parameter></function>"
    assert calls(text) in ([], [("search", {"path": "x"})], [("search", {"n": "x"})])


HEADS = [
    '<invoke name=""Bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    '<invoke name"Bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    '<function==Bash>{"command": "ls"}</function>', '{"name": ""Bash", "arguments": {"command": "ls"}}',
]  # fmt: skip


@pytest.mark.parametrize("text", HEADS)
@pytest.mark.parametrize("before", ["", "I list the files.\n\n", JSON["bare"]("write_file", {"path": "a"}) + "\n"])
def test_a_call_whose_head_is_damaged_is_refused(text, before):
    """The head of a declared tool's call that can't be read leaves as no text, alone or behind another call."""
    assert extract_calls(before + text, BOX).malformed
    assert "Bash" not in extract_calls(before + text, BOX).text
    assert extract_calls(text.replace("Bash", "nothing"), BOX).text == text.replace("Bash", "nothing")


def test_a_brace_too_many_of_qwen2_loses_no_call():
    """A bracket too many before the end of a call belongs to it, and the next call is read."""
    text = "\n\n".join(ALL["qwen2"](*call) for call in CALLS[:2]).replace("}\n✿RESULT✿\n", "}}\n✿RESULT✿\n", 1)
    assert [call.name for call in extract_calls(text, BOX).calls] == ["write_file", "Bash"]
