"""The evaluation itself: its small set of runs passes the floor, and a broken detector would not."""

import random

from reliability.loops import Stage
from tests.evals import loops_eval
from tests.evals.made_laps import laps_of


def test_the_small_set_is_above_the_floor() -> None:
    """No successful run is broken or nudged, and every made loop is found at lap 3 and broken at lap 5."""
    runs = loops_eval.load_runs(loops_eval.FIXTURE)
    assert len(runs) >= 5
    for row in loops_eval.verdict_rows(runs):
        assert row.ok, row


def test_the_loops_and_pollers_of_agents_are_told_apart() -> None:
    """Each case is nudged and broken at its answer, or never: each shows what one rule is for."""
    assert [row for row in loops_eval.case_rows() if not row.ok] == []


def test_a_run_that_loops_is_counted() -> None:
    """A successful run in which a call was repeated five times counts as broken."""
    runs = loops_eval.load_runs(loops_eval.FIXTURE)
    start, turns = laps_of(runs[0]["messages"], 1, random.Random(0))
    looped = runs[0]["messages"][:start] + turns * 5
    assert loops_eval.worst_stage(looped) is Stage.BREAK
    broken = next(iter(loops_eval.verdict_rows([{"success": True, "messages": looped}])))
    assert not broken.ok


def test_made_loops_are_found_and_honest_repetitions_left_alone() -> None:
    """Every made loop is nudged and then broken in time, and what only looks like one isn't touched."""
    assert [row for row in loops_eval.made_rows() if not row.ok] == []


def test_a_made_case_can_fail() -> None:
    """A loop that nobody sees, one that is broken without a nudge, and honest work that is nudged: all are failures."""
    loop, work = (next(case for case in loops_eval.build_cases() if case.loops is kind) for kind in (True, False))
    verdicts = [(None, None), (None, 5), (5, 5), (3, 9), (7, 8), (3, 5)]
    assert [loop.is_met(*verdict) for verdict in verdicts] == [False] * 5 + [True]
    assert not work.is_met(3, None)


def test_the_history_of_the_benchmark_has_its_size() -> None:
    """The cost is measured on 500 messages and on loops, and a time comes out."""
    runs = loops_eval.load_runs(loops_eval.FIXTURE)
    assert len(loops_eval.long_history(runs, 500)) == 500
    assert len(list(loops_eval.cost_rows(runs, rounds=3))) == 2


def test_an_answer_is_stopped_in_time_or_left_alone() -> None:
    """Every made repetition inside an answer is stopped within its characters, and honest ones are never."""
    assert [row for row in loops_eval.answer_rows([]) if not row.ok] == []
