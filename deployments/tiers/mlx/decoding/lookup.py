"""Guess how an answer continues, from what prompt and answer say already (prompt lookup).

The search is LZ77's, by hash chains: a table from each three tokens to where they stood last, and from each place to
the one before it. Of the youngest `_CHAIN_MAX` places the one with the longest agreement wins. Where no three tokens
agree, the last token is looked for around the place of the last copy, so a copy resumes two tokens after an edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_GRAM = 3
_CHAIN_MAX = 8
_AGREED_MAX = 32  # a longer agreement says no more
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
            if place < 0 or best_agreed >= _AGREED_MAX:
                break
            agreed = self._count_agreed(place)
            if agreed > best_agreed:
                best, best_agreed = place, agreed
            place = self._before[place]
        return best, best_agreed

    def _count_agreed(self, place: int) -> int:
        """Count how many tokens up to `place` are the last ones of the text."""
        text, last = self._text, len(self._text) - 1
        agreed, most = 0, min(_AGREED_MAX, place + 1, last)
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


_COUNTS = (1, 2, 3, 5, 7, 11, 15, 23, 31, 47, 63)
COUNT_MAX = _COUNTS[-1]
_STEP_TOKENS_MAX = 256  # of all rows: each has a line of probabilities as long as the vocabulary
_MARGIN = 1.06  # a smaller gain isn't worth being wrong
_GRANT, _CREDIT_FIRST, _CREDIT_MAX = 0.01, 0.5, 20.0
_DEBT_MAX = 3.0
# By the least agreement: how often a token is right, until it is learned; and how much that assumption weighs.
_PRIORS = ((1, 0.4), (2, 0.5), (3, 0.5), (4, 0.65), (6, 0.75), (10, 0.85), (20, 0.93))
_PRIOR_WEIGHT, _CLASS_WEIGHT = 6.0, 4.0
_DECAY_CLASS, _DECAY_ROW = 0.98, 0.7


@dataclass(slots=True)
class Record:
    """How often guessed tokens were right, the latest counting most; a sequence's credit, in steps; its `lookup`."""

    right: float = 0.0
    wrong: float = 0.0
    credit: float = _CREDIT_FIRST
    lookup: PromptLookup | None = None

    def learn(self, right: int, wrong: int, decay: float = _DECAY_ROW) -> None:
        """Take one guess: so many of its tokens were right, then perhaps one wrong."""
        self.right, self.wrong = self.right * decay + right, self.wrong * decay + wrong

    def rate(self, prior: float, weight: float) -> float:
        """Return the share that was right, drawn towards `prior`."""
        return (self.right + prior * weight) / (self.right + self.wrong + weight)


@dataclass(frozen=True, slots=True)
class Offer:
    """The number of tokens that a row could draft, behind so long an agreement, and how its last ones did."""

    record: Record
    count: int = 0
    agreed: int = 0


class _StepCosts:
    """Seconds of a step: of one that reads a token in each row, by rows; of a wider one, a line through what it reads.
    The line begins as an assumption (`_SLOPE` of a plain step for each token more), which measured steps outweigh."""

    _SLOPE, _ASSUMED = 0.04, (8, 64)
    _WEIGHT, _FADE, _LEARN = 0.25, 0.997, 0.2

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}
        self.widest = 0.0  # the most tokens that a measured step has read, lately
        self._sums = [0.0] * 5  # of weights, tokens, tokens², seconds, tokens * seconds

    def learn(self, rows: int, tokens: int, seconds: float) -> None:
        """Take a step that read so many tokens in all. One that was interrupted counts as twice what is known."""
        old = self.estimate(rows, tokens)
        seconds = min(seconds, 2 * old) if old and tokens <= self.widest else seconds
        self.widest = max(self.widest, float(tokens))
        if tokens > rows:
            self._sums = _add_point([0.9 * one for one in self._sums], 1.0, tokens, seconds)
            return
        self._plain[rows] = old + self._LEARN * (seconds - old) if rows in self._plain else seconds
        self._sums = [one * self._FADE for one in self._sums]
        self.widest *= self._FADE

    def estimate(self, rows: int, tokens: int) -> float:
        """Return the seconds; 0 as long as no step was measured."""
        if not self._plain:
            return 0.0
        nearest = min(self._plain, key=lambda known: abs(known - rows))
        plain = self._plain[nearest] * (1 + self._SLOPE * (rows - nearest) if rows > nearest else 1.0)
        return plain if tokens <= rows else max(plain, self._read_line(rows, tokens, plain))

    def _read_line(self, rows: int, tokens: int, plain: float) -> float:
        sums, weight = self._sums, self._WEIGHT / (1 + self._sums[0])
        for assumed in self._ASSUMED:
            sums = _add_point(sums, weight, rows * assumed, plain * (1 + self._SLOPE * rows * (assumed - 1)))
        n, x, xx, y, xy = sums
        slope = max(0.0, (n * xy - x * y) / (n * xx - x * x))
        return (y - slope * x) / n + slope * tokens


def _add_point(sums: Sequence[float], weight: float, tokens: int, seconds: float) -> list[float]:
    """Add a step to the sums of a line."""
    point = (1.0, tokens, tokens * tokens, seconds, tokens * seconds)
    return [known + weight * new for known, new in zip(sums, point, strict=True)]


@dataclass(slots=True)
class DraftPolicy:
    """What was learned of guesses and of steps, over all sequences of an engine."""

    costs: _StepCosts = field(default_factory=_StepCosts)
    classes: list[Record] = field(default_factory=lambda: [Record() for _ in _PRIORS])

    def choose_count(self, offers: Sequence[Offer]) -> int:
        """Choose how many guesses each row may have in the next step; 0 where none pay."""
        rows, most = len(offers), max((one.count for one in offers), default=0)
        plain = self.costs.estimate(rows, rows)
        if not most or not plain:
            return 0
        rates = [(self._rate(one), one.count) if one.count else (0.0, 0) for one in offers]
        credit = sum(one.record.credit for one in offers) / rows
        best, best_speed, best_rate = 0, rows * _MARGIN, max(rate for rate, _ in rates)
        for count in sorted({min(count, most) for count in _COUNTS}):
            more = self.costs.estimate(rows, rows * (1 + count)) / plain - 1
            tokens = rows * (1 + count)
            unknown = tokens > 2 * max(self.costs.widest, rows) or tokens > _STEP_TOKENS_MAX
            if unknown or more * (1 - best_rate) > credit or more > credit + _DEBT_MAX:
                break
            speed = sum(_expect_tokens(rate, min(count, of)) for rate, of in rates) / (1 + more)
            if speed > best_speed:
                best, best_speed = count, speed
        return best

    def learn(self, offers: Sequence[Offer], count: int, right: Sequence[int], seconds: float | None) -> None:
        """Take how many tokens of each row's guesses were right, in a step that read `count` of them at most.
        `seconds`: what it took; None where something else was computed meanwhile."""
        rows, tokens = len(offers), len(offers) * (1 + count)
        if seconds is not None:
            self.costs.learn(rows, tokens, seconds)
        more, plain = 0.0, self.costs.estimate(rows, rows)
        if count and plain:
            spent = self.costs.estimate(rows, tokens) if seconds is None else seconds
            more = spent / plain - 1
        for offer, good in zip(offers, right, strict=True):
            offer.record.credit = min(_CREDIT_MAX, offer.record.credit + _GRANT + good - more)
            read = min(count, offer.count)
            if read:
                self.classes[_find_class(offer.agreed)].learn(good, int(good < read), _DECAY_CLASS)
                offer.record.learn(good, int(good < read))

    def _rate(self, offer: Offer) -> float:
        number = _find_class(offer.agreed)
        known = self.classes[number].rate(_PRIORS[number][1], _PRIOR_WEIGHT)
        return offer.record.rate(known, _CLASS_WEIGHT)


def _find_class(agreed: int) -> int:
    return max(number for number, (least, _) in enumerate(_PRIORS) if agreed >= least)


def _expect_tokens(rate: float, count: int) -> float:
    """Return how many tokens a row gets on average: the guesses up to the first wrong one, and one more."""
    return count + 1.0 if rate >= 1 else (1 - rate ** (count + 1)) / (1 - rate)
