"""What is checked of a run can fail: a bad call, a call as text, a wrong count, a storm are all found."""

import json
from typing import Any

import pytest

from tests.clients.checks import check_answers, check_usage, count_after, find_final, is_shown
from tests.clients.record import Spoken
from tests.clients.wires import Answer, Call

TOOLS = {"read_file": ["path"], "apply_patch": None}
GOOD = Call("read_file", '{"path": "notes.txt"}')


def build(answer: Answer, *, at_s: float = 0.0, ended_s: float = 1.0, status: int = 200) -> Spoken:
    return Spoken(at_s, ended_s, "/chat/completions", {}, TOOLS, status, {"x-request-id": "r"}, answer)


def refuse(at_s: float = 0.0, ended_s: float = 1.0) -> Spoken:
    error = {"code": "loop_detected", "message": "The agent repeats the same call for the 5th time."}
    return build(Answer(error=error), at_s=at_s, ended_s=ended_s, status=422)


@pytest.mark.parametrize("call", [GOOD, Call("apply_patch", "*** Begin Patch", free=True)])
def test_a_good_call_is_not_complained_of(call):
    """A declared tool with what it requires, or a text where the tool takes one."""
    assert check_answers([build(Answer(calls=[call], ended=True))]) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("write_file", "{}"), "isn't declared"),
        (Call("read_file", '{"path": "notes.txt",}'), "no JSON"),
        (Call("read_file", '["notes.txt"]'), "no object"),
        (Call("read_file", "{}"), "path is missing"),
        (Call("read_file", "notes.txt", free=True), "mixed up"),
        (Call("apply_patch", "{}"), "mixed up"),
    ],
)
def test_a_bad_call_is_found(call, words):
    """Each way in which a delivered call can be bad has its words."""
    (wrong,) = check_answers([build(Answer(calls=[GOOD, call], ended=True))])

    assert words in wrong


def test_a_call_as_text_and_an_answer_without_an_end_are_found():
    """Text that holds a call's tag was not read as one; an answer that just stops is no answer."""
    wrong = check_answers([build(Answer("<tool_call>{}</tool_call>", ended=True)), build(Answer("and then"))])

    assert len(wrong) == 2


def report(prompt: int, completion: int) -> dict[str, Any]:
    """Build a report of two attempts, of which the last one was delivered."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    first = {"ran": True, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    return {"attempts": [first, {"ran": True, "usage": usage}, {"ran": False, "usage": None}]}


def test_usage_is_that_of_the_attempt_that_was_delivered():
    """A client that is given other figures than the report has is found; one that is given none isn't counted."""
    asked = [build(Answer(usage=(5, 7), ended=True)), build(Answer(ended=True))]

    assert check_usage(asked, {"r": report(5, 7)}) == (1, [])
    assert check_usage(asked, {"r": report(5, 8)})[0] == 1
    assert "usage (5, 7), reported (5, 8)" in check_usage(asked, {"r": report(5, 8)})[1][0]


def test_a_storm_is_counted_from_the_first_refusal_on():
    """What comes in the minute after it counts, what was under way before, or comes later, doesn't."""
    final = refuse()
    spoken = [build(Answer(ended=True)), final, refuse(0.5, 2.0), refuse(1.5, 2.0), refuse(60.0), refuse(62.0)]

    assert find_final(spoken) is final
    assert count_after(spoken, final) == 2


def test_an_answer_that_is_no_error_ends_nothing():
    """Where all went well there is no end to count from."""
    assert find_final([build(Answer(ended=True))]) is None


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("Error 422: The agent repeats the same call for the 5th time.", True),
        (json.dumps({"error": "x\nThe agent\nrepeats the\n same call"}), True),
        ("Error 422", False),
        ("", False),
    ],
)
def test_the_message_is_shown_or_not(output, shown):
    """The first words of the server's message stand in what the client wrote, however it broke the lines."""
    assert is_shown([refuse()], output) is shown
