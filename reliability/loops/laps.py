"""The turns of a history seen as laps of a cycle.

Lazy by design: keys are computed from the tail backwards and only as far as a cycle holds, and results are
compared only where calls repeat; an ordinary history costs a handful of comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reliability.loops.canonical import call_key
from reliability.loops.config import LoopConfig
from reliability.loops.near import near
from reliability.loops.nouns import Call, Result, Stage, Turn
from reliability.loops.polls import polling
from reliability.loops.volatile import same

__all__ = ["Laps", "stage_of"]

Key = frozenset[str]
Pairwise = Callable[[int, int], bool]


def stage_of(laps: int, warn: int, limit: int) -> Stage | None:
    """The stage that so many laps have reached; a threshold of 0 or less is off."""
    if 0 < limit <= laps:
        return Stage.BREAK
    return Stage.WARN if 0 < warn <= laps else None


class Laps:
    """The acting turns seen as laps: keys are computed once, and only where they are asked for."""

    def __init__(self, turns: list[Turn], config: LoopConfig, candidate: Turn | None) -> None:
        self.turns, self.config, self.candidate = turns, config, candidate
        self._keys: dict[int, Key] = {}

    @property
    def size(self) -> int:
        """How many turns there are."""
        return len(self.turns)

    def before(self, end: int) -> Laps:
        """The laps as they stood before the turn `end`."""
        return Laps(self.turns[:end], self.config, None)

    def lap_key(self, period: int) -> frozenset[Key]:
        """What the newest lap does, wherever in it one starts to count."""
        return frozenset(self.key(index) for index in range(self.size - period, self.size))

    def key(self, index: int) -> Key:
        """What the turn asks for, its parallel calls as a set."""
        if index not in self._keys:
            self._keys[index] = self.key_of(self.turns[index].calls)
        return self._keys[index]

    def key_of(self, calls: Iterable[Call]) -> Key:
        """A parallel batch is a set: its order doesn't count, and equal calls in it count once."""
        return frozenset(call_key(call, self.config.ignored_arguments) for call in calls)

    def count(self, period: int, pairwise: Pairwise) -> int:
        """How many laps the tail holds in which turn and turn a period later are a pair."""
        if self.size < period or not self._begun(period):
            return 0
        paired = 0
        for index in range(self.size - 1, period - 1, -1):
            if self.key(index) != self.key(index - period) or not pairwise(index - period, index):
                break
            paired += 1
        return (paired + period) // period + (self.candidate is not None)

    def _begun(self, period: int) -> bool:
        if self.candidate is None:
            return True
        return self.key_of(self.candidate.calls) == self.key(self.size - period)

    def polled(self, index: int) -> bool:
        """True where every call of the turn waits or pages."""
        turn = self.turns[index]
        return all(polling(c, r, self.config.pollers) for c, r in zip(turn.calls, turn.results, strict=False))

    def results(self, index: int) -> dict[str, Result | None]:
        """The turn's results by call."""
        turn = self.turns[index]
        pairs = zip(turn.calls, turn.results, strict=False)
        return {call_key(call, self.config.ignored_arguments): result for call, result in pairs}

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
        exact = self.polled(older) and self.polled(newer)
        return self.alike(older, newer, _exactly if exact else same)

    def near(self, older: int, newer: int) -> bool:
        """True where the two turns have nearly the same results, and neither polls."""
        if self.polled(older) or self.polled(newer):
            return False
        return self.alike(older, newer, lambda a, b: near(a, b, self.config.near_threshold))


def _exactly(older: str, newer: str) -> bool:
    return older.strip() == newer.strip()
