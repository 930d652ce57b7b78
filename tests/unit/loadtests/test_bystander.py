"""What one client sends costs another nothing: the fuzz of `make bystander`, its pieces, and a short run of it."""

from pathlib import Path

import pytest

from loadtests.bystander import BAR_S, Result, Wait, draw_kinds, find_p99_s, run, sum_up
from loadtests.hostile import BODIES, BODY_BYTES_MAX, SCHEMAS
from loadtests.hostile_answers import ANSWERS, make_pieces
from loadtests.hostile_client import build_raw
from loadtests.hostile_upstream import find_kind
from loadtests.running import short_folder

SEED = 7
# One of each sort of work: reading a body, its history, its answer, and what the tier reads.
SHORT = (
    "500,000 keys of a message", "10,000 messages", "reminders", "12,000 calls of one id",
    "42 results, one stamp each", "42 results of JSON", "long arguments", "huge chunk of [", "huge chunk of marks",
    "100,000 drops of {", "JSON of numbers", "huge arguments of words",
)  # fmt: skip


KINDS = [
    kind if kind in SHORT else pytest.param(kind, marks=pytest.mark.further) for kind in (*BODIES, *SCHEMAS, *ANSWERS)
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_is_within_the_bound_and_comes_again(kind):
    """Law: each kind is a body that the server takes, the same for the same seed, with an answer that exists."""
    raw = build_raw(kind, "a")
    assert len(raw) <= BODY_BYTES_MAX
    assert raw == build_raw(kind, "a")
    wanted = find_kind(raw)
    assert (kind if kind in ANSWERS else wanted) == wanted
    assert next(make_pieces(wanted, "a"))


def test_every_kind_comes_before_one_comes_again():
    """Law: a run of as many cases as there are kinds has each of them."""
    count = len(BODIES) + len(ANSWERS) + len(SCHEMAS)
    assert len(set(draw_kinds(1, count))) == count
    assert draw_kinds(1, 20) == draw_kinds(1, 20) != draw_kinds(2, 20)


def waits(*took_s: float) -> list[Wait]:
    return [Wait(float(at), took, True) for at, took in enumerate(took_s)]


def build_result(*took_s: float) -> Result:
    """Build a run of one case, from the first question to the last."""
    case = {"kind": "deep", "begun_s": -0.5, "ended_s": len(took_s) - 0.5, "status": 200}
    return Result(quiet=waits(*[0.01] * 100), beside=waits(*took_s), cases=[case])


def test_the_bar_is_a_quarter_of_a_second_above_the_quiet_server():
    """Law: one wait in a hundred may be longer, no more."""
    assert not sum_up(build_result(*[0.01 + BAR_S - 0.001] * 50))[1]
    assert not sum_up(build_result(*[0.02] * 100, 9.0))[1]
    assert sum_up(build_result(*[0.02] * 90, 9.0))[1]
    assert find_p99_s([]) == 0


def test_a_question_without_an_answer_is_wrong():
    """Law: a bystander that is sent away has waited for ever."""
    run = build_result(0.01, 0.01)
    run.beside.append(Wait(1.0, 0.01, False))
    assert any("wasn't answered" in words for words in sum_up(run)[1])


@pytest.mark.ray
@pytest.mark.nightly
def test_a_bystander_waits_no_longer_beside_the_fuzz():
    """Law: at the 99th percentile it is at most `BAR_S` more, whatever another client sends. The whole fuzz is
    `make bystander`; here are the kinds that were worst."""
    with short_folder() as folder:
        seen = run(SEED, SHORT, Path(folder))
    text, wrong = sum_up(seen)
    assert len(seen.cases) == len(SHORT)
    # A single long wait may be the machine's: the law is that of the percentile over all cases.
    assert find_p99_s(seen.beside) <= find_p99_s(seen.quiet) + BAR_S, text
    assert not [words for words in wrong if "answered" in words], text
