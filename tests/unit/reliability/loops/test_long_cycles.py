"""The streak at the end of a text, and copies that are not exact."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.loops.long_cycles import (
    DATA_SPAN,
    PERIOD_MAX,
    STRIDE,
    VARIED_TAIL_CHARS,
    LongTail,
    begins_call,
    extend,
    find_varied,
    is_runaway_argument,
    update_place,
)
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS
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
    assert found <= max(8 * (chars + 12), 4_096)


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


def streak(unit: str, copies: int) -> LongTail:
    """A text that ends in so many copies."""
    return LongTail(text=unit * 2, length=100 + len(unit) * copies, period=len(unit), start=100)


LINE = "        self.assertEqual(result, expected)\\n"
CHECK = "def check(value):\\n    return value is not None and value.strip()\\n" * 10
DATA = ("a", "0,", "na", "null, ", '<td class="cell"></td>\\n', "False, True, ", "AAAA\\n")


@pytest.mark.parametrize(("unit", "fine", "runaway"), [
    *((unit, (DATA_SPAN - 1) // len(unit), DATA_SPAN // len(unit) + 1) for unit in DATA),
    *((LINE[at:] + LINE[:at], 20, 42) for at in range(0, 40, 7)), (CHECK, 11, 12),
])  # fmt: skip
def test_what_says_nothing_may_go_on_for_longer(unit, fine, runaway):
    """Law: data (a matrix, a picture, a board) are a runaway only far beyond what is usual; a line of code at its
    forty-second copy, wherever in it one begins to count; a function at its twelfth, since eleven may be eleven."""
    assert not is_runaway_argument(streak(unit, fine))
    assert is_runaway_argument(streak(unit, runaway))


def test_a_tag_says_nothing_wherever_it_is_cut():
    """The words of a tag are none, also where the unit begins in the middle of it; nor is a text that repeats nothing
    a runaway."""
    cell = '<div class="cell empty" role="button"></div>\\n'
    assert not any(is_runaway_argument(streak(cell[at:] + cell[:at], 400)) for at in range(len(cell)))
    assert not is_runaway_argument(LongTail(text="abc", length=90_000))


TEXTS = [
    "Well. ", "<tool_call>", "</tool_call>", '{"name": "f"}', "<function=f>\n<parameter=a>", "</function>",
    "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "a < b [1] ",
]  # fmt: skip


def place(text: str, size: int) -> bool:
    """Read the text in pieces of this size."""
    inside = False
    for at in range(0, len(text), size):
        inside = update_place(inside, text[: at + size], len(text[at : at + size]))
    return inside


@given(st.lists(st.sampled_from(TEXTS), max_size=8).map("".join), st.integers(1, 40))
def test_the_cuts_say_nothing(text, size):
    """A delimiter that comes in two pieces is one; so the place is the same in whatever pieces the text came."""
    assert place(text, size) is place(text, max(1, len(text)))


@pytest.mark.parametrize(("text", "inside"), [
    ('<tool_call>{"name": "f", "arguments": {"a": "', True), ('<tool_call>{"name": "f"}</tool_call> Done. ', False),
    ("<function=write>\n<parameter=content>\n0 0 0\n", True),
    ("<function=write>\n<parameter=content>\n0\n</parameter>\n</function>\n", False),
    ("<|channel|>commentary to=functions.f<|message|>{", True), ("<|channel|>analysis<|message|>I think. ", False),
    ("Is a < b, and c[0] > d? ", False),
])  # fmt: skip
def test_a_call_begins_and_ends(text, inside):
    """It begins behind an opener and ends behind a closer."""
    assert place(text, 16) is inside


def test_a_line_of_json_may_be_a_call():
    """So much is told by its beginning; all else is text."""
    assert all(map(begins_call, ['{"name": "f", "arg', '[{"name"', '  "content": "0, 0', "Action Input: {", '> {"a"']))
    assert not any(map(begins_call, ["Well, {that} is it", "- a list", "", "Action: think about it"]))


@pytest.mark.parametrize("row", [row for row in CALL_FORMATS if row.reader is Reader.ENVELOPE and row.closes])
def test_every_envelope_of_the_table_is_known(row):
    """Somewhere in its examples the text is inside of a call."""
    places = [update_place(False, example[:at], at) for example in row.examples for at in range(1, len(example))]
    assert any(places)
