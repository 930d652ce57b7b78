"""Steps, work that repeats a call, and the loops that look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import LoopConfig, Stage
from reliability.loops.comparison.findings import Call, Result
from reliability.loops.leading_steps import NUMBER_MAX, acts, find_entities, leads_on, read_number, read_times
from tests.evals.step_cases import COUNTS, StepCase, list_stuck, list_work
from tests.support.conversation import stages

CONFIG = LoopConfig()
POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold


def named(case: StepCase) -> str:
    return case.name


@pytest.mark.parametrize("case", list_work(), ids=named)
def test_work_without_a_number_has_the_limits_of_a_poll(case: StepCase) -> None:
    """Law: a step that leads on is nudged at most once, not before a poll, and not broken before a poll."""
    found = stages(case.build(max(COUNTS), "Please go on until it is right."))
    assert found[: POLL_NUDGE - 1] == [None] * (POLL_NUDGE - 1)
    assert Stage.BREAK not in found[: POLL_BREAK - 1]
    assert found.count(Stage.WARN) <= 1


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("case", list_work(), ids=named)
def test_work_that_is_asked_for_is_done(case: StepCase, count: int) -> None:
    """Law: where the request names a number, no step up to that number is nudged or broken."""
    assert set(stages(case.build(count, f"Do it {count} times, please."))) == {None}


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_a_loop_that_looks_like_work_is_ended(case: StepCase) -> None:
    """Law: a loop is nudged by its fourth lap and broken by its sixth; an error that repeats what the call said by its
    eleventh; places where there is nothing, like a poll."""
    found = stages(case.build(POLL_BREAK, "Please find out what is wrong."))
    assert Stage.WARN in found[:4]
    error = "%a" in case.arguments and "error" in case.result.lower()
    limit = POLL_BREAK if case.empty else 2 * CONFIG.break_threshold + 1 if error else CONFIG.break_threshold + 1
    if "turns" in case.figures:
        limit = 2 * CONFIG.break_threshold - 1  # the two results in turn are one repetition
    assert Stage.BREAK in found[:limit]


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_a_number_in_the_request_spares_no_loop(case: StepCase) -> None:
    """Law: a figure in the request is no licence for what isn't a step."""
    assert Stage.BREAK in stages(case.build(POLL_BREAK, "Look at all 12 of them."))


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_so_many_times_are_asked_for(case: StepCase) -> None:
    """Law: who says how often a thing is to be done asks for no loop before that, whatever the thing is, but for the
    errors of one tool."""
    if "error" not in case.result.lower():
        assert set(stages(case.build(12, "Do it 12 times."))) == {None}
    assert Stage.BREAK in stages(case.build(2 * POLL_BREAK, "Do it 12 times."))


@pytest.mark.parametrize(
    ("request_text", "times"),
    [
        ("Run the tests 10 times.", 10),
        ("a dozen times", 12),
        ("6x, please", 6),
        ("zehnmal, nein: zwölf Mal", 12),
        ("doce veces", 12),
        ("按六次", 6),
        ("二十五次", 25),
        ("10 times faster, 3 times a day, 100 times the size, 6x9, normal, 2026 times", 0),
        ("Look at all 12 of them.", 0),
    ],
)
def test_how_often_is_read(request_text: str, times: int) -> None:
    """A number with a word for repetition; a comparison and a rate are none."""
    assert read_times(request_text) == times


@pytest.mark.parametrize(
    ("request_text", "number"),
    [
        ("press Down 12 times", 12),
        ("add six apples to the cart", 6),
        ("create 8 tickets", 8),
        ("Insert twenty-five rows", 25),
        ("drücke zwölfmal nach unten", 12),
        ("añade ocho manzanas", 8),
        ("ajoute quinze lignes", 15),
        ("two dozen? no: a dozen", 12),
        ("look at issue #41 on port 8080, version 3.12, at 12:30", 0),
        ("Fix the build.", 0),
    ],
)
def test_the_number_of_a_request_is_read(request_text: str, number: int) -> None:
    """Digits and words count, in four languages; what only names something doesn't."""
    assert read_number(request_text) == number


@given(st.text(max_size=80))
def test_any_request_has_a_number_within_bounds(text: str) -> None:
    """Law: every text is read, and no number is larger than the bound."""
    assert 0 <= read_number(text) <= NUMBER_MAX
    assert 0 <= read_times(text) <= NUMBER_MAX


def test_who_acts_and_who_leads_on() -> None:
    """Reading, checking, editing a file and shells are no steps; neither is a failure, a refusal or a page of text."""
    assert all(acts(Call(name)) for name in ("press_key", "create_ticket", "nextTrack", "get_next_page", "roll"))
    assert not any(acts(Call(name)) for name in ("read_file", "get_order", "edit_file", "bash", "run_tests", ""))
    assert not acts(Call("insert", '{"path": "a.py", "text": "x"}'))
    assert leads_on(Result("row 7 is selected"))
    assert not any(map(leads_on, [None, Result("x" * 999), Result("Error: no"), Result("already at the end")]))


def test_what_a_step_has_made_is_named_by_its_id() -> None:
    """A random id is what was made, but not where it names the request."""
    new = "5b0c9a52-1f7e-4a11-9d20-52f1b6a0c9aa"
    assert find_entities(f'{{"id": "{new}"}}') == {new}
    assert find_entities(f'{{"request_id": "{new}", "ts": 1760000001}}') == frozenset()
