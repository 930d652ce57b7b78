"""Turns in a row, and how they compare."""

import json
from typing import Any

from reliability.loops.comparison.findings import SeenCall, Turn
from reliability.loops.thresholds import LoopConfig
from reliability.loops.turn_sequence import TurnSequence

SAID = "the sky is grey, the wall is red, the door is green"


def turn(arguments: dict[str, Any], result: str | None = None, *more: SeenCall) -> Turn:
    call = SeenCall("read", json.dumps(arguments))
    known = None if result is None else result
    return Turn((call, *more), (known, *["noted" for _ in more]))


def count(*turns: Turn, candidate: dict[str, Any] | None = None, near: bool = False) -> int:
    asked = None if candidate is None else turn(candidate)
    row = TurnSequence(turns, LoopConfig(), asked)
    return row.count_repetitions(1, row.has_near_results if near else row.has_same_results)


def test_figures_that_differ_are_the_same_call_where_the_results_say_something() -> None:
    """Other lines of a file with the same content are the same call; what both only acknowledge isn't."""
    ranges = [{"path": "a", "end": n} for n in (10, 20, 30)]
    assert count(*[turn(asked, SAID) for asked in ranges], candidate={"path": "a", "end": 40}) == 4
    assert count(*[turn(asked, "ok") for asked in ranges]) == 1


def test_who_corrects_a_figure_begins_something_new() -> None:
    """After equal calls one with another figure is no further repetition."""
    same = [turn({"path": "a", "end": 10}, SAID)] * 3
    assert count(*same, candidate={"path": "a", "end": 10}) == 4
    assert count(*same, candidate={"path": "a", "end": 40}) == 0


def test_blurred_calls_are_never_nearly_the_same() -> None:
    """Near results count only where the calls are equal to the letter."""
    results = [f"{SAID}; {n}" for n in (7, 3, 9)]
    assert count(*[turn({"path": "a"}, result) for result in results], near=True) == 3
    assert count(*[turn({"path": "a", "end": n}, r) for n, r in enumerate(results)], near=True) == 1


def test_a_thought_beside_a_call_is_none_of_it() -> None:
    """What a model notes beside a call makes no other call; thoughts alone are what they are."""
    thoughts = [SeenCall("think", json.dumps({"thought": word})) for word in ("one", "two")]
    first, second = (turn({"path": "a"}, SAID, thought) for thought in thoughts)
    assert count(first, second) == 2
    row = TurnSequence([Turn((thought,), ("",)) for thought in thoughts], LoopConfig(), None)
    assert row.key(0) != row.key(1)
