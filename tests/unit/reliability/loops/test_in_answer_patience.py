"""How long an answer may repeat itself: bounded, counted in what it costs, and only as long as it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Kind, Loop, Stage, finish, open_scan, step
from reliability.loops.in_answer import LEFT_CHARS, PATIENCE_BYTES, Doubt
from tests.support.repeating_texts import LEAD, paragraph, vary
from tests.support.written_calls import CALLS, prose

CYCLE = Loop(kind=Kind.CYCLE, stage=Stage.BREAK, repetitions=6)


def read_to_the_end(text: str, size: int = 32) -> int | None:
    """After how many characters a patient scan stops this text."""
    scan = open_scan(calls=True, patient=True)
    for at in range(0, len(text), size):
        scan, loop = step(scan, text[at : at + size])
        if loop is not None:
            return scan.seen.length
    return None


@pytest.mark.parametrize(
    ("unit", "found"),
    [("The pump runs and then it stops again. ", 500), ("\U0001f600", 500), (paragraph(900, 1), 7_000), ("\n", 300)],
)
def test_a_runaway_is_stopped_within_its_bound(unit, found):
    """Behind where it is found, so many bytes of it and no more, however many a character has."""
    text = LEAD + unit * (40_000 // len(unit))
    stopped = read_to_the_end(text)

    assert stopped is not None
    written = len(text[:stopped].encode())
    assert PATIENCE_BYTES < written <= len(LEAD) + 4 * found + PATIENCE_BYTES
    assert stopped == read_to_the_end(text, 7) == read_to_the_end(text, 50_000)
    assert read_to_the_end(text[: stopped - 33]) is None


@pytest.mark.parametrize("words", [True, False])
def test_copies_that_differ_are_stopped_too(words):
    """Whether or not they are found again each time."""
    stopped = read_to_the_end(LEAD + vary(600, 60, counter=True, words=words))

    assert stopped < 14 * 600 + PATIENCE_BYTES


def test_calls_that_are_written_again_are_not_waited_for():
    """They are complete: there is nothing that could still end."""
    text = CALLS[0].format(n=1) * 4
    assert step(open_scan(calls=True, patient=True), text)[1] == step(open_scan(calls=True), text)[1] is not None


def test_what_has_left_its_repetition_is_free():
    """What comes behind it is not counted, and what comes again is counted on."""
    some = "The pump runs and then it stops again. " * 100
    texts = [some + "".join(f"{n} {prose(60, seed=n)}. " for n in range(30 * k, 30 * k + 30)) for k in range(4)]

    assert read_to_the_end("".join(texts[:2])) is None
    assert len("".join(texts[:2])) > PATIENCE_BYTES + len(some)
    assert len("".join(texts[:2])) < (read_to_the_end("".join(texts)) or 0) < len("".join(texts))


@given(st.integers(1, 4), st.lists(st.integers(1, 3_000), min_size=1, max_size=20))
def test_only_what_is_near_is_one_repetition(width, gaps):
    """Law: each finding counts what was written since the last one, in bytes, unless that one had been left."""
    newest = {1: "a", 2: "é", 3: "あ", 4: "\U0001f600"}[width] * 32
    doubt, at, counted = Doubt(PATIENCE_BYTES).add(CYCLE, 100, newest), 100, 0
    for gap in gaps:
        at, counted = at + gap, counted + (gap if gap <= LEFT_CHARS else 0)
        doubt = doubt.add(CYCLE, at, newest)

    assert doubt.spent == width * counted
    assert doubt.over is (doubt.spent >= PATIENCE_BYTES)
    assert doubt.stands(at + LEFT_CHARS)
    assert not doubt.stands(at + LEFT_CHARS + 1)


def test_a_scan_that_is_not_patient_stops_at_once():
    """As for what is cut: there the first repetition counts."""
    text = LEAD + "And so it goes on and on. " * 40
    assert finish(step(open_scan(calls=True), text)[0])[1] is not None
    assert finish(step(open_scan(calls=True, patient=True), text)[0])[0].doubt.loop is not None
