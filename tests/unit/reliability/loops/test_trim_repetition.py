"""What is gone on with behind a circle ends as the circle does."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from reliability.loops import trim_repetition, truncate

PROSE = st.sampled_from(["", "There are three parts. First, open the valve. ", "Zażółć gęślą jaźń 日本語.\n\n"])
UNITS = st.sampled_from(
    [
        "The pump runs and then it stops again. ",
        "ha ",
        "and so on, ",
        "The pump runs. The pump stops. It waits for the valve to be opened by somebody who knows how. " * 3,
    ]
)


@given(PROSE, UNITS, st.integers(30, 60), st.floats(0, 1))
@example("", "ha ", 300, 0.5)
def test_it_ends_as_the_text_does_with_few_copies(prose, unit, copies, share):
    """Law: a beginning of the text, with at least one copy of what it circles in and at most a few, that ends in the
    same words: what fits behind one fits behind the other."""
    text = prose + unit * (copies if len(unit) > 10 else 10 * copies) + unit[: int(share * len(unit))]
    assume(truncate(text) != text)
    begun = trim_repetition(text)

    assert text.startswith(begun)
    assert begun.startswith(prose)
    assert text.endswith(begun[-24:])
    assert len(begun) - len(prose) <= 3 * len(unit) + 32
    assert len(begun) > len(prose)


@given(PROSE, st.integers(80, 200), st.integers(0, 30))
def test_copies_that_differ_in_a_counter_end_alike_too(prose, copies, cut):
    """Law: where no two copies are the same, the end is as much the same as can be found."""
    text = prose + "".join(f"Step {n}: press the button and wait until it is done, please. " for n in range(copies))
    text = text[: len(text) - cut]
    assume(truncate(text) != text)
    begun = trim_repetition(text)

    assert text.startswith(begun)
    assert text.endswith(begun[-1:])
    assert len(begun) < len(text) // 2 + 600


@given(st.text(max_size=300))
@example("A text that says one thing after the other, and each of them once.")
def test_a_text_without_a_circle_stays(text):
    """Law: nothing is taken off a text that doesn't repeat itself, and nothing is ever put on."""
    assert text.startswith(trim_repetition(text))
    if truncate(text) == text:
        assert trim_repetition(text) == text
