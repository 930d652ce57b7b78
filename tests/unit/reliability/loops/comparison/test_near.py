"""Results that are nearly the same: noise is near, progress never is."""

import json

import pytest

from reliability.loops.comparison.findings import Memo
from reliability.loops.comparison.near import is_near_result

WORDS = " ".join(f"{chr(97 + i % 26)}word{chr(97 + i // 26)}" for i in range(120))


def is_near(older: str, newer: str, threshold: float = 0.9) -> bool:
    return is_near_result(older, newer, threshold, Memo())


def test_near_is_noise_in_a_long_result() -> None:
    """A few letters of noise in a long text are near; too many are not."""
    assert is_near(WORDS + " xyzzy", WORDS + " plugh")
    assert not is_near(WORDS, WORDS[:300])
    assert not is_near("", "")
    assert is_near("a" + WORDS * 40 + "b", "c" + WORDS * 40 + "d")


def test_progress_is_never_near() -> None:
    """A log that grows, a tail that slides, a state that changes and a text that is but figures are progress."""
    lines = [f"step {chr(97 + i % 26)}{chr(97 + i // 26)} is finished now" for i in range(60)]
    assert not is_near("took 41", "took 42")
    assert not is_near("Tue Mar  3 10:01:01 UTC 2026, 41", "Tue Mar  3 10:01:02 UTC 2026, 42")
    assert not is_near("\n".join(lines[:50]), "\n".join(lines[:52]))
    assert not is_near("\n".join(lines[:50]), "\n".join(lines[2:52]))
    assert not is_near(json.dumps({"log": WORDS, "state": "a"}), json.dumps({"log": WORDS, "state": "b"}))
    assert not is_near(json.dumps([{"log": WORDS, "step": "a"}]), json.dumps([{"log": WORDS, "step": "b"}]))
    assert is_near(json.dumps({"log": WORDS + "xyz"}), json.dumps({"log": WORDS + "abc"}))
    assert is_near("x\n" + "\n".join(lines) + "p", "x\n" + "\n".join(lines) + "q")
    repeated = "same line here\n" * 40
    assert is_near(repeated + "alpha", repeated + "gamma")


@pytest.mark.parametrize(("older", "newer"), [("41", "42"), ("at 10:41", "at 10:42"), ("8f3e1c77", "1b0d9a42")])
def test_figures_in_a_text_are_near(older: str, newer: str) -> None:
    """What differs in a number, a clock or a hash only is near: where it goes is asked of the whole streak."""
    assert is_near(f"{WORDS} {older}", f"{WORDS} {newer}")


def test_another_order_is_near() -> None:
    """The same lines, and the same items of a list in JSON, in another order are near."""
    lines = [f"{name}.py is old" for name in ("shop", "cart", "till", "door")]
    assert is_near("\n".join(lines), "\n".join(reversed(lines)))
    assert is_near(json.dumps({"a": lines, "b": 1}), json.dumps({"b": 1, "a": lines[::-1]}))
    assert not is_near("\n".join(lines), "\n".join([*lines[:3], "none"]), 0.99)
    timed = [f"PASS {line} ({n}.25 s)" for n, line in enumerate(lines)]
    assert is_near("\n".join(timed), "\n".join(f"PASS {line} ({n}.5 s)" for n, line in enumerate(lines[::-1])), 1.0)
