"""The same error, the same text, thoughts alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import LoopConfig, Stage
from reliability.loops.comparison.findings import SeenCall, Turn
from reliability.loops.history import TEXT_PERIOD_MAX, TEXTS_MAX, _find_same_errors, _find_same_text
from reliability.loops.turn_sequence import TurnSequence
from tests.evals.step_cases import StepCase
from tests.support.conversation import USER, acted, ask, loop_at, quiet, stages


def failed(error: str, number: int, tool: str = "edit") -> Turn:
    return Turn((SeenCall(tool, f'{{"n": {number}}}'),), (error,))


COUNTING = LoopConfig(duplicate_threshold=1, break_threshold=0)


def count(*turns: Turn) -> int:
    found = _find_same_errors(TurnSequence(turns, COUNTING, None))
    return 0 if found is None else found.repetitions


def count_texts(turns: list[Turn], period: int) -> int:
    found = _find_same_text(turns, COUNTING, None, period)
    return 0 if found is None else found.repetitions


def test_errors_are_counted_whatever_was_asked() -> None:
    """Three failures of one tool with the same words are three; another word or a success ends the row."""
    lost = [failed("Error: the disk is full", n) for n in range(3)]
    assert count(*lost) == 3
    assert count(failed("Error: no right to it", 9), *lost) == 3
    assert count(*lost, Turn((SeenCall("edit"),), ("done",))) == 0


def test_a_shell_and_a_bare_word_are_no_row() -> None:
    """A shell does something else with every argument, and "error" says too little."""
    assert count(*[failed("Error: the disk is full", n, "bash") for n in range(3)]) == 0
    assert count(*[failed("Error", n) for n in range(3)]) == 0


A, B, C = (Turn(text=text) for text in ("I can't open it, sorry.", "Let me look once more.", "Shall I go on then?"))


def test_texts_in_turn_are_counted_by_rounds() -> None:
    """A round that has begun counts, as a repetition of calls does."""
    assert count_texts([A, A, A], 1) == 3
    assert [count_texts(([A, B] * 9)[:n], 2) for n in (1, 2, 3, 4, 5, 6)] == [0, 1, 2, 2, 3, 3]
    assert count_texts([A, B, C, A, B, C], 3) == 2
    assert count_texts([A, A, A, A], 2) == 0


def test_a_call_ends_the_row_and_a_written_one_does_not() -> None:
    """A native call is work between two texts; one that stands in the text is the text."""
    assert count_texts([A, Turn((SeenCall("f"),), (None,)), A], 1) == 1
    written = Turn((SeenCall("f"),), (None,), "```\nf\n```", written=True)
    assert count_texts([written, written], 1) == 2


@given(st.lists(st.sampled_from([A, B, C, Turn()]), max_size=90), st.integers(1, TEXT_PERIOD_MAX))
def test_the_count_is_bounded(turns: list[Turn], period: int) -> None:
    """However long the talk is, so many texts are looked at and no more."""
    assert 0 <= count_texts(turns, period) <= TEXTS_MAX


CONFIG = LoopConfig()
POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold
THOUGHT = "I should look at the part %n of it before I go on."


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("think", "ok"),
        ("think", "Your thought has been logged."),
        ("think", ""),
        ("sequentialthinking", '{"thoughtNumber": %a, "thoughtHistoryLength": %n}'),
        ("update_plan", "Plan updated"),
    ],
)
def test_an_agent_that_only_thinks_is_ended(tool: str, result: str) -> None:
    """Law: thoughts alone, however they differ, are nudged when a poll is, and broken when a poll is, where what they
    are answered says nothing new."""
    case = StepCase(tool, f'{{"thought": "{THOUGHT} %a", "thoughtNumber": %a}}', result)
    found = stages(case.build(POLL_BREAK, "Please find out what is wrong."))
    assert found.index(Stage.WARN) == POLL_NUDGE - 1
    assert found.index(Stage.BREAK) == POLL_BREAK - 1


def test_thoughts_that_lead_on_are_no_loop() -> None:
    """Law: thoughts whose results say something new, and thoughts before another call, are free."""
    history = StepCase("think", '{"thought": "%a"}', "ok").build(POLL_BREAK, "Please find out what is wrong.")
    assert loop_at(history, ask("read_file", {"path": "a.py"})) is None
    words = ("doors", "roofs", "walls", "floors", "cellars", "gardens", "fences", "lamps", "pipes", "wires", "stairs")
    results = [f"The reviewer says: look at the {word}" for word in words]
    assert quiet([USER, *[m for result in results for m in acted("think", {"thought": result[-5:] + "?"}, result)]])
