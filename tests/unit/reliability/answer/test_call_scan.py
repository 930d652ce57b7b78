"""Repetition in native calls: found early, blind to content that repeats by nature, independent of the cuts."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.answer.call_scan import COUNTED_MAX, OPEN_MAX, TAIL_CHARS, CallScan, step_calls
from reliability.loops import Kind, Loop
from reliability.loops.long_cycles import STRIDE
from tests.support.repeating_texts import paragraph

RUNAWAYS = {
    "equal characters": ('{"text": "' + "a" * 105_000, Kind.CYCLE, 41_000),
    "equal lines": ('{"text": "' + "the same line again. " * 5_000, Kind.CYCLE, 2_000),
    "one line of an edit": (
        json.dumps({"edit": "        self.assertEqual(result, expected)\n" * 42}),
        Kind.CYCLE,
        1_600,
    ),
    "a paragraph": (json.dumps({"text": paragraph(600, 1) * 20}), Kind.CYCLE, 8_000),
    "a long paragraph": (json.dumps({"text": paragraph(3_000, 1) * 20}), Kind.CYCLE, 37_000),
    "white space": ('{"a": 1,' + " \n" * 600, Kind.WHITESPACE, 600),
    "brackets": ('{"a": ' + "[" * 2_000, Kind.CYCLE, 600),
    "objects": ('{"a": ' * 2_000, Kind.CYCLE, 1_100),
}
pieces = st.lists(
    st.tuples(
        st.sampled_from(['{"a": "', "word ", '\\"', "\\\\", '", ', " " * 60, "[", "]", "the same line again. ", "0,"]),
        st.integers(1, 80),
    ),
    max_size=6,
).map(lambda parts: "".join(piece * times for piece, times in parts))


def read(arguments: str, size: int = 9) -> tuple[int, Loop | None]:
    """Read one call in pieces; return how much of it was read, and the loop."""
    scan, loop, at = CallScan(), None, 0
    while at < len(arguments) and loop is None:
        scan, loop = step_calls(scan, 0, "" if at else "write", arguments[at : at + size])
        at += size
    return at, loop


@pytest.mark.parametrize("size", [7, 1_000_000])
@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_runaway_is_stopped(name, size):
    """Each is found by its kind, while it is written; one that came in one piece is one, too."""
    arguments, kind, most = RUNAWAYS[name]
    at, loop = read(arguments, size)
    assert (loop.kind, loop.tool) == (kind, "write")
    assert at <= most or size > most


@settings(deadline=None)
@given(pieces, st.lists(st.integers(1, 700), max_size=20))
def test_the_cuts_say_nothing(arguments, sizes):
    """However the arguments are cut into pieces, the state at the end is the same."""
    scan, at = CallScan(), 0
    for size in sizes:
        scan, _ = step_calls(scan, 0, "", arguments[at : at + size])
        at += size
    scan, _ = step_calls(scan, 0, "", arguments[at:])
    whole, _ = step_calls(CallScan(), 0, "", arguments)

    assert scan.loop == whole.loop
    assert scan.loop is not None or scan == whole


def test_white_space_in_a_string_is_content():
    """Between the values it says nothing; in a string it may be a picture. An escaped quote ends no string."""
    assert read('{"a": "x\\"' + " " * 3_000 + '", "b": 2}')[1] is None
    assert read('{"a": "x\\\\"' + " " * 3_000 + ', "b": 2}')[1] is not None
    assert read('{"a": [' + '"x",\n          ' * 400 + "]}")[1] is None


def equal_calls(*names: str) -> tuple[int, Loop | None]:
    """Write one call after the other; return how many had begun when it was stopped."""
    scan, loop = CallScan(), None
    for index, name in enumerate(names):
        for piece in ('{"path": ', f'"{name}"}}'):
            scan, loop = step_calls(scan, index, "read" if piece.startswith("{") else "", piece)
            if loop is not None:
                return index + 1, loop
    return len(names), None


def test_the_third_copy_of_a_call_ends_the_answer():
    """It is complete where the next call begins, and no more is read."""
    begun, loop = equal_calls(*["a.py"] * 64)
    assert (begun, loop.kind, loop.tool) == (4, Kind.ANSWER_CALLS, "read")
    assert equal_calls(*["a.py", "b.py"] * 32)[0] == 6
    assert equal_calls("a.py", "a.py", *[f"{i}.py" for i in range(60)])[1] is None


def test_calls_in_turns_are_not_compared():
    """Where pieces of two calls come in turns nobody knows when one is complete."""
    scan, loop = CallScan(), None
    for piece in ("{", '"a"', ": 1", "}"):
        for index in range(4):
            scan, loop = step_calls(scan, index, "", piece)
    assert loop is None
    assert scan.mixed


def test_the_state_is_bounded():
    """However many calls there are, a few of them are kept, and of each its end."""
    scan = CallScan()
    for index in range(COUNTED_MAX + OPEN_MAX):
        scan, _ = step_calls(scan, index, "f", json.dumps({"text": paragraph(2 * TAIL_CHARS, index)}))
    assert len(scan.calls) <= OPEN_MAX
    assert all(len(call.tail.text) <= TAIL_CHARS and len(call.fill) < STRIDE for _, call in scan.calls)


def test_what_is_hostile_costs_little():
    """Two hundred thousand characters of anything are read in less than half a second of work."""
    for piece in ['\\"', '"', "[]", " a", "01", "\\", '{"a": "b"},']:
        arguments = '{"a": "' + piece * (200_000 // len(piece))
        begun = time.thread_time()
        read(arguments, 64)
        assert time.thread_time() - begun < 0.5
