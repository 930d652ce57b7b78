"""How many extra calls the whole server may make, so that second tries don't storm a dying tier.

A later call to a tier that its request has called before is *extra*; over any window the extra calls are at most
`floor` plus `share_percent` of the first calls. A fallback to another tier is neither: the chain bounds those.

Invariants: no first call is rejected. Extra calls count a bucket too long and first calls a bucket too short, so the
bound holds at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reliability.rolling import EMPTY, SECOND_NS, Rolling, Span

_BUCKETS = 12  # five seconds each in a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudgetLimits:
    """`share_percent` 0 leaves the floor alone; `floor` 0 as well allows no extra call at all."""

    share_percent: int = 20
    floor: int = 10
    window_ns: int = 60 * SECOND_NS

    def __post_init__(self) -> None:
        if self.share_percent < 0 or self.floor < 0 or self.window_ns < _BUCKETS:
            raise ValueError("retry budget: share_percent, floor or window_ns out of range")

    @property
    def span(self) -> Span:
        """The window of both counts."""
        return Span(self.window_ns, self.window_ns // _BUCKETS)


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """First and extra calls of the last while."""

    first: Rolling = EMPTY
    extra: Rolling = EMPTY


def take(budget: RetryBudget, config: RetryBudgetLimits, extra: bool, now_ns: int) -> tuple[RetryBudget, int | None]:
    """Count one call. Too many extra calls: return the same budget, and in how many nanoseconds one of them leaves the
    window at the latest."""
    span = config.span
    if not extra:
        return replace(budget, first=budget.first.add(span, 1, now_ns)), None
    spent = budget.extra.drop_expired(span, now_ns)
    allowed = config.floor + budget.first.inner_total(span, now_ns) * config.share_percent // 100
    if spent.total >= allowed:
        wait_ns = spent.frees_in_ns(span, spent.total - allowed + 1, now_ns)
        return budget, config.window_ns if wait_ns is None else wait_ns
    return replace(budget, extra=spent.add(span, 1, now_ns)), None
