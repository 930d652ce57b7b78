"""The same error of one tool."""

from __future__ import annotations

from reliability.loops.comparison.findings import Call, Result, Turn
from reliability.loops.same_error import count_same_errors
from reliability.loops.thresholds import LoopConfig
from reliability.loops.turn_sequence import TurnSequence


def failed(error: str, number: int, tool: str = "edit") -> Turn:
    return Turn((Call(tool, f'{{"n": {number}}}'),), (Result(error),))


def count(*turns: Turn) -> int:
    found = count_same_errors(TurnSequence(turns, LoopConfig(), None))
    return 0 if found is None else found[0]


def test_errors_are_counted_whatever_was_asked() -> None:
    """Three failures of one tool with the same words are three; another word or a success ends the row."""
    lost = [failed("Error: the disk is full", n) for n in range(3)]
    assert count(*lost) == 3
    assert count(failed("Error: no right to it", 9), *lost) == 3
    assert count(*lost, Turn((Call("edit"),), (Result("done"),))) == 0


def test_a_shell_and_a_bare_word_are_no_row() -> None:
    """A shell does something else with every argument, and "error" says too little."""
    assert count(*[failed("Error: the disk is full", n, "bash") for n in range(3)]) == 0
    assert count(*[failed("Error", n) for n in range(3)]) == 0


def test_what_is_not_found_may_be_looked_for_longer() -> None:
    """The limit of "not found" is twice the other."""
    config = LoopConfig()
    found = count_same_errors(TurnSequence([failed("Error: file not found", 1)], config, None))
    other = count_same_errors(TurnSequence([failed("Error: the disk is full", 1)], config, None))
    assert found is not None
    assert other is not None
    assert (found[2], other[2]) == (2 * config.break_threshold, config.break_threshold)
