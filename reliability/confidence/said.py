"""What a text says, as the words and numbers in it, and how much of a value stands in it.

A value that stands nowhere in the conversation is suspicious; so is a number of the request that no argument holds.
Words are compared by their beginnings, so that `orders` and `ordering` are one; numbers by value, so that `1,000`,
`thousand` and `10%` (as 0.1) are found.
"""

import re
from collections.abc import Iterator
from typing import Any

WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
NO_LETTER = re.compile(r"[\W_]+")
STEM_CHARS = 5
LEAVES_MAX, VALUE_CHARS_MAX = 20, 2_000
UNITS = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: float(number) for number, word in enumerate(UNITS.split())} | {
    "twenty": 20.0,
    "thirty": 30.0,
    "forty": 40.0,
    "fifty": 50.0,
    "hundred": 100.0,
    "thousand": 1_000.0,
    "million": 1_000_000.0,
    "half": 0.5,
    "quarter": 0.25,
    "dozen": 12.0,
    "first": 1.0,
    "second": 2.0,
    "third": 3.0,
}
# English words that say nothing of the matter. In other languages all words count.
SAY_NOTHING = (
    "a an the of to in on at for and or is are was were be by with from as it its this that what which who how do "
    "does did can could would will you your me my i we our us please if not no any all some get find give tell "
    "show want need have has about into than then there their them they he she his her up out so just also like"
)
FILLERS = frozenset(SAY_NOTHING.split())


class Said:
    """What one text says."""

    def __init__(self, text: str) -> None:
        words = split_words(text)
        self._stems = {_cut_stem(word) for word in words}
        self._letters = NO_LETTER.sub("", text.lower())
        self.numbers = {number for number in map(read_number, words) if number is not None}
        self._sizes = {_round(number) for number in self.numbers}

    def find_missing(self, value: Any) -> float:
        """Return which share of a plain value's words and numbers the text doesn't have, 0 to 1. Truth values and null
        say nothing that could be missing."""
        if value is None or isinstance(value, bool):
            return 0.0
        if isinstance(value, int | float):
            return 0.0 if self.has_number(float(value)) else 1.0
        text = str(value)[:VALUE_CHARS_MAX]
        letters = NO_LETTER.sub("", text.lower())
        if letters in self._letters:
            return 0.0
        words = split_words(text)
        return sum(not self._has_word(word) for word in words) / len(words) if words else 0.0

    def has_number(self, number: float) -> bool:
        """Return whether the number stands in the text, as itself, in percent or in thousands."""
        size = abs(number)
        return any(_round(written) in self._sizes for written in (size, size * 100, size / 1_000))

    def _has_word(self, word: str) -> bool:
        number = read_number(word)
        return _cut_stem(word) in self._stems or word in FILLERS or (number is not None and self.has_number(number))


def split_words(text: str) -> list[str]:
    """Return the words of a text and its numbers, in small letters; `getUser_id` has three."""
    return [word.lower() for word in WORD.findall(HUMP.sub(" ", text))]


def read_number(word: str) -> float | None:
    """Return the number that a word of `split_words` is; None where it is none."""
    if word[0].isdigit():
        try:
            return float(word.replace(",", ""))
        except ValueError:  # 1.2.3
            return None
    return NUMBER_WORDS.get(word)


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield the plain values within a JSON value, in no order, `LEAVES_MAX` at most."""
    open_values, left = [value], LEAVES_MAX
    while open_values and left:
        one = open_values.pop()
        if isinstance(one, dict):
            open_values += one.values()
        elif isinstance(one, list):
            open_values += one
        else:
            left -= 1
            yield one


def _round(number: float) -> float:
    """Round to nine digits, so that 0.1 * 100 is 10."""
    return float(f"{number:.9g}")


def _cut_stem(word: str) -> str:
    return word[:STEM_CHARS] if len(word) > STEM_CHARS else word.rstrip("s")
