"""What stands between an opener and its closer."""

import re

import pytest

from reliability.tools import Extraction, extract_calls
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS, OPENER, SPEECH_END
from tests.evals.tool_cases import toolbox, written_calls
from tests.support.extracting import BOX, CALL, calls
from tests.support.streaming import cut_at, inked, play, settled, whole


@pytest.mark.parametrize("text", [
    f"<tool_call>{CALL}\n{CALL}</tool_call>", f"<tool_call>{CALL}, {CALL}", f"<tool_call>[{CALL}, {CALL}]</tool_call>",
    '[TOOL_CALLS]search[ARGS]{"query": "x"}search[ARGS]{"query": "x"}',
    '<minimax:tool_call><invoke name="search"><parameter name="query">x</parameter></invoke>\n'
    '<invoke name="search"><parameter name="query">x</parameter></invoke></minimax:tool_call>',
    "[search(query='x'), search(query='x')]", f"{CALL}\n{CALL}",
])  # fmt: skip
def test_one_envelope_may_hold_several_calls(text):
    """All calls of one envelope are found, however they are set apart; prose behind an open one stays."""
    assert calls(text) == [("search", {"query": "x"})] * 2
    assert calls(f"<tool_call>{CALL}\n[1, 2] and more") == [("search", {"query": "x"})]


def test_a_mark_in_the_middle_of_a_line_opens_a_call_in_that_line_only():
    """A mark that prose mentions makes no call of the JSON that a later line shows."""
    data = '{"name": "made_up", "arguments": {}}'
    mentioned = f"I write <tool_call> now and then.\nMore of that, as an example: {data}"
    assert extract_calls(mentioned, BOX) == Extraction(text=mentioned)
    assert [call.name for call in extract_calls(f"So <tool_call> here it is: {data}", BOX).calls] == ["made_up"]
    assert [call.name for call in extract_calls(f"So <tool_call>\n{data}", BOX).calls] == ["made_up"]


TOOLS, _ = written_calls()
WRITTEN = toolbox(TOOLS)
MARKS = [
    "<tool_call>", "</tool_call>", "<tool_calls>", "<longcat_tool_call>", "<function_calls>",
    "</function_calls>", "[TOOL_CALLS]", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<|python_tag|>",
    "<｜DSML｜tool_calls>", "<｜DSML｜invoke", "◁think▷", "<|START_THINKING|>", "<|inner_prefix|>", "<function=",
    "<parameter=", "<invoke name=", "<arg_key>", "<tool_code>", "<tool_sep>", "<find_part>", "<tool>",
    "<|open|>tools<|sep|>", "]<]minimax[>[", "✿FUNCTION✿", "<|tool_calls_section_begin|>", "<|START_ACTION|>",
    "<｜tool▁calls▁begin｜>", "<|tools_prefix|>", "<|plamo:begin_tool_requests:plamo|>", "<start_function_call>",
    "functools", "<|channel|>", "<|message|>", "<|call|>", "call:", "[ARGS]", "[CALL_ID]", "Action:", ">>>",
    "-> tool/function_call", "function call<|role_sep|>", "commentary to=functions.", "<think>", "</think>",
    "[THINK]", "&lt;tool_call&gt;", "&lt;/tool_call&gt;", "&lt;function=",
]  # fmt: skip
SENTENCES = [
    "You write a call between {m} and a closing tag. Then it goes on.", "The model writes {m}",
    "Use {m}, then stop.", "It is {m}.", "A call begins with {m} and the name find_part follows.",
    "`{m}` opens a call.", "The mark is `{m}`", "{m} is the mark that opens a call.",
    "- {m} opens it\n- `{m}` too\n", "I use {m} to call.\nThen more prose.\n\nAnd a paragraph.", "({m})",
    "Models wrote {m}\nfor a call.", "```\n{m}\n```\nis how it begins.", "An unclosed `{m}` and {m} here",
]  # fmt: skip
MEANT = [
    "<tool_call>", "I look it up. <tool_call>", "I look it up.\n<tool_call>\n", "<tool_call>find_part of K-7",
    "<tool_call>\nI look it up\n</tool_call>", "I look it up: <tool_call>the part</tool_call>",
    "find_part K-7 </tool_call>", '{"name": "find_part", "arguments": {</tool_call>',
]  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_prose_that_talks_of_marks_is_prose(sentence):
    """No mark in a sentence is a call or a broken one, quoted or not, closed or not."""
    for mark in MARKS:
        text = sentence.format(m=mark)
        for size in (1, 4, 1000):
            assert play(cut_at(text, [size]), WRITTEN) == ([], False, inked(text)), text


@pytest.mark.parametrize("text", MEANT)
def test_a_mark_that_was_meant_is_a_broken_call(text):
    """What begins as a call does and can't be read is asked for again, not delivered as an answer."""
    for size in (1, 4, 1000):
        assert play(cut_at(text, [size]), WRITTEN) == whole(text, WRITTEN) == ([], True, "")


ENVELOPES = [row for row in CALL_FORMATS if row.reader is Reader.ENVELOPE]
EXAMPLES = [(example, row) for row in ENVELOPES for example in row.examples if row.closes]
ANSWER = "The sky is clear."


def _closers(example, row):
    """The closers with which an example ends."""
    return re.search(rf"(?:(?:{'|'.join(row.closes)})\s*)+\Z", example, re.IGNORECASE)


@pytest.mark.parametrize(
    ("example", "row"), EXAMPLES, ids=[f"{row.family}-{at}" for at, (_, row) in enumerate(EXAMPLES)]
)
def test_an_envelope_that_holds_nothing_is_dropped(example, row):
    """Nothing in it is no call: the answer beside it is the answer, whole and streamed."""
    opener, closers = re.match("|".join(row.opens), example), _closers(example, row)
    if opener is None or (closers and OPENER.search(closers[0])):
        return
    for inside in ("", "\n", "[]", "\n[]\n", "{}", "null", "\nNone\n", "N/A"):
        if closers is None and "[" not in inside:
            continue
        block = opener[0] + inside + (closers[0] if closers else "")
        for text in (f"{ANSWER}{block}", f"{ANSWER}\n\n{block}\n", f"{block}\n\n{ANSWER}"):
            if re.search("|".join(row.opens), text) is not None:
                assert settled(text, WRITTEN, (1, 4, 1000)) == ([], False, inked(ANSWER))


@pytest.mark.parametrize(
    ("example", "row"), EXAMPLES, ids=[f"{row.family}-{at}" for at, (_, row) in enumerate(EXAMPLES)]
)
def test_a_closer_that_closes_nothing_is_dropped(example, row):
    """With nothing like a call before it, it is lost, and so are those of a call's parts before it."""
    closers = _closers(example, row)
    if closers is None or SPEECH_END.search(closers[0]) or OPENER.search(closers[0]):  # it may mean something else
        return
    ends = [inner + closers[0] for inner in ("", "</parameter>\n</function>\n", "</invoke>\n")]
    for text in (text for end in ends for text in (f"{ANSWER}\n{end}", f"{end}\n\n{ANSWER}", f"{ANSWER}{end}")):
        assert settled(text, WRITTEN, (1, 4, 1000)) == ([], False, inked(ANSWER))


@pytest.mark.parametrize("inner", ["</parameter>", "</function>\n", "</invoke>", "</arg_value>"])
def test_a_part_that_closes_at_the_head_is_dropped(inner):
    """Nothing has opened it; further on it may be what the answer shows."""
    assert whole(f"{inner}\n{ANSWER}", WRITTEN).text == inked(ANSWER)
    shown = f"<config>\n  <x>\n  {inner.strip()}\n{ANSWER}"
    assert settled(shown, WRITTEN, (1, 4, 1000)).text == inked(shown)


def test_functionary_v2_says_to_whom_it_speaks():
    """Law: what is for all is the answer, without its marks, and what is for a tool is its call, whole and streamed."""
    one, two = (
        "<|recipient|>{}\n<|content|>{}".format(*call) for call in (("search", '{"query": "x"}'), ("get_time", "{}"))
    )
    head = "<|from|>assistant\n"
    text = f"{head}<|recipient|>all\n<|content|>I look.\n{head}{one}\n{head}{two}<|stop|>"
    told = settled(text, BOX, (1, 5, 40))
    assert (told.calls, told.text) == ([("search", {"query": "x"}), ("get_time", {})], "Ilook.")
    for begun in (text.partition("<|recipient|>")[2], text.partition("I look.\n")[2].partition("<|recipient|>")[2]):
        told = settled(begun, BOX, (1, 5, 40))
        assert (told.calls, told.text) == (calls(text), "Ilook." if "I look" in begun else "")


@pytest.mark.parametrize("said", ["I look.", "I look", "I look (twice)", "I look\n", "```\n1\n```\n", "a <b>c</b>"])
@pytest.mark.parametrize("name", ["search", "SEARCH", "functions.search"])
def test_functionary_v3_goes_on_behind_its_words(said, name):
    """Law: the call may stand right behind the text, wherever that ends; the head of the text is no part of it."""
    call = f'>>>{name}\n{{"query": "x"}}'
    for text in (f">>>all\n{said}{call}", f"{said}{call}>>>get_time\n{{}}", f"<think>Hm.</think>>>>all\n{said}{call}"):
        told = settled(text, BOX, (1, 5, 40))
        assert (told.calls[0], told.text) == (("search", {"query": "x"}), inked(said))
    shown = f"{said}\n\nI write `>>>all` and >>>all, and `>>>search`."
    assert settled(shown, BOX, (1, 5, 40)).text == inked(shown)
