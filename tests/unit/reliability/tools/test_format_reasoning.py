"""Thinking is not acting: a call in reasoning that was left in the text is none, and what stands behind it is read."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.tools import build_toolbox, format_reasoning
from reliability.tools.format_reasoning import MESSAGES, REASONING, compile_ends, ends_reasoning, find_row, is_used
from tests.evals.tool_cases import written_calls
from tests.support.streaming import cut_at, inked, play, whole
from tests.support.thought_marks import MARKS as FAMILIES
from tests.support.thought_marks import OPENED

TOOLS, SAMPLES = written_calls()
BOX = build_toolbox(TOOLS)
CALL = '<tool_call>\n{"name": "find_part", "arguments": {"code": "K-7"}}\n</tool_call>'
CALLS = [("find_part", {"code": "K-7"})]
MARKS = [(opener.strip(), closer.strip()) for opener, closer, *_ in FAMILIES if "im_start" not in opener]
# Harmony has a channel for reasoning; what is only a call with nothing but it in the answer isn't one in a thought.
INSIDE = [case for case in SAMPLES if case["where"] not in ("alone", "thought")]
PROSE = ["", "Let me see.\n", "I could do ", "Then: ", "\n", "é漢😀 ", "`</think>` ends it. ", "The </think> tag, so. "]


def test_each_family_is_here():
    """Law: each row of the table that is opened in an answer has marks that open it, and marks that close it."""
    for row in (*REASONING, *MESSAGES):
        ends = "|".join((*row.closes, *row.until))
        written = [one for one in OPENED if re.search("|".join(row.opens) or "(?!)", one[0], re.IGNORECASE)]
        assert not row.opens or any(re.search(ends, closer, re.IGNORECASE) for _, closer, *_ in written)


@pytest.mark.parametrize(("opener", "closer"), MARKS)
def test_what_stands_behind_a_thought_is_read(opener, closer):
    """The call behind the reasoning is one, also where the prompt has opened it, and so is the text. In a stream what
    the prompt has opened has left as text, up to the first call in it."""
    for thought, left in (
        (f"{opener}I could do {CALL} but no.{closer}", ""),
        (f"I could do {CALL} but no.{closer}", "Icoulddo"),
        (f"So.\n{closer}", "So."),
    ):
        for between in ("", "\n\n", "Now: "):
            text = thought + between + CALL
            assert whole(text, BOX) == (CALLS, False, inked(between))
            for size in (1, 2, 3, 7, 1000):
                assert play(cut_at(text, [size]), BOX) == (CALLS, False, left + inked(between))


@pytest.mark.parametrize("case", INSIDE, ids=lambda case: case["family"])
def test_no_format_acts_in_a_thought(case):
    """Whatever the form of the call: none in the thought, and one behind it."""
    calls = [(call["name"], call["arguments"]) for call in case["calls"]]
    for text in (
        f"<think>\n{case['text']}\n</think>\nHello.", f"<think>\n{case['text']}",
        f"{case['text']}\n</think>\nYes.",
    ):  # fmt: skip
        assert whole(text, BOX)[:2] == play(cut_at(text, [3]), BOX)[:2] == ([], False)
    behind = f"<think>\n{case['text']}\n</think>\n\n{case['text']}"
    assert whole(behind, BOX).calls == calls
    assert play(cut_at(behind, [5]), BOX) == whole(behind, BOX)


@pytest.mark.parametrize("text", [
    "A `<think>` tag begins it. ", "In prose a <think> is only a word. ", '"</think>" ends it, he said. ',
    "We say </think> for it. ", "'[THINK]' is Magistral's, `[/THINK]` too. ", "I <think> so, and </ think> not. ",
])  # fmt: skip
def test_a_mention_is_no_thought(text):
    """Prose that talks of the marks takes nothing from the calls around it."""
    other = CALL.replace("K-7", "K-8")
    both = [*CALLS, ("find_part", {"code": "K-8"})]
    for full, calls in ((text + CALL, CALLS), (f"{CALL}\n{text}", CALLS), (f"{CALL}\n{text}\n{other}", both)):
        assert whole(full, BOX).calls == calls
        assert play(list(full), BOX) == whole(full, BOX)


pieces_of_text = st.sampled_from(
    [*PROSE, CALL, *(mark for marks in MARKS[:9] for mark in marks), *(case["text"] for case in INSIDE)]
)


@settings(deadline=None, max_examples=400)
@given(st.lists(pieces_of_text, max_size=6), st.lists(st.integers(1, 12), min_size=1))
def test_any_mixture_is_the_same_streamed(parts, sizes):
    """Prose, calls and marks in any order and any pieces: the calls of the whole answer."""
    full = "".join(parts)
    streamed, told = play(cut_at(full, sizes), BOX), whole(full, BOX)
    assert (streamed.calls, streamed.refused) == (told.calls, told.refused)


def judged(rule, text, mark):
    """What a rule says of the first such mark in a text."""
    start = text.index(mark)
    return rule(text, start, start + len(mark))


@pytest.mark.parametrize(("text", "opens"), [
    ("<think>", True), ("  <think> so", True), ("Yes.\n<think> so", True), ("Yes. <think>so", True),
    ("Yes. <think> so", False), ("Tags: <think>, <answer>", False), ("I <think>so", False), ("\n`<think>`", False),
    ('{"a": "Yes. <think>so"}', False), ("Run `cat x: <think>y`", False),
])  # fmt: skip
def test_an_opener_opens_where_a_line_or_a_sentence_begins(text, opens):
    """Law: in a line only glued to what follows; in quotes, code and data never."""
    assert judged(format_reasoning.opens_reasoning, text, "<think>") is opens


@pytest.mark.parametrize(("text", "ends", "used"), [
    ("so</think>yes", True, True), ("so.\n</think>", True, True), ("the </think> tag", False, False),
    ("so. </think> Yes", True, True), ("'</think>'", False, False), ('{"a": "so</think>yes"}', True, False),
    ('{"a": "so", "b": 1}</think>yes', True, True), ('he said "no" and so</think>yes', True, True),
    ("in `a</think>b`", True, False), ("```\nso\n```</think>```json", True, True),
    ("with ```</think>```", False, False),
])  # fmt: skip
def test_a_closer_ends_unless_it_is_talked_about(text, ends, used):
    """Law: behind an opener code and data are the reasoning's; without one they are the answer's."""
    assert judged(ends_reasoning, text, "</think>") is ends
    assert judged(is_used, text, "</think>") is used


def test_each_opener_has_its_own_closers():
    """Law: what closes one family doesn't close another one; what closes turns too counts only behind its opener."""
    solar, magistral = find_row("<|think|>", 0), find_row("x [THINK]", 2)
    assert solar is not None
    assert magistral is not None
    assert compile_ends(solar).search("so<|end|>")
    assert not compile_ends(magistral).search("so<|end|></think>")
    assert find_row("[/THINK]", 0) is None


def test_a_string_that_has_no_end_is_looked_back_for_in_bounded_time():
    """Law: many escaped quotes before a mark are data, and cost no more than a few looks."""
    text = '{"a": "' + 'x\\"' * 100_000 + "</think>"
    assert judged(is_used, text, "</think>") is False
