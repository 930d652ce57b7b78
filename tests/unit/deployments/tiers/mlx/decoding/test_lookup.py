"""A guess is what followed the last tokens before, at the place that agrees longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.decoding.lookup import AGREED_MAX, PromptLookup

TEXTS = st.lists(st.integers(0, 3), max_size=60)


def count_agreed(text: list[int], place: int) -> int:
    """How many tokens up to `place` are the last ones of the text."""
    agreed = 0
    while agreed <= place and text[place - agreed] == text[len(text) - 1 - agreed] and agreed < AGREED_MAX:
        agreed += 1
    return agreed


def continue_at(text: list[int], start: int, count: int) -> list[int]:
    """What follows there, over the end of the text into the copy itself."""
    out: list[int] = []
    for number in range(count):
        place = start + number
        out.append(text[place] if place < len(text) else out[place - len(text)])
    return out


@given(head=TEXTS, tail=TEXTS, count=st.integers(1, 12))
def test_a_guess_follows_an_earlier_place_that_agrees_as_it_says(head, tail, count):
    """Whatever the text, and however much of it came token by token."""
    lookup, text = PromptLookup(head), head + tail
    for token in tail:
        lookup.append(token)
    guess = lookup.find(count)
    places = range(len(text) - 1)

    if guess is None:
        assert not any(count_agreed(text, place) >= 3 for place in places)
        return
    assert any(
        guess.tokens == continue_at(text, place + 1, count)
        for place in places
        if count_agreed(text, place) == guess.agreed
    )


@given(text=TEXTS, extra=st.lists(st.integers(4, 9), min_size=3, max_size=9, unique=True), count=st.integers(1, 12))
def test_what_stood_once_before_is_found_with_all_that_agrees(text, extra, count):
    """Tokens that stand nowhere else, said again: the guess is what followed them."""
    whole = [*extra, *text, 11]
    guess = PromptLookup([*whole, *extra]).find(count)

    assert guess is not None
    assert guess.agreed == len(extra)
    assert guess.tokens == continue_at([*whole, *extra], len(extra), count)


def test_built_at_once_or_token_by_token_it_guesses_the_same():
    """The table of a prompt is that of its tokens in turn."""
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]
    grown = PromptLookup([])
    for token in text:
        grown.append(token)

    assert grown.find(5) == PromptLookup(text).find(5)
    assert grown.find(2).tokens == [5, 1]  # the youngest of two that agree alike


def test_a_copy_goes_on_behind_a_changed_word():
    """No three tokens agree behind the change; the last one stands near where the copy was."""
    source = list(range(100, 140))
    lookup = PromptLookup([*source, 1, 2, 3, *source[:10]])
    assert lookup.find(4).tokens == source[10:14]
    for token in (7, source[11], source[12]):  # one word changed, then on as it was
        lookup.append(token)

    guess = lookup.find(4)

    assert (guess.tokens, guess.agreed) == (source[13:17], 2)


def test_what_circles_is_guessed_as_far_as_asked():
    """A text whose last tokens repeat at its very end goes on with itself."""
    assert PromptLookup([1, 2, 1, 2, 1]).find(6).tokens == [2, 1, 2, 1, 2, 1]


def test_nothing_that_agrees_is_no_guess():
    """A short or ever new text gives none."""
    assert PromptLookup([]).find(3) is None
    assert PromptLookup([1]).find(3) is None
    assert PromptLookup([1, 2, 3, 4, 5]).find(3) is None
    assert PromptLookup([1, 2, 1, 2, 1]).find(0) is None
