"""A call's own tags fix how its tags are spelled: tags of every other spelling are text."""

from random import Random

import pytest

from reliability.tool_calls import RepairKind
from reliability.tools import extract_calls
from reliability.types import CallDelta
from tests.support.call_values import made
from tests.support.renderings import ALL, schema_of, tool
from tests.support.value_paths import read_text

NAME = "write_file"
BOX = made([tool(NAME, schema_of({"path": "a", "content": "b", "title": "c"}) | {"required": ["content"]})])
# How each family spells its tags: the mark before their names, and what stands behind that of a parameter.
SPELLED = {
    "qwen3_coder": ("", "="), "qwen3_coder without opener": ("", "="), "seed": ("", "="), "minimax": ("", "name"),
    "invoke": ("", "name"), "muse": ("atem:", "name"), "deepseek v3.2": ("｜DSML｜", "name"),
    "gigachat 3.5": ("｜GCML｜", "name"),
}  # fmt: skip
MARKS = ("", "atem:", "x:", "｜DSML｜")
FOUND = [
    '/// <param name="x">The x.</param>\nint Add(int x) => x;', '<param name="movie" value="x">', '<param name="a">\n',
    '<object>\n  <param name="a" value="1"></param>\n</object>', "</param>", 'x\n</param>\n<param name="b">',
    '<parameter name="title" class="java.lang.String"/>\n<x/>', "a\n</minimax>",
]  # fmt: skip


def draw_text(mark: str, sign: str, dice: Random) -> str:
    """Draw a text of tags that are spelled otherwise than those of its call, and of words."""
    pieces = ["\n", " ", "x", "/// "]
    for other in MARKS:
        if other != mark:
            pieces += [f'<{other}parameter name="title">', f"</{other}parameter>", f"</{other}invoke>"]
        pieces += [f'<{other}param name="x">', f"</{other}param>"] + ["</function>"] * (sign != "=")
        pieces += [f'<{other}invoke name="{NAME}">'] + [f"</{other}invoke>"] * (sign == "=")
    pieces += ["<parameter=title>y</parameter>" if sign != "=" else '<parameter name="title">y</parameter>']
    return "a" + "".join(dice.choices(pieces, k=dice.randint(1, 6))) + "b"


def check(kind: str, content: str, dice: Random) -> None:
    arguments = {"path": "a.cs", "content": content}
    text = ALL[kind](NAME, arguments)
    assert [call.arguments for call in extract_calls(text, BOX).calls] == [arguments], text
    events, judged = read_text(text, BOX, dice)
    assert not judged.violations, text
    assert [event.name for event in events if isinstance(event, CallDelta)] == [NAME]


@pytest.mark.parametrize("content", FOUND)
@pytest.mark.parametrize("kind", SPELLED)
def test_tags_of_another_spelling_are_text(kind, content):
    """Law: in a call's parameter, whole and streamed, only tags spelled as its own open or close anything: comments of
    C#, parameters of HTML and of reports, and the calls of other families arrive as written."""
    check(kind, content, Random(kind))


@pytest.mark.parametrize("kind", SPELLED)
def test_drawn_tags_of_another_spelling_are_text(kind):
    """Law: the same of texts that are nothing but such tags and words."""
    dice = Random(kind)
    for _ in range(40):
        check(kind, draw_text(*SPELLED[kind], dice), dice)


@pytest.mark.parametrize("inner", ["<parameter>a</parameter>", '<parameter name="title" class="x">\n<y/></parameter>'])
@pytest.mark.parametrize("count", [1, 2])
def test_what_a_text_opens_is_closed_in_it(inner, count):
    """Law: an element of the text with the name of the call's own tag ends where it is closed; its closing tag isn't
    the parameter's. One that isn't closed is refused, or arrives as written."""
    text = "\n".join([inner] * count)
    check("qwen3_coder", text, Random(count))
    arguments = {"content": inner.replace("</parameter>", "")}
    calls = extract_calls(ALL["qwen3_coder"](NAME, arguments), BOX).calls
    assert [call.arguments for call in calls] in ([], [arguments])


def test_the_end_of_a_call_on_a_line_of_its_own_may_be_the_texts():
    """Law: where the closing tags of a parameter and of its call stand behind one of the call, that one is text; where
    they don't, it closes the call too early, which is refused."""
    content = "</tool>\n</function>"
    check("qwen3_coder", content, Random(1))
    text = ALL["qwen3_coder"](NAME, {"content": content})
    assert not extract_calls(text.replace("</parameter>\n</function>", "</parameter>"), BOX).calls


@pytest.mark.parametrize("closer", ["</param>", "</atem:parameter>"])
@pytest.mark.parametrize("kind", ["qwen3_coder", "minimax"])
def test_another_spelling_closes_where_none_of_its_own_does(kind, closer):
    """Law: a parameter whose own closing tag is missing is closed by one of another spelling, which no tag of the text
    has opened. That is noted: it may have been the text's own."""
    arguments = {"path": "a", "content": "b"}
    (call,) = extract_calls(ALL[kind](NAME, arguments).replace("</parameter>", closer), BOX).calls
    assert call.arguments == arguments
    assert RepairKind.ENVELOPE in {repair.kind for repair in call.repairs}


@pytest.mark.parametrize(("kind", "opener"), [
    ("seed", '<parameter name="title">'), ("minimax", "<parameter=title>"), ("qwen3_coder", '<param name="title">'),
])  # fmt: skip
def test_a_parameter_that_is_opened_by_another_spelling_is_noted(kind, opener):
    """Law: what follows a parameter's own closing tag is the next parameter, also spelled otherwise. That is noted:
    both tags may have been the text's own."""
    (call,) = extract_calls(ALL[kind](NAME, {"content": f"a</parameter>{opener}b"}), BOX).calls
    assert call.arguments["content"] == "a"
    assert RepairKind.ENVELOPE in {repair.kind for repair in call.repairs}


@pytest.mark.parametrize("mark", ["<|call|>", "<|end|>"])
@pytest.mark.parametrize("closer", ["</invoke>", "</｜DSML｜invoke>"])
def test_a_text_that_is_cut_ends_at_no_tag_of_another_spelling(closer, mark):
    """Law: where a mark ends the message within a parameter, its text isn't cut further, at what looks like the end of
    another family's call: the call is asked for again."""
    found = extract_calls(ALL["muse"](NAME, {"content": f"a{closer}{mark}b"}), BOX)
    assert not found.calls
    assert found.malformed


M3 = "]<]minimax[>["


def test_a_closing_tag_without_its_token_is_text_before_one_with_it():
    """Law: MiniMax M3 closes a parameter with its token; a tag of that name without one closes it only where no closing
    tag with a token follows."""
    for key, value in (("content", "<x><content>a</content></x>"), ("title", "</title>"), ("title", "a</title>\nb")):
        arguments = {"content": "x", key: value}
        assert [call.arguments for call in extract_calls(ALL["minimax m3"](NAME, arguments), BOX).calls] == [arguments]
    lost = ALL["minimax m3"](NAME, {"content": "x", "title": "y"}).replace(f"{M3}</content>", "</content>")
    (call,) = extract_calls(lost, BOX).calls
    assert call.arguments == {"content": "x", "title": "y"}
    assert {repair.kind for repair in call.repairs} == {RepairKind.ENVELOPE}
