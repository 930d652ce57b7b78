"""What a text says: whether the words and numbers of a value stand in it.

Words are compared by their beginnings, so that `orders` and `ordering` are one; numbers by value, so that `1,000`,
`thousand` and `10%` (as 0.1) are found.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_LETTER = re.compile(r"[\W_]+")
_STEM_CHARS = 5
_JOINS = "\u0590"  # from Hebrew on scripts write words without spaces, or join small ones to them
LEAVES_MAX, _VALUE_CHARS_MAX = 20, 2_000
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: float(number) for number, word in enumerate(_UNITS.split())} | {
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
_SAY_NOTHING = (
    "a an the of to in on at for and or is are was were be by with from as it its this that what which who how do "
    "does did can could would will you your me my i we our us please if not no any all some get find give tell "
    "show want need have has about into than then there their them they he she his her up out so just also like"
)
_FILLERS = frozenset(_SAY_NOTHING.split())


class Said:
    """What one text says."""

    def __init__(self, text: str) -> None:
        words = split_words(text)
        self._stems = {_cut_stem(word) for word in words}
        self._letters = _NO_LETTER.sub("", text.lower())
        self.numbers = {number for number in map(_read_number, words) if number is not None}
        self._sizes = {_round(number) for number in self.numbers}

    def find_missing(self, value: Any) -> float:
        """Return which share of a plain value's words and numbers the text doesn't have, 0 to 1. Truth values and null
        say nothing that could be missing."""
        if value is None or isinstance(value, bool):
            return 0.0
        if isinstance(value, int | float):
            return 0.0 if self.has_number(value) else 1.0
        text = str(value)[:_VALUE_CHARS_MAX]
        words = split_words(text)
        missing = sum(not self._has_word(word) for word in words)
        return missing / len(words) if missing and _NO_LETTER.sub("", text.lower()) not in self._letters else 0.0

    def has_number(self, number: float) -> bool:
        """Return whether the number stands in the text, as itself, in percent or in thousands."""
        size = min(abs(number), 1e300)  # JSON's integers may be greater than any float, and so may these in percent
        return any(_round(written) in self._sizes for written in (size, size * 100, size / 1_000))

    def _has_word(self, word: str) -> bool:
        if _cut_stem(word) in self._stems or word in _FILLERS or (word >= _JOINS and word in self._letters):
            return True
        number = _read_number(word)
        return number is not None and self.has_number(number)


def split_words(text: str) -> list[str]:
    """Return the words of a text and its numbers, in small letters; `getUser_id` has three."""
    return [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]


def _read_number(word: str) -> float | None:
    """Return the number that a word of `split_words` is; None where it is none."""
    if word[0].isdigit():
        try:
            return float(word.replace(",", ""))
        except ValueError:  # 1.2.3
            return None
    return _NUMBER_WORDS.get(word)


def list_leaves(value: Any, schema: Any) -> Iterator[Any]:
    """Yield the plain values within a JSON value, in no order, but for their schema's defaults; of `LEAVES_MAX` at
    most."""
    open_values, left = [(value, schema)], LEAVES_MAX
    while open_values and left:
        one, known = open_values.pop()
        if find_field(known, "default") == one:
            left -= 1
        elif isinstance(one, dict):
            properties = find_field(known, "properties")
            open_values += [(each, find_field(properties, key)) for key, each in one.items()]
        elif isinstance(one, list):
            open_values += [(each, find_field(known, "items")) for each in one]
        else:
            left -= 1
            yield one


def find_field(schema: Any, key: str) -> Any:
    """Return what a schema has under a key; None where it has nothing, or is none."""
    return schema.get(key) if isinstance(schema, Mapping) else None


def _round(number: float) -> float:
    """Round to nine digits, so that 0.1 * 100 is 10."""
    return float(f"{number:.9g}")


def _cut_stem(word: str) -> str:
    return word[:_STEM_CHARS] if len(word) > _STEM_CHARS else word.rstrip("s")
