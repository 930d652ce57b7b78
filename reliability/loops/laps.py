"""The turns of a history seen as laps of a cycle.

Lazy by design: keys are computed from the tail backwards and only as far as a cycle holds, and results are
compared only where calls repeat; an ordinary history costs a handful of comparisons. Whatever was asked once of a
request's turns stands in its `Memo`: neither another period nor another tier's attempt asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reliability.loops.canonical import call_key
from reliability.loops.findings import Call, Result, Stage, Turn
from reliability.loops.memo import Memo
from reliability.loops.near import near
from reliability.loops.polling import polling
from reliability.loops.same_result import same
from reliability.loops.thresholds import LoopConfig

__all__ = ["Laps", "stage_of"]

Key = frozenset[str]
Pairwise = Callable[[int, int], bool]
SAME, NEAR = "same", "near"


def stage_of(laps: int, warn: int, limit: int) -> Stage | None:
    """The stage that so many laps have reached; a threshold of 0 or less is off."""
    if 0 < limit <= laps:
        return Stage.BREAK
    return Stage.WARN if 0 < warn <= laps else None


class Laps:
    """The acting turns seen as laps: keys are computed once, and only where they are asked for. `memo` belongs to these
    turns, or to longer ones that begin with them."""

    def __init__(self, turns: list[Turn], config: LoopConfig, candidate: Turn | None, memo: Memo | None = None) -> None:
        self.turns, self.config, self.candidate = turns, config, candidate
        self.memo = Memo() if memo is None else memo

    @property
    def size(self) -> int:
        """How many turns there are."""
        return len(self.turns)

    def before(self, end: int) -> Laps:
        """The laps as they stood before the turn `end`."""
        return Laps(self.turns[:end], self.config, None, self.memo)

    def lap_key(self, period: int) -> frozenset[Key]:
        """What the newest lap does, wherever in it one starts to count."""
        return frozenset(self.key(index) for index in range(self.size - period, self.size))

    def key(self, index: int) -> Key:
        """What the turn asks for, its parallel calls as a set."""
        return self.memo.once(("key", index), lambda: self.key_of(self.turns[index].calls))

    def key_of(self, calls: Iterable[Call]) -> Key:
        """A parallel batch is a set: its order doesn't count, and equal calls in it count once."""
        return frozenset(map(self._call_key, calls))

    def _call_key(self, call: Call) -> str:
        return self.memo.once(call, lambda: call_key(call, self.config.ignored_arguments))

    def count(self, period: int, pairwise: Pairwise, enough: int = 0) -> int:
        """How many laps the tail holds in which turn and turn a period later are a pair. Past `enough` laps they are
        counted only as long as that is cheap (see `Memo`); 0: all of them."""
        if self.size < period or not self._begun(period):
            return 0
        paired = 0
        for index in range(self.size - 1, period - 1, -1):
            if 0 < enough * period <= paired and not self._cheap(index - period, index):
                break
            if self.key(index) != self.key(index - period) or not pairwise(index - period, index):
                break
            paired += 1
        return (paired + period) // period + (self.candidate is not None)

    def _cheap(self, older: int, newer: int) -> bool:
        """Whether these two may still be compared, past a verdict. Polls are compared as they are, which is cheap."""
        if self.polled(newer) or any((kind, older, newer) in self.memo for kind in (SAME, NEAR)):
            return True
        a, b = ([result.text for result in self.turns[i].results if result is not None] for i in (older, newer))
        return a == b or self.memo.affords(sum(map(len, a)) + sum(map(len, b)))

    def _begun(self, period: int) -> bool:
        if self.candidate is None:
            return True
        return self.key_of(self.candidate.calls) == self.key(self.size - period)

    def polled(self, index: int) -> bool:
        """True where every call of the turn waits or pages."""
        return self.memo.once(("polled", index), lambda: self._polls(self.turns[index]))

    def _polls(self, turn: Turn) -> bool:
        pairs = dict.fromkeys(zip(turn.calls, turn.results, strict=False))
        return all(polling(call, result, self.config.pollers) for call, result in pairs)

    def results(self, index: int) -> dict[str, Result | None]:
        """The turn's results by call."""
        return self.memo.once(("results", index), lambda: self._results(self.turns[index]))

    def _results(self, turn: Turn) -> dict[str, Result | None]:
        return {self._call_key(call): result for call, result in zip(turn.calls, turn.results, strict=False)}

    def alike(self, older: int, newer: int, test: Callable[[str, str], bool]) -> bool:
        """True where each call of the two turns has two known results that pass the test."""
        a, b = self.results(older), self.results(newer)
        for key, result in a.items():
            other = b.get(key)
            if result is None or other is None or not test(result.text, other.text):
                return False
        return True

    def same(self, older: int, newer: int) -> bool:
        """True where the two turns have the same results; those of polls are compared as they are."""
        return self.memo.once((SAME, older, newer), lambda: self._same(older, newer))

    def _same(self, older: int, newer: int) -> bool:
        exact = self.polled(older) and self.polled(newer)
        return self.alike(older, newer, _exactly if exact else self._equal)

    def _equal(self, older: str, newer: str) -> bool:
        return self.memo.once((older, newer), lambda: same(older, newer, self.memo.parse))

    def near(self, older: int, newer: int) -> bool:
        """True where the two turns have nearly the same results, and neither polls."""
        return self.memo.once((NEAR, older, newer), lambda: self._near(older, newer))

    def _near(self, older: int, newer: int) -> bool:
        if self.polled(older) or self.polled(newer):
            return False
        threshold, parse = self.config.near_threshold, self.memo.parse
        return self.alike(older, newer, lambda a, b: near(a, b, threshold, parse, self._equal))


def _exactly(older: str, newer: str) -> bool:
    return older.strip() == newer.strip()
