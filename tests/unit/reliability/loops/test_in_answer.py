"""Repetition inside one answer: independent of how the stream was cut, blind to structure, and bounded."""

import json
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability.loops import Kind, Scan, finish, open_scan, step, truncate
from reliability.loops.in_answer import BLOCK, LINE_CHARS, TAIL_CHARS, UNITS_KEPT
from reliability.loops.written import DISTINCT_MAX
from tests.support.repeating_texts import HONEST, LEAD, paragraph, vary
from tests.support.written_calls import CALLS, prose, read

law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = [
    "I will look at the file. ", "\n", "   ", "```\n", "- item\n", '<tool_call>{"name": "a"}</tool_call>',
    "<tool_call>", '[TOOL_REQUEST]{"name": "b"}[END_TOOL_REQUEST]',
    '<|channel|>commentary to=f <|message|>{"x": 1}<|call|>', "⏺ Search: cats\n", " " * 100, "na", "é…",
]  # fmt: skip
texts = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 12)), max_size=8).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)
long_texts = st.lists(
    st.tuples(
        st.sampled_from(
            [paragraph(520, 1), paragraph(900, 2), "```\n", "<tool_call>", '{"a": "', "</tool_call>\n", "0, "]
        ),
        st.integers(1, 30),
    ),
    max_size=4,
).map(lambda parts: "".join(piece * times for piece, times in parts))


@law
@given(
    texts | long_texts, st.lists(st.integers(0, 60), max_size=30) | st.integers(1, 900).map(lambda size: [size] * 80)
)
def test_the_outcome_does_not_depend_on_the_cuts(text: str, sizes: list[int]) -> None:
    """However a text is cut into chunks, also far into a long cycle, the state and the loop at the end are the same."""
    scan, at = Scan(), 0
    for size in sizes:
        scan, _ = step(scan, text[at : at + size])
        at += size
    scan, _ = step(scan, text[at:])
    assert scan == step(Scan(), text)[0]
    assert finish(scan) == finish(step(Scan(), text)[0])


@law
@given(texts, texts)
def test_a_loop_stands_once_found(text: str, more: str) -> None:
    """After a loop, further text changes neither the loop nor the state."""
    scan, loop = step(Scan(), text)
    if loop is not None:
        assert step(scan, more) == (scan, loop)
        assert finish(scan) == (scan, loop)


@law
@given(texts)
def test_truncation_is_idempotent_and_only_takes_away(text: str) -> None:
    """Truncating twice is truncating once, and what is left was there before."""
    once = truncate(text)
    assert truncate(once) == once
    assert len(once) <= len(text)


@law
@given(st.text(max_size=300))
def test_a_short_text_is_left_alone(text: str) -> None:
    """A text without calls and too short to be a cycle is never convicted and never cut."""
    assert read(text[:200]) is None
    assert truncate(text[:200]) == text[:200]


@pytest.mark.parametrize("form", CALLS)
def test_where_nothing_can_be_called_no_call_convicts(form: str) -> None:
    """Without tools in the request what looks like a call is text: only its other repetitions count."""
    assert step(open_scan(calls=False), form.format(n=1) * 3)[1] is None
    assert step(open_scan(calls=True), form.format(n=1) * 4) == step(Scan(), form.format(n=1) * 4)
    assert finish(step(open_scan(calls=False), form.format(n=1) * 200)[0])[1].kind is Kind.CYCLE


def test_the_state_is_bounded() -> None:
    """Tail, open line, sentences and remembered calls stay within their bounds however long the answer is."""
    scan = Scan()
    for i in range(300):
        scan, _ = step(scan, f"{prose(40, seed=i)}. " + CALLS[1].format(n=i) + "x" * (i % 7))
    seen = scan.seen
    assert len(seen.tail) <= TAIL_CHARS
    assert len(seen.line) <= LINE_CHARS + BLOCK
    assert len(seen.units) <= UNITS_KEPT
    assert len(seen.written.counts) <= DISTINCT_MAX
    assert seen.loop is None


@pytest.mark.parametrize("white", [" ", "\n", "\t", " \n"])
def test_white_space_runs_are_cut(white: str) -> None:
    """A run of 256 white characters convicts and is not kept; a paragraph's indentation does not."""
    loop = read("Here it is:" + white * 300)
    assert (loop.kind, loop.keep) == (Kind.WHITESPACE, len("Here it is:"))
    assert truncate("Here it is:" + white * 300) == "Here it is:"
    assert read("Here it is:" + white * 60 + "end") is None


@pytest.mark.parametrize("period", [1, 2, 7, 18, 50, 150, 333, 500])
def test_a_cycle_of_any_period_in_prose_is_found(period: int) -> None:
    """A unit of up to 500 characters is convicted by its eighth copy or 450 characters, and two are kept."""
    unit = (prose(200, seed=period).replace(" ", "o", 3) + "x")[:period] if period > 1 else "a"
    before = "Well. "
    loop = read(before + unit * max(9, 460 // period + 2))
    assert loop.kind is Kind.CYCLE
    assert len(before) < loop.keep <= len(before) + 2 * period


def test_a_cycle_is_found_once_it_is_there() -> None:
    """Four copies of a paragraph are too few; a unit whose own end stands in it several times is still found."""
    assert read("Well. " + (prose(30) + ". ") * 4) is None
    unit = "and then the end of it all comes, " * 3 + "and something else; and then the end of it all comes, "
    assert read(unit * 12) is not None


@pytest.mark.parametrize("row", [
    "print('hello world, hello sea')\n", "- the same bullet point\n", "| a cell | a cell |\n", "00, ", "-=",
    "> quote\n", "apple,1\n", "    nop\n", "leds.set(0,0,0)\ntime.sleep(0.1)\n", "# The same heading again\n",
    *(f"{mark} the same old item of a list\n" for mark in ("*", "+", "1.")),
    '{"a": 0, "b": 0, "c": null},\n', *("-" * 30, "─" * 30, "=====\n"),
])  # fmt: skip
def test_structure_has_a_bar_of_its_own(row: str) -> None:
    """Twenty rows pass and five hundred don't: a runaway in a table is a runaway."""
    opening = "```python\n" if row.startswith("print") else ""
    assert read(opening + row * 20) is None
    assert read(opening + row * 1_500) is not None


def test_a_fence_that_is_closed_is_closed() -> None:
    """After the closing fence prose is prose again."""
    fenced = "```\n" + "print('hello world, hello sea')\n" * 12 + "```\n"
    assert read(fenced + "All is well here now. " * 6) is None
    assert read(fenced + "All is well here now. " * 30) is not None


def test_a_chant_in_changing_order_is_found() -> None:
    """Sixty sentences of which only five differ are a chant; sixty different ones are a text."""
    dice = random.Random(5)
    few = [f"I should check the {what} first." for what in ("log", "file", "test", "name", "path")]
    chant = "\n".join(dice.choice(few) for _ in range(70))
    assert read(chant).kind is Kind.CYCLE  # type: ignore[union-attr]
    assert read("\n".join(f"I should check the {prose(3, seed=i)} first." for i in range(70))) is None
    assert read("```\n" + chant + "\n```\n") is None
    assert read("".join(f"- {line}\n" for line in chant.splitlines())) is None


def test_ordinary_prose_is_no_loop() -> None:
    """A long answer of ordinary words is never convicted, nor is a list whose items begin alike."""
    assert read(prose(6_000)) is None
    begun = "- Process the next file of a long list with a prefix that all share, "
    assert read("\n".join(begun + prose(1, seed=n) for n in range(15))) is None


def test_a_loop_is_found_while_it_decodes() -> None:
    """Chunk by chunk, the loop comes within a block of the character that completes it."""
    scan, loop, at = Scan(), None, 0
    text = "Well, here it comes. " + "Thinking... Done. " * 60
    while loop is None:
        scan, loop = step(scan, text[at : at + 4])
        at += 4
    assert at <= len("Well, here it comes. ") + 454


@pytest.mark.parametrize("period", [520, 600, 800, 1_024, 1_500, 3_000, 4_000])
def test_a_long_cycle_is_found_within_seven_copies(period: int) -> None:
    """Whatever its length, and two of them are kept."""
    unit = paragraph(period, period)
    loop = read(LEAD + unit * 7)
    assert (loop.kind, loop.period) == (Kind.CYCLE, period)
    assert abs(loop.keep - len(LEAD) - 2 * period) <= 4
    assert read(LEAD + unit * 5) is None


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("counter", [False, True])
@pytest.mark.parametrize("chars", [300, 600, 1_500])
def test_copies_that_differ_a_little_are_found(chars: int, counter: bool, words: bool) -> None:
    """A counter in each copy, two other words in each: a model that hangs all the same. Two copies are kept."""
    text = LEAD + vary(chars, 20, counter=counter, words=words)
    assert len(LEAD) < read(text).keep < len(text) // 2


def written(arguments: str) -> str:
    """A call as text, its end included."""
    return f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>\n'


@pytest.mark.parametrize("name", ["yaml", "yaml of names", "toml", "ini"])
def test_settings_without_a_fence_are_no_chant(name):
    """Law: entries that differ in a name share most of their lines; such lines are no sentences."""
    assert read(HONEST[name]) is None
    assert read("I will check the server again. It is not up yet.\n" * 100) is not None


@pytest.mark.parametrize("name", HONEST)
def test_what_a_call_carries_has_the_limits_of_arguments(name: str) -> None:
    """A file of a thousand equal rows is written by a call in the text as by a native one; behind the call prose is
    prose again."""
    call = written(json.dumps({"path": "a.txt", "content": HONEST[name]}))
    assert read("I write it. " + call) is None
    assert read(call + LEAD + "And so it goes on and on. " * 40) is not None
    assert read(json.dumps({"name": "write", "arguments": {"content": HONEST[name]}})) is None


def test_what_is_hostile_costs_no_more_by_the_character() -> None:
    """Whatever is written, a thousand characters take a few milliseconds of work at most, early or late."""
    dice = random.Random(1)
    nearly = "".join(paragraph(700, 5) * 5 + paragraph(90, dice.randrange(99)) for _ in range(20))
    pieces = ["<tool_call>{", "<" * 8 + "[ ", "a" * 23 + "b", "- item\n", '{"a": [', "⏺", "Step 1: do. "]
    for text in [nearly, *("".join(f"{piece * 40}{i}" for i in range(60)) for piece in pieces)]:
        scan, begun = open_scan(calls=True), time.thread_time()
        for at in range(0, len(text), 50):
            scan, _ = step(scan, text[at : at + 50])
        assert time.thread_time() - begun < 0.015 * (len(text) / 1_000 + 10)


def test_a_poem_that_a_call_carries_is_no_chant() -> None:
    """Where a file stands in the call as it is, its lines are neither a cycle nor sentences of the answer."""
    verse = "All work and no play makes Jack a dull boy. And no play and all work makes him a dull one.\n" * 31
    call = f"<function=write>\n<parameter=content>\n{verse}</parameter>\n</function>\n"
    assert read(verse) is not None
    assert read(call + "That is the poem, and here it ends. I hope that you like what I made of it.\n") is None


@pytest.mark.parametrize("pad", range(0, 512, 50))
def test_what_a_call_or_a_fence_carries_is_not_counted_behind_it(pad: int) -> None:
    """A story told twelve times with another number is a file there; the words behind it aren't its thirteenth copy."""
    story = vary(300, 12, counter=True, words=False)
    after = paragraph(700, 3)
    assert read(paragraph(600, 4) + story) is not None
    for carried in (written(json.dumps({"content": story})), f"```\n{story}\n```\n"):
        assert read(paragraph(1_000, 4)[:pad] + "\n" + carried + after) is None
