"""A sum over the last while, in whole buckets.

An entry leaves with its bucket, when the *whole* bucket is older than the window: it counts for at least `window_ns`
and at most `window_ns + bucket_ns`, so the sum may say too much, never too little. `inner_total` leaves out the bucket
that is only partly inside. At most `window_ns / bucket_ns + 2` buckets; a clock that steps back adds to the newest.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """How long an entry counts, and how fine the window is."""

    window_ns: int
    bucket_ns: int

    def __post_init__(self) -> None:
        if not 0 < self.bucket_ns <= self.window_ns:
            raise ValueError("a window needs 0 < bucket_ns <= window_ns")


@dataclass(frozen=True, slots=True)
class Rolling:
    """Pairs of (bucket number, amount), oldest first, and their sum."""

    buckets: tuple[tuple[int, int], ...] = ()
    total: int = 0

    def drop_expired(self, span: Span, now_ns: int) -> Rolling:
        """Drop the buckets that are older than the window as a whole."""
        gone = 0
        freed = 0
        while gone < len(self.buckets) and _leaves_ns(self.buckets[gone][0], span) <= now_ns:
            freed += self.buckets[gone][1]
            gone += 1
        return Rolling(self.buckets[gone:], self.total - freed) if gone else self

    def add(self, span: Span, amount: int, now_ns: int) -> Rolling:
        kept = self.drop_expired(span, now_ns)
        number = now_ns // span.bucket_ns
        if kept.buckets and kept.buckets[-1][0] >= number:
            newest, held = kept.buckets[-1]
            return Rolling((*kept.buckets[:-1], (newest, held + amount)), kept.total + amount)
        return Rolling((*kept.buckets, (number, amount)), kept.total + amount)

    def inner_total(self, span: Span, now_ns: int) -> int:
        """Return the sum of the buckets that lie in the window as a whole."""
        return sum(amount for number, amount in self.buckets if number * span.bucket_ns + span.window_ns > now_ns)

    def frees_in_ns(self, span: Span, amount: int, now_ns: int) -> int | None:
        """Return how long until `amount` at least has left the window. None: there is less in it."""
        freed = 0
        if amount <= 0:
            return 0
        for number, held in self.buckets:
            freed += held
            if freed >= amount:
                return max(0, _leaves_ns(number, span) - now_ns)
        return None


EMPTY = Rolling()


def _leaves_ns(number: int, span: Span) -> int:
    return (number + 1) * span.bucket_ns + span.window_ns
