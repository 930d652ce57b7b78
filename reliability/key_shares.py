"""Which entry leaves where what all API keys store is over a bound: the oldest one of the key that holds the most.

Invariant: no key pushes out an entry of a key that holds less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)
K = TypeVar("K", bound=Hashable)


def find_fullest(held: Mapping[K, int]) -> K:
    """Find the key that holds the most; of equal ones the first."""
    return max(held, key=held.__getitem__)


def find_level(held: Mapping[K, int], most: int) -> int:
    """Find how much a key may hold at most, so that all together hold at most `most`: those that hold less keep it, and
    the others share what is left."""
    left, counts = max(0, most), sorted(held.values())
    for place, count in enumerate(counts):
        level = left // (len(counts) - place)
        if count > level:
            return level
        left -= count
    return max(counts, default=0)


class KeyShares(Generic[N]):
    """The names of entries by the key that they belong to, the one that was used longest ago first. `counts`: how many
    each key has; `held`: what they weigh."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self._names: dict[str, dict[N, int]] = {}

    def put(self, key: str, name: N, weight: int = 0) -> None:
        """Add an entry of this weight, or note that it is the newest of its key now."""
        names = self._names.setdefault(key, {})
        self.held[key] += weight - names.pop(name, 0)
        names[name] = weight
        self.counts[key] = len(names)

    def drop(self, key: str, name: N) -> None:
        names = self._names.get(key, {})
        self.held[key] -= names.pop(name, 0)
        self.counts[key] = len(names)
        if not names:
            self._names.pop(key, None)
            del self.counts[key], self.held[key]

    def find_oldest(self, held: Mapping[str, int] | None = None) -> N:
        """Find the entry that leaves next: of the key that holds the most of `held`, of entries without it."""
        return next(iter(self._names[find_fullest(self.counts if held is None else held)]))
