"""The law of the prose around calls: the same text leaves whole and streamed."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.tools.turns import TURNS
from reliability.types import CallDelta, Hold, Text
from tests.support.call_values import box_for
from tests.support.extracting import CALL
from tests.support.renderings import ALL
from tests.support.streaming import cut_at, inked, play
from tests.support.value_paths import judge_events

BOX = box_for(search={"query": "x"}, write_file={"path": "a.txt"})
CALLS = (("search", {"query": "x"}), ("write_file", {"path": "a.txt"}))
RUNS_ON = {"name and json"}  # a call only where it is all there is
blanks = st.sampled_from(["", " ", "\n", "\n\n", "\n  ", " \n\n    ", "\r\n\r\n", "\t"])
words = st.sampled_from(["", "I look.", "Plan:\n\n- a\n- b", "Is it\n\n    indented?", "Ça va, 好。"])
prose = st.tuples(blanks, words, blanks).map("".join)


def read(pieces: Sequence[str], hold: Hold) -> tuple[str, list[str], object]:
    """What leaves for the client: the text, the names of its calls, and the flaw."""
    events, judged = judge_events([[Text(piece)] for piece in pieces], BOX, hold)
    text = "".join(event.text for event in events if isinstance(event, Text))
    return text, [event.name for event in events if isinstance(event, CallDelta) and event.name], judged.flaw


def is_apart(parts: Sequence[str]) -> bool:
    """Whether a line break stands between each call and the words around it."""
    before = all(not part or "\n" in part[len(part.rstrip()) :] for part in parts[:-1])
    return before and all(not part.strip() or "\n" in part[: len(part) - len(part.lstrip())] for part in parts[1:])


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in RUNS_ON])
@settings(max_examples=10, deadline=None)
@given(
    before=prose, between=st.none() | prose, behind=prose, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3)
)
def test_the_same_text_leaves_whole_and_streamed(kind, before, between, behind, sizes):
    """Law: however it is cut, held or streamed, an answer is one text, white space included, with the same calls. Where
    the call stands on lines of its own, what leaves are the words around it, and no line joins another."""
    parts = [before, behind] if between is None else [before, between, behind]
    second = "" if between is None else between + ALL[kind](*CALLS[1])
    answer = before + ALL[kind](*CALLS[0]) + second + behind

    told, named, flaw = read([answer], Hold.ALL)

    for hold in (Hold.TOOL_CALLS, Hold.ALL):
        again = read(cut_at(answer, sizes), hold)
        assert again[1:] == (named, flaw)
        assert again[0] == told or flaw is not None  # nothing of a refused answer is delivered at its end
    if kind == "harmony analysis":  # its message goes on to the end
        return
    if flaw is None and len(named) == len(parts) - 1 and is_apart(parts):
        assert told.split() == " ".join(parts).split()
        assert inked(told) == inked("".join(parts))


def write_out(pattern: str) -> str:
    """A text that a pattern of the table stands for."""
    return re.sub(r"\\(.)|\[(.)[^\]]*\]", lambda sign: sign[1] or sign[2], pattern)


@pytest.mark.parametrize("own", [write_out(own) for row in TURNS for own in row.own])
@pytest.mark.parametrize(
    "kind", ["hermes", "qwen3_coder", "glm", "harmony", "pythonic", "bare", "python alone", "react"]
)
def test_the_opening_of_the_own_turn_leaves_in_no_form(own, kind):
    """Law: a model that opens its turn once more, in its own family's words or another's, says what stands behind."""
    for blank in ("", "\n\n"):
        for answer, told, count in (
            (ALL[kind](*CALLS[0]), "", 1),
            ("The file has 3 lines.", "The file has 3 lines.", 0),
        ):
            text = own + (blank or "\n" * own[-1].isalpha()) + answer
            assert read([text], Hold.ALL) == (told, ["search"] * count, None)
            assert all(
                read(cut_at(text, [size]), hold) == (told, ["search"] * count, None)
                for size in (1, 5, 40)
                for hold in (Hold.TOOL_CALLS, Hold.ALL)
            )


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```json{}```", "```\n{}```", "````json\n{}\n````"])
@pytest.mark.parametrize("behind", ["", "```python\nx = 1\n```", "Done."])
def test_fences_that_are_glued_together_are_two(fence, behind):
    """Law: the fence of one call may be closed and the next one opened in one row of backticks: of neither anything is
    left as text, and what stands behind them keeps its own."""
    text = fence.format(CALL) + fence.format(CALL.replace('"x"', '"y"')) + behind
    for size in (1, 7, len(text)):
        found = play(cut_at(text, [size]), BOX)
        assert ([call[1] for call in found.calls], found.text) == ([{"query": "x"}, {"query": "y"}], inked(behind))


@pytest.mark.parametrize("call", ["<function=search>\n<parameter=query>\nx\n</parameter>\n</function>", CALL])
@pytest.mark.parametrize("block", ["```python\nx = 1\n```", "```\n```"])
def test_a_call_that_is_glued_to_a_fence_is_made(call, block):
    """Law: three backticks right before a tag are a fence, no inline code: the call behind them is one, and read."""
    text = f"So:\n{block}{call}"
    for size in (1, 7, len(text)):
        assert play(cut_at(text, [size]), BOX).calls == [("search", {"query": "x"})]
