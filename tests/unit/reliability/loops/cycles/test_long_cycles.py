"""The streak at the end of a text, and copies that are not exact."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.loops.cycles.long_cycles import PERIOD_MAX, STRIDE, VARIED_TAIL_CHARS, LongTail, extend, find_varied
from tests.support.repeating_texts import HONEST, paragraph, vary

TAIL = 2 * PERIOD_MAX + 2 * STRIDE


def read(text: str, tail_chars: int = TAIL) -> LongTail:
    """Read all complete strides."""
    tail = LongTail()
    for at in range(0, len(text) - STRIDE + 1, STRIDE):
        tail = extend(tail, text[at : at + STRIDE], tail_chars)
    return tail


def find(text: str) -> int | None:
    """Return after how many characters varied copies are found."""
    tail = LongTail()
    for at in range(0, len(text) - STRIDE + 1, STRIDE):
        tail = extend(tail, text[at : at + STRIDE], VARIED_TAIL_CHARS)
        if find_varied(tail, at + STRIDE) is not None:
            return at + STRIDE
    return None


@settings(deadline=None)
@given(st.integers(1, PERIOD_MAX), st.integers(0, 3_000))
def test_a_streak_is_as_long_as_it_is(period, lead):
    """Whatever the period, once two copies and a stride are there the streak knows its period, or a multiple of it, and
    where the first copy began."""
    before, unit = paragraph(lead, 1)[:lead], paragraph(period, 2)[:period]
    tail = read(before + unit * (4 + 3 * STRIDE // period))

    assert tail.period % period == 0
    assert abs(tail.start - lead) <= 4
    assert tail.span == tail.length - tail.start


def test_a_streak_outlives_its_tail():
    """It counts on where its beginning isn't kept any more, and ends with the first other character."""
    tail = read(paragraph(512, 3) + "ab, " * 20_000)

    assert len(tail.text) <= TAIL
    assert (tail.period, tail.repetitions >= 19_800) == (4, True)
    assert extend(tail, paragraph(STRIDE, 4), TAIL).period == 0


@pytest.mark.parametrize("chars", [60, 120, 512, 600, 1_024, 2_000, 3_500])
def test_a_counter_hides_no_copy(chars):
    """A paragraph with the next number before it is found within eight copies, or three and a half thousand
    characters."""
    found = find(vary(chars, max(12, 6_000 // chars), counter=True, words=False))

    assert found is not None
    assert found <= max(8 * (chars + 12), 4_096)


@pytest.mark.parametrize("counter", [False, True])
@pytest.mark.parametrize("chars", [300, 600, 2_000, 3_500])
def test_two_other_words_hide_no_copy(chars, counter):
    """Nor do two words that change in each copy: within thirteen."""
    found = find(vary(chars, 20, counter=counter, words=True))

    assert found is not None
    assert found <= max(13 * (chars + 12), 4_096)


@pytest.mark.parametrize("name", HONEST)
def test_what_differs_by_nature_is_left_alone(name):
    """Rows, tests, inserts, logs, cases that are counted through, and what counts towards an end."""
    assert find(HONEST[name]) is None


def test_another_text_is_no_copy():
    """The same opening with another story behind it is no copy, however often."""
    assert find("".join("Once upon a time there was a king. " + paragraph(500, seed) for seed in range(30))) is None


def test_what_is_hostile_costs_little():
    """A text in which every probe stands everywhere, and copies that fail at the last moment, cost at most a
    millisecond a stride."""
    dice = random.Random(1)
    nearly = "".join(paragraph(700, 5) * 6 + paragraph(100, dice.randrange(99)) for _ in range(20))
    for text in ["ab" * 40_000, nearly, ("a" * 47 + "b") * 1_000, vary(3_900, 9, counter=True, words=True) * 2]:
        begun = time.thread_time()
        find(text)
        assert time.thread_time() - begun < 0.002 * (len(text) / STRIDE + 10)


@pytest.mark.parametrize(
    "step", ["Step {}: I will try again. ", "Attempt {}, failed once more.\n", "Then I look at it {} times. "]
)
def test_who_only_counts_hangs(step):
    """A hundred short sentences of which only the number grows say nothing; with a word about each number they do."""
    assert find("".join(step.format(number) for number in range(1, 300))) is not None
    words = ["fine", "late", "cold", "empty", "green", "odd", "even", "wet", "new"]
    told = "".join(f"Item {number} is {words[number * number % 9]}, I think. " for number in range(1, 300))
    assert find(told) is None
    assert find("".join(step.format(number) for number in range(300, 1, -1))) is None
