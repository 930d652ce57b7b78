"""Results that are nearly the same: noise is near, progress never is."""

from __future__ import annotations

import json

from reliability.loops.near import is_near_result

WORDS = " ".join(f"{chr(97 + i % 26)}word{chr(97 + i // 26)}" for i in range(120))


def test_near_is_noise_in_a_long_result() -> None:
    """A few letters of noise in a long text are near; too many, or none, are not."""
    assert is_near_result(WORDS + " xyzzy", WORDS + " plugh", 0.9)
    assert not is_near_result(WORDS, WORDS, 0.9)
    assert not is_near_result(WORDS, WORDS[:300], 0.9)
    assert not is_near_result("", "", 0.9)
    ids = "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    assert not is_near_result(f"{WORDS} id {ids[0]}", f"{WORDS} id {ids[1]}", 0.9)
    assert is_near_result("a" + WORDS * 40 + "b", "c" + WORDS * 40 + "d", 0.9)


def test_progress_is_never_near() -> None:
    """Digits that move, a log that grows, a tail that slides and a state that changes are progress."""
    lines = [f"step {chr(97 + i % 26)}{chr(97 + i // 26)} is finished now" for i in range(60)]
    assert not is_near_result(WORDS + " 41", WORDS + " 42", 0.9)
    assert not is_near_result("\n".join(lines[:50]), "\n".join(lines[:52]), 0.9)
    assert not is_near_result("\n".join(lines[:50]), "\n".join(lines[2:52]), 0.9)
    assert not is_near_result(json.dumps({"log": WORDS, "state": "a"}), json.dumps({"log": WORDS, "state": "b"}), 0.9)
    assert not is_near_result(json.dumps([{"log": WORDS, "step": "a"}]), json.dumps([{"log": WORDS, "step": "b"}]), 0.9)
    assert is_near_result(json.dumps({"log": WORDS + "xyz"}), json.dumps({"log": WORDS + "abc"}), 0.9)
    assert is_near_result("x\n" + "\n".join(lines) + "p", "x\n" + "\n".join(lines) + "q", 0.9)
    repeated = "same line here\n" * 40
    assert is_near_result(repeated + "alpha", repeated + "gamma", 0.9)
