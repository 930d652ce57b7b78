"""How many guesses a step reads: as many as pay, by what guesses were worth and steps cost so far.

A step that reads several tokens in each row costs more than one that reads one; how much more depends on the machine,
so it is measured while decoding. What a guess is worth depends on the text: a copied file, nearly always right; prose
that happens to repeat three tokens, seldom. So each class of agreement (`lookup.Guess.agreed`) keeps how often its
tokens were right, over all sequences, and each sequence how its own last guesses did. The expected tokens a second
decide between no guesses and each number in `_COUNTS`.

And since an estimate may be wrong for ever, drafting lives on credit, counted in steps: each step grants `_GRANT`, a
step with guesses takes what it costs more, each token that was right gives back what it spared. Without credit nothing
is drafted. So decoding can't fall below about .98 of decoding without guesses, whatever the text. What is known of wide
steps fades while none are made, so one that came out slow for another reason is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["COUNT_MAX", "DraftPolicy", "Offer", "Record", "StepCosts"]

_COUNTS = (1, 2, 3, 5, 7, 11, 15, 23, 31)
COUNT_MAX = _COUNTS[-1]
_MARGIN = 1.04  # a smaller gain isn't worth being wrong
_GRANT, _CREDIT_FIRST, _CREDIT_MAX = 0.015, 1.0, 3.0
# By the least agreement: how often a token is right, until it is learned; and how much that assumption weighs.
_PRIORS = ((1, 0.4), (2, 0.5), (3, 0.5), (4, 0.65), (6, 0.75), (10, 0.85), (20, 0.93))
_PRIOR_WEIGHT, _CLASS_WEIGHT = 6.0, 4.0
_DECAY_CLASS, _DECAY_ROW = 0.98, 0.7


@dataclass(slots=True)
class Record:
    """How often guessed tokens were right, the latest counting most."""

    right: float = 0.0
    wrong: float = 0.0

    def learn(self, right: int, wrong: int, decay: float = _DECAY_ROW) -> None:
        """Take one guess: so many of its tokens were right, then perhaps one wrong."""
        self.right, self.wrong = self.right * decay + right, self.wrong * decay + wrong

    def rate(self, prior: float, weight: float) -> float:
        """Return the share that was right, drawn towards `prior`."""
        return (self.right + prior * weight) / (self.right + self.wrong + weight)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one row could guess: so many tokens, behind an agreement of so many; `record`: how its last ones did."""

    count: int
    agreed: int
    record: Record


class StepCosts:
    """Seconds of a step: of one that reads a token in each row, by rows; of a wider one, a line through what it reads.

    The line begins as an assumption (`_SLOPE` of a plain step for each token more), which measured steps outweigh.
    """

    _SLOPE, _ASSUMED = 0.04, (8, 64)
    _WEIGHT, _FADE, _LEARN = 0.25, 0.995, 0.2

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}
        self._sums = [0.0] * 5  # of weights, tokens, tokens², seconds, tokens * seconds

    def learn(self, rows: int, tokens: int, seconds: float) -> None:
        """Take a step that read so many tokens in all. One that was interrupted counts as twice what is known."""
        old = self.estimate(rows, tokens)
        seconds = min(seconds, 2 * old) if old else seconds
        if tokens > rows:
            fade = 0.9
            for place, value in enumerate((1.0, tokens, tokens * tokens, seconds, tokens * seconds)):
                self._sums[place] = self._sums[place] * fade + value
            return
        self._plain[rows] = old + self._LEARN * (seconds - old) if rows in self._plain else seconds
        self._sums = [one * self._FADE for one in self._sums]

    def estimate(self, rows: int, tokens: int) -> float:
        """Return the seconds; 0 as long as no step was measured."""
        if not self._plain:
            return 0.0
        nearest = min(self._plain, key=lambda known: abs(known - rows))
        plain = self._plain[nearest] * (1 + self._SLOPE * (rows - nearest) if rows > nearest else 1.0)
        return plain if tokens <= rows else max(plain, self._read_line(rows, tokens, plain))

    def _read_line(self, rows: int, tokens: int, plain: float) -> float:
        n, x, xx, y, xy = self._sums
        for assumed in self._ASSUMED:
            at, seconds = rows * assumed, plain * (1 + self._SLOPE * rows * (assumed - 1))
            weight = self._WEIGHT
            n, x, xx, y, xy = (
                n + weight,
                x + weight * at,
                xx + weight * at * at,
                y + weight * seconds,
                xy + weight * at * seconds,
            )
        slope = max(0.0, (n * xy - x * y) / (n * xx - x * x))
        return (y - slope * x) / n + slope * tokens


@dataclass(slots=True)
class DraftPolicy:
    """What was learned of guesses and of steps, over all sequences of an engine."""

    costs: StepCosts = field(default_factory=StepCosts)
    classes: list[Record] = field(default_factory=lambda: [Record() for _ in _PRIORS])
    credit: float = _CREDIT_FIRST

    def choose_count(self, offers: Sequence[Offer | None]) -> int:
        """Choose how many guesses each row may have in the next step; 0 where none pay. None: a row without any."""
        rows, most = len(offers), max((one.count for one in offers if one is not None), default=0)
        plain = self.costs.estimate(rows, rows)
        if not most or not plain:
            return 0
        rates = [(0.0, 0) if one is None else (self._rate(one), one.count) for one in offers]
        best, best_speed = 0, rows * _MARGIN
        for count in sorted({min(count, most) for count in _COUNTS}):
            cost = self.costs.estimate(rows, rows * (1 + count)) / plain
            if cost - 1 > self.credit:
                break
            speed = sum(_expect_tokens(rate, min(count, of)) for rate, of in rates) / cost
            if speed > best_speed:
                best, best_speed = count, speed
        return best

    def learn(self, offers: Sequence[Offer | None], count: int, right: Sequence[int]) -> None:
        """Take how many tokens of each row's guesses were right, in a step that read `count` of them at most."""
        rows = len(offers)
        for offer, good in zip(offers, right, strict=True):
            if offer is not None:
                wrong = int(good < min(count, offer.count))
                self.classes[_find_class(offer.agreed)].learn(good, wrong, _DECAY_CLASS)
                offer.record.learn(good, wrong)
        plain = self.costs.estimate(rows, rows)
        more = self.costs.estimate(rows, rows * (1 + count)) / plain - 1 if plain and count else 0.0
        self.credit = min(_CREDIT_MAX, self.credit + _GRANT + sum(right) / max(rows, 1) - more)

    def _rate(self, offer: Offer) -> float:
        number = _find_class(offer.agreed)
        known = self.classes[number].rate(_PRIORS[number][1], _PRIOR_WEIGHT)
        return offer.record.rate(known, _CLASS_WEIGHT)


def _find_class(agreed: int) -> int:
    return max(number for number, (least, _) in enumerate(_PRIORS) if agreed >= least)


def _expect_tokens(rate: float, count: int) -> float:
    """Return how many tokens a row gets on average: the guesses up to the first wrong one, and one more."""
    return count + 1.0 if rate >= 1 else (1 - rate ** (count + 1)) / (1 - rate)
