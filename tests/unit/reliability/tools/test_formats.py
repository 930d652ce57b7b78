"""The table of call formats: every row, whole and streamed, is the same calls and the same text, and nothing leaks."""

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import HERMES as WRITTEN_BY_THE_GRAMMAR
from reliability.answer.call_starts import CallStart, find_call_start, prepare_names
from reliability.loops import Scan, finish, step
from reliability.loops.written import DELIMITER_CHARS
from reliability.tools import extract_calls
from reliability.tools.format_envelopes import HERMES
from reliability.tools.format_row import Place, Reader
from reliability.tools.formats import CALL_FORMATS, CLOSER, OPENER, beginnings, compile_any
from tests.evals.tool_cases import box_of, records
from tests.support.call_values import made, nearly_calls
from tests.support.renderings import tool
from tests.support.streaming import byte_cuts, cut_at, inked, live, play, whole
from tests.support.written_calls import write_query

SEARCH = {"properties": {"query": {"type": "string"}}, "required": ["query"]}
BOX = made([tool("search", SEARCH), tool("get_time", {})])
CALL = ("search", {"query": "x"})
ARGUMENTS = '{"query": "x"}'
READ = [row for row in CALL_FORMATS if row.reader is not None]
EXAMPLES = [pytest.param(row, text, id=f"{row.family}-{at}") for row in READ for at, text in enumerate(row.examples)]
# In whatever pieces: the first example of each family, and with the full number of examples all of them.
TORN = [
    pytest.param(*one.values, id=one.id, marks=[pytest.mark.further] * (not str(one.id).endswith("-0")))
    for one in EXAMPLES
]
# Words begin a call where a line or a sentence begins; what needs a line of its own, or the whole rest, gets it.
BEFORE = ("", "I'll look that up.\n", "I'll look that up. ", "See {x}, [1] and `<tool_call>`:\r\n\r\n", "é漢😀: ")
AFTER = ("", "\nThat was it.", " and {more} <b>text</b>", "\r\n\r\nDas war's. 😀")
prose = st.sampled_from([
    "I'll look that up.\n", "Action: think about it\n",
    "The functools module, functools[0] and functools.reduce. ",
    "a commentary to=nobody, call: me. ", "`<tool_call>` and '[TOOL_CALLS]' are marks. ", "```\n`</tool_call>`\n```\n",
    "{x} and {a: b c} and [1] ", '{"name": "Bob", "age": 3}\n', "<b>search</b> and a < b > c ",
    "search is a word, so is get_time\n", "é漢😀\r\n", "It's so: [link](https://x/y).\n", "⏺ Working on it\n",
    "⏺ search: x\n", "The <tool_call> tag, and <function= too. ", "search(query='x') is how it's written.\n",
    "I <think> so. ",
])  # fmt: skip
examples = st.sampled_from([text for row in READ for text in row.examples])


def fits(row: Any, text: str, before: str, after: str) -> bool:
    """True where the row's form may stand between these texts: some need a line of their own, or the end."""
    begins_line = not before or before.endswith("\n")
    alone = row.reader is Reader.LINES or (row.reader is Reader.JSON and row.place is Place.LINE)
    to_the_end = alone or text.endswith(("]\n" + ARGUMENTS, "code<|message|>" + ARGUMENTS))
    return (row.place is not Place.LINE or begins_line) and not (to_the_end and after)


def surroundings(row: Any, text: str) -> list[str]:
    """The example with text before and after it, as far as its form goes, and with the line ends of Windows."""
    forms = (text, text.replace("\n", "\r\n"))
    return [b + form + a for b in BEFORE for a in AFTER if fits(row, text, b, a) for form in forms]


@pytest.mark.parametrize(("row", "text"), EXAMPLES)
def test_a_row_is_read(row, text):
    """Each example is one call, and nothing of it is text; so it is with the line ends of Windows."""
    for form in (text, text.replace("\n", "\r\n")):
        assert whole(form, BOX) == ([CALL], False, "")


@pytest.mark.parametrize(("row", "text"), TORN)
def test_a_row_is_the_same_streamed(row, text):
    """In one piece and character by character, with text around it: the calls and the text of the whole answer."""
    for full in surroundings(row, text):
        told = whole(full, BOX)
        assert told.calls == [CALL]
        assert play([full], BOX) == told
        assert play(list(full), BOX) == told


@pytest.mark.parametrize(("row", "text"), TORN)
def test_a_row_may_be_cut_at_every_byte(row, text):
    """Wherever a stream is cut, in the middle of a character too, nothing leaks: what has left is the prose before."""
    before, after = "Ja, é:\n", "\nDone." if fits(row, text, "", "x") else ""
    told = whole(before + text + after, BOX)
    for pieces in byte_cuts(before + text + after):
        assert play(pieces, BOX) == told
        assert inked(before).startswith(inked("".join(live(pieces, BOX))))


@pytest.mark.parametrize(("row", "text"), EXAMPLES)
def test_a_row_in_a_fence(row, text):
    """A code fence around a call, and around the text before it, changes nothing for a stream."""
    for full in (f"Here:\n```\n{text}\n```\nDone.", f"```xml\n{text}\n```", f"```\nls -l\n{text}\n```"):
        assert play(list(full), BOX) == play([full], BOX) == whole(full, BOX)


@pytest.mark.parametrize(("row", "text"), EXAMPLES)
def test_a_row_twice_is_two_calls(row, text):
    """No call of several is lost, streamed or not. (The same call twice is one: test_attempt_equal_calls.py.)"""
    for between in ("", "\n", "\nAnd then:\n"):
        if fits(row, text, between or "x", "x"):
            both = text + between + write_query(text, "y")
            told = whole(both, BOX)
            assert told.calls == [CALL, (CALL[0], {"query": "y"})]
            assert play(list(both), BOX) == told


@settings(deadline=None, max_examples=300)
@given(st.lists(prose, max_size=3), examples, st.lists(prose, max_size=2), st.lists(st.integers(1, 12), min_size=1))
@example(["I use "], 'search[ARGS]{"query": "x"}', [], [1])
@example(['{"name": "Bob", "age": 3}\n', "```\n`</tool_call>`\n```\n"], "<tool>{}</tool>", [], [1])
@example(["the "], 'commentary to=functions.search json{"query": "x"}', [], [3])
def test_prose_around_a_call_and_random_cuts(before, text, after, sizes):
    """Prose that talks of marks, quotes them or looks like them stands before and behind a call: a stream in any
    pieces is the whole answer."""
    full = "".join([*before, text, *after])
    assert play(cut_at(full, sizes), BOX) == whole(full, BOX)


@pytest.mark.parametrize(("row", "text"), EXAMPLES)
def test_a_call_behind_a_mark_that_is_none(row, text):
    """What a mark in the prose holds back takes no call along that begins behind it."""
    for mention in ("⏺ Working on it\n", "⏺ search: x\n", "We say <tool_call> for it\nand so on:\n"):
        told = whole(mention + text, BOX)
        assert play(list(mention + text), BOX) == told, mention
        assert told.calls == [CALL] or "<tool_call>" in mention  # a closer of the call's own may be taken for its


@settings(deadline=None, max_examples=300)
@given(st.lists(nearly_calls | prose | examples, max_size=5), st.lists(st.integers(1, 12), min_size=1))
def test_any_text_has_the_same_calls_streamed(parts, sizes):
    """Whatever a text is made of, what it calls and whether it is refused doesn't depend on how it came."""
    full = "".join(parts)
    streamed, told = play(cut_at(full, sizes), BOX), whole(full, BOX)
    assert (streamed.calls, streamed.refused) == (told.calls, told.refused)


def malformed_calls() -> list[Any]:
    """The recorded texts that are calls, with the tools that they call."""
    found = []
    for case in records("malformed_tool_calls"):
        if case["expected"] is not None and case["kind"] != "json_text":
            found.append(pytest.param(case["raw"], box_of(case["expected"]), id=case["kind"]))
        elif case["kind"] == "tool_text":
            names = dict.fromkeys(re.findall(r"(?:call:|functions\.|[=\[\"]|^)([a-z][\w-]{2,})", case["raw"]))
            found.append(pytest.param(case["raw"], made([tool(name, {}) for name in names]), id=case["raw"][:20]))
    return found


@pytest.mark.parametrize(("text", "box"), malformed_calls())
def test_recorded_calls_are_the_same_streamed(text, box):
    """What models really wrote, well or badly: whole, in characters and cut at every byte, the outcome is the same."""
    told = whole(text, box)
    assert told.calls or told.refused
    assert play(list(text), box) == told
    assert play(list("Sure.\n" + text), box) == whole("Sure.\n" + text, box)
    for pieces in byte_cuts(text):
        assert play(pieces, box) == told


MENTIONS = [
    "Action: think about it, and the Action Input: follows. ", "Action: search\nThen I look at it. ",
    "The functools module has functools[0], and my_functools[1] too. ",
    "It says to=functions.search, which is a header. ", "A commentary to=functions.other {1} is none. ",
    "Use the `<tool_call>` tag, or '[TOOL_CALLS]', or \"</tool_call>\". ",
    "```\nUse `<tool_call>` and `</tool_call>` for it.\n```\n",
    "In prose a <tool_call> is only a word, and so is [TOOL_REQUEST] here. ",
    "Call: me. call:me, functions.me and search me. ", "search[0] and search.y and search: x\n",
    "A <scratch> tag, <b>bold</b>, <p>\n<div class='a'>text</div> and a<b>c. ",
    "xto=functions.search and unfunctools[{1}] ",
    "<tool_calling> and <function_caller> and <x:tool_calm> are tags. ",
    "analysis of it: commentary. assistant. final. ",
]  # fmt: skip


@pytest.mark.parametrize("text", MENTIONS)
def test_what_only_looks_like_a_mark_is_released(text):
    """Prose that mentions marks, or begins like one and goes on otherwise, is prose to the letter, and has left long
    before the answer ends."""
    full = text + "And so it goes on, without a call at all. " * 8
    for pieces in ([full], list(full), cut_at(full, [5])):
        assert play(pieces, BOX) == whole(full, BOX) == ([], False, inked(full))
        assert full.startswith("".join(live(pieces, BOX)))
        assert len("".join(live(pieces, BOX))) > len(full) - 300


WORDS = ["a", "to", "as", "call", "calls", "analysis", "commentary", "assistant", "functions", "functools", "final"]
WORDS += ["Action", "search", "get", "get_time", "the", "tool", "I'm", "(so)", "f", "s", "don't", "é", "漢"]


@given(st.lists(st.sampled_from(WORDS), min_size=1), st.lists(st.integers(1, 9), min_size=1))
def test_in_the_middle_of_a_sentence_no_word_waits(said, sizes):
    """Words that begin calls, and the names of tools, delay nothing where they are ordinary words."""
    pieces = cut_at("We say " + " ".join(said) + ", then.", sizes)
    assert live(pieces, BOX) == pieces


@given(st.lists(st.sampled_from(["A ", "To ", "The ", "Call ", "It ", "x\n", "Final\n", "So. "]), min_size=1))
def test_where_a_sentence_begins_a_word_waits_for_a_character(said):
    """A word that may be the first of a mark is settled by the next character or two, never later."""
    text = "".join(said) + "end"
    waiting = 0
    for piece, left in zip(text, live(list(text), BOX), strict=True):
        waiting += len(piece) - len(left)
        assert waiting <= 2


def test_behind_a_sentence_a_name_counts_to_the_letter():
    """Where a sentence begins, a word that is a tool's name but for its case is a word, and waits for nothing."""
    pieces = list("Yes, it is. Search on, and: Get_time. Functions and Commentary. To it.")
    assert live(pieces, BOX) == pieces


@pytest.mark.parametrize("tag", ["scratch", "tool_use", "|action|", "json:call"])
@pytest.mark.parametrize(
    "call", ['{"name": "search", "arguments": {"query": "x"}}', '[search(query="x")]', "search[ARGS]{}"]
)
def test_a_tag_around_a_call_goes_with_it(tag, call):
    """Any tag that stands right around a call is a frame of it, streamed as well; around prose it is prose."""
    closing = "|/" + tag[1:] if tag[0] == "|" else "/" + tag
    framed, prose = (f"So:\n<{tag}>\n{inner}\n<{closing}>" for inner in (call, "no call"))
    assert play(list(framed), BOX) == play([framed], BOX) == whole(framed, BOX)
    assert whole(framed, BOX).text == ("So:" if "[ARGS]" not in call else "")
    assert play(list(prose), BOX) == whole(prose, BOX) == ([], False, inked(prose))


@pytest.mark.parametrize(("row", "text"), EXAMPLES)
def test_the_gate_holds_what_the_row_opens_with(row, text):
    """Something begins right where the example begins, and its every beginning is held."""
    at = len(text) - len(text.lstrip())
    start, _, found = find_call_start(prepare_names(BOX.names), text, at, Place.LINE)
    assert start == at
    assert isinstance(found, CallStart)
    assert all("".join(live([text[:end]], BOX)).strip() == "" for end in range(len(text)))


@pytest.mark.parametrize("row", [row for row in READ if row.reader is Reader.ENVELOPE], ids=lambda row: row.family)
def test_envelopes_open_and_close(row):
    """The first example begins with an opener of its row, and ends with a closer where it needs one; a closer without
    a call is dropped."""
    text = row.examples[0]
    assert re.compile("|".join(row.opens), re.IGNORECASE).match(text)
    closed = re.search(f"(?:{'|'.join(row.closes)})\\Z", text, re.IGNORECASE) if row.closes else None
    assert closed or row.endless
    if closed:
        assert whole("Look. " + closed[0], BOX).text.strip() == "Look."
        assert play(list("Look. " + closed[0]), BOX) == whole("Look. " + closed[0], BOX)


@pytest.mark.parametrize("row", [row for row in CALL_FORMATS if row.compared], ids=lambda row: row.family)
def test_the_loop_check_sees_what_it_compares(row):
    """The third equal call of an answer convicts in every row that is compared, two don't, and neither do others."""
    text = row.examples[0]
    other = text.replace("x", "y")

    def loop(answer: str) -> Any:
        return finish(step(Scan(), answer)[0])[1]

    assert loop(f"{text}\n" * 3) is not None
    assert loop(f"{text}\n" * 2) is None
    assert loop(f"{text}\n{other}\n" * 2) is None


def test_no_mark_is_longer_than_the_loop_check_looks():
    """A mark that is cut in two lies in the text that is kept."""
    longest = [
        sum(int(piece[1] or 1) for piece in re.findall(r"(\[[^\]]+\]|\\?.)(?:\{\d+,(\d+)\}|\?)?", pattern))
        for row in CALL_FORMATS
        for pattern in (*row.compared, *(row.closes if row.compared else ()))
    ]
    assert max(longest) < DELIMITER_CHARS


def test_the_grammar_writes_the_first_row():
    """What a grammar makes a model write is opened, closed and read by the table."""
    opener, closer = HERMES.writes
    assert CALL_FORMATS[0] is HERMES
    assert (WRITTEN_BY_THE_GRAMMAR.start, WRITTEN_BY_THE_GRAMMAR.end) == (opener, closer)
    assert OPENER.fullmatch(opener)
    assert CLOSER.fullmatch(closer)
    assert extract_calls(f'{opener}\n{{"name": "search", "arguments": {{"query": "x"}}}}\n{closer}', BOX).calls


ROWS_OF_SIGNS = sorted({start.head for row in CALL_FORMATS for start in row.starts if start.head})


@pytest.mark.parametrize("pattern", ROWS_OF_SIGNS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_beginnings_are_those_of_the_pattern(pattern, data):
    """Each beginning of what a pattern matches is a beginning by the derived expression."""
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    begun = re.compile(beginnings(pattern))
    for end in range(len(text)):
        assert begun.match(text[:end])


def test_of_no_alternatives_nothing_matches():
    """Law: a row without a mark of a kind stands nowhere, not everywhere."""
    assert compile_any(()).search("any text") is None
