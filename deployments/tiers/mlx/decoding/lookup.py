"""Guess how an answer continues, from what prompt and answer say already (prompt lookup).

    … def area(w, h): return w * h …  "Rewrite it:" def area(w, h
                     ▲ the guess: `): return w * h`          ▲ the last tokens, found again

The search is LZ77's, by hash chains: a table from each three tokens to where they stood last, and from each place to
the one before it. Of the youngest `_CHAIN_MAX` places the one with the longest agreement wins. Where no three tokens
agree, the last token is looked for around the place of the last copy, so a copy resumes two tokens after an edit.
`draft_policy.py` decides whether a guess is worth a step, by `Guess.agreed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GRAM = 3
_CHAIN_MAX = 8
AGREED_MAX = 32  # a longer agreement says no more
_NEAR_BEFORE, _NEAR_BEHIND = 8, 48


@dataclass(frozen=True, slots=True)
class Guess:
    """The next tokens, as they followed `agreed` tokens that were the same as the last ones."""

    tokens: list[int]
    agreed: int


class PromptLookup:
    """The tokens of one sequence, prompt and answer, and where each three of them stood."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._text = list(tokens)
        self._last: dict[tuple[int, int, int], int] = {}  # three tokens: the place of the third
        self._before: list[int] = [-1] * min(len(self._text), _GRAM - 1)  # by place: the one before it with the same
        self._source = -1  # the place that the last guess was taken from, moved on with the text
        grams = zip(self._text, self._text[1:], self._text[2:], strict=False)
        for place, gram in enumerate(grams, _GRAM - 1):
            self._before.append(self._last.get(gram, -1))
            self._last[gram] = place

    def append(self, token: int) -> None:
        """Take the next token of the answer."""
        text = self._text
        text.append(token)
        place = len(text) - 1
        if self._source >= 0:
            self._source += 1
        if place < _GRAM - 1:
            self._before.append(-1)
            return
        gram = (text[place - 2], text[place - 1], token)
        self._before.append(self._last.get(gram, -1))
        self._last[gram] = place

    def find(self, count: int) -> Guess | None:
        """Guess up to `count` next tokens; None where nothing like the last ones has stood before."""
        place, agreed = self._find_longest()
        if agreed < _GRAM:
            place, agreed = self._find_near()
        if not agreed or count < 1:
            return None
        self._source = place
        out = self._text[place + 1 : place + 1 + count]
        period = len(self._text) - place - 1
        while len(out) < count:  # a copy that reaches the end of the text continues with itself, as a loop does
            out.append(out[len(out) - period])
        return Guess(out, agreed)

    def _find_longest(self) -> tuple[int, int]:
        """Find the place that agrees longest: where the copy was going on, or one of the youngest in the table."""
        best, best_agreed = self._source, self._count_agreed(self._source)
        place = self._before[-1] if self._before else -1
        for _ in range(_CHAIN_MAX):
            if place < 0 or best_agreed >= AGREED_MAX:
                break
            agreed = self._count_agreed(place)
            if agreed > best_agreed:
                best, best_agreed = place, agreed
            place = self._before[place]
        return best, best_agreed

    def _count_agreed(self, place: int) -> int:
        """Count how many tokens up to `place` are the last ones of the text."""
        text, last = self._text, len(self._text) - 1
        agreed, most = 0, min(AGREED_MAX, place + 1, last)
        while agreed < most and text[place - agreed] == text[last - agreed]:
            agreed += 1
        return agreed

    def _find_near(self) -> tuple[int, int]:
        """Find the last token near where the copy was, with the one before it if possible."""
        text, here, end = self._text, self._source, len(self._text) - 1
        if here < 0:
            return -1, 0
        token, best = text[-1], (-1, 0)
        for place in (*range(here, min(here + _NEAR_BEHIND, end)), *range(here - 1, max(0, here - _NEAR_BEFORE), -1)):
            if text[place] == token:
                agreed = self._count_agreed(place)
                best = max(best, (place, agreed), key=lambda one: one[1])
                if agreed > 1:
                    break
        return best
