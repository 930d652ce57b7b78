"""Are two results the same, and does one say that it goes on?"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Stage
from reliability.loops.comparison.same_result import MASKED_CHARS, is_ongoing, is_same_result
from tests.support.conversation import USER, acted, quiet, stages
from tests.support.loop_histories import law
from tests.unit.reliability.loops.test_history_large import BODY


@pytest.mark.parametrize("status", ["running", "in_progress", "In Progress", "queued", "pending"])
def test_the_duration_of_what_goes_on_is_a_reading(status: str) -> None:
    """Beside a status that says it is going on, the call is a poll and a duration counts; else it doesn't."""
    for word in (status, "ok"):
        calls = [m for i in range(6) for m in acted("look", {"id": 7}, {"status": word, "took_ms": 20 - i})]
        assert quiet([USER, *calls]) is (word == status)


def test_a_pending_order_is_no_running_job() -> None:
    """`pending` says so in a short report only; and a status further in says nothing of the outer meter."""
    order = {"status": "pending", **{f"field{i}": i for i in range(8)}}
    assert is_same_result(json.dumps({**order, "took_ms": 10}), json.dumps({**order, "took_ms": 9}))
    inner = {"job": {"status": "running"}}
    assert is_same_result(json.dumps({**inner, "took_ms": 10}), json.dumps({**inner, "took_ms": 9}))


@law
@given(st.text(max_size=60), st.text(max_size=60))
def test_sameness_is_symmetric_for_texts_without_meters(a: str, b: str) -> None:
    """A result is the same as itself, and sameness of texts doesn't depend on which came first."""
    assert is_same_result(a, a)
    assert is_same_result(a, b) == is_same_result(b, a)


def test_what_is_too_long_to_be_masked_counts_as_changed() -> None:
    """Beyond the bound a difference is progress: the detector errs towards it, and its cost stays bounded."""
    lines = [f"[12:03:{i % 60:02}] row {i}" for i in range(4_000)]
    assert not is_same_result("\n".join(lines), "\n".join(line.replace("12:03", "12:04") for line in lines))
    assert len("\n".join(lines)) > MASKED_CHARS
    deep_a, deep_b = ("[" * 60 + text + "]" * 60 for text in ('"took 1ms"', '"took 2ms"'))
    assert not is_same_result(deep_a, deep_b)


@pytest.mark.parametrize(
    ("text", "ongoing"),
    [
        *((text, True) for text in ('{"status": "running"}', '{"state": "Queued"}', "status: in progress")),
        ("Phase = building", True),
        *((text, False) for text in ('{"status": "done"}', '["running"]', "running late", '{"note": "running"}', "")),
    ],
)
def test_a_result_says_that_it_goes_on(text: str, ongoing: bool) -> None:
    """A status field or a status line of an ongoing kind makes a result an unfinished one; the word alone doesn't."""
    assert is_ongoing(text) is ongoing


def test_results_that_differ_in_their_middle_are_not_the_same():
    """Law: no bound makes two results equal that aren't."""
    middle = len(BODY) // 2
    for size in (1, 20):
        text = BODY * size
        other = text[: middle * size] + "#" + text[middle * size + 1 :]
        assert not is_same_result(text, other)
        assert is_same_result(f"took 1.5 s\n{text}\ntook 2.5 s", f"took 3.5 s\n{text}\ntook 4.5 s")


def test_a_harness_that_counts_repetitions_adds_nothing() -> None:
    """What it writes behind a result about the repetition is none of it; what the tool writes in brackets is."""
    blocked = json.dumps({"error": "BLOCKED: you have read it {} times", "already_read": 3})
    again = f"{blocked.replace('3', '4')}\n\n[Tool loop warning: repeated_exact_failure; count=2]"
    assert is_same_result(blocked, again)
    assert is_same_result("x is\n[loop detected: count=2]", "x is")
    assert not is_same_result("x is\n[exit code 2]", "x is")


CLOCKS = (
    "{}\nhello", "hello\n{}", "{} hello", "{}: hello", "[{}] hello", "({}) hello", "{},hello", "{}\r\nhello",
    "  {}\na",
)  # fmt: skip
NO_CLOCKS = ("{}", "order {}\nok", "0{}\nrows", "{}.txt\nrows", "{}-a\nrows", "{}{}\nrows", "id: {}\nhello")
UNITS = ("", "123", "123456789", ".25")


@pytest.mark.parametrize("apart", [1, 37, 3_600])
def test_the_seconds_of_a_clock_begin_a_line(apart: int) -> None:
    """Law: a line may begin with a clock's seconds, in any unit, which say nothing beside other text. Two numbers that
    no two moments of a loop are (a size that grows), other units, and a number elsewhere or alone are readings."""
    now = 1_795_787_000

    def same(form: str, older: str, newer: str) -> bool:
        return is_same_result(form.replace("{}", older), form.replace("{}", newer))

    for unit in UNITS:
        older, newer = f"{now}{unit}", f"{now + apart}{unit}"
        assert [form for form in CLOCKS if not same(form, older, newer) or not same(form, newer, older)] == []
        assert [form for form in NO_CLOCKS if same(form, older, newer)] == []
        assert [form for form in CLOCKS if same(form, older, f"{now + apart + 3_600}{unit}")] == []
        assert unit == ".25" or [form for form in CLOCKS if same(form, older, f"{newer}5")] == []
    for low in (10 * now, 1_000_000_000, 1_599_000_000, 2_100_000_000, 179_578_700):
        assert [form for form in CLOCKS if same(form, str(low), str(low + apart))] == []


@pytest.mark.parametrize("step", [1, 37, 3])
def test_a_clock_hides_no_loop(step: int) -> None:
    """Law: a command that prints the time before the same text is nudged and broken as any; bytes that grow are not."""
    made = [acted("bash", {"cmd": "date +%s; cat a"}, f"{1_795_787_000 + k * step}\nhello") for k in range(6)]
    found = stages([USER, *(message for lap in made for message in lap)])
    assert (found.index(Stage.WARN), found.index(Stage.BREAK)) == (2, 4)
    grown = [acted("bash", {"cmd": "stat -c %s f; ls"}, f"{1_795_787_000 + k * 900_000}\nf") for k in range(9)]
    assert quiet([USER, *(message for lap in grown for message in lap)])
