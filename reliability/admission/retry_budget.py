"""How many extra calls the whole server may make, so that second tries don't storm a dying tier.

A later call to a tier that has just failed its request is *extra*; over any window the extra calls are at most `floor`
plus `share_percent` of the first calls, and those of one API key at most half of what the others have left. A fallback
to another tier is neither, nor is a correction of what a tier has answered: the chain and the re-asks bound those.

Invariants: no first call is rejected. Extra calls count a bucket too long and first calls a bucket too short, so the
bound holds at every moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reliability.rolling import EMPTY, SECOND_NS, Rolling, Span

_BUCKETS = 12  # five seconds each in a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudgetLimits:
    """`share_percent` 0 leaves the floor alone; `floor` 0 as well allows no extra call at all."""

    share_percent: int = 20
    floor: int = 10
    window_ns: int = 60 * SECOND_NS

    @property
    def span(self) -> Span:
        """The window of both counts."""
        return Span(self.window_ns, self.window_ns // _BUCKETS)


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """First and extra calls of the last while."""

    first: Rolling = EMPTY
    extra: Rolling = EMPTY
    extra_by_key: Mapping[str, Rolling] = field(default_factory=dict)


def take(
    budget: RetryBudget, config: RetryBudgetLimits, extra: bool, now_ns: int, key: str = ""
) -> tuple[RetryBudget, int | None]:
    """Count one call. Too many extra calls: return the same budget, and how long to wait. Without a `key` nothing is
    left for others."""
    span = config.span
    if not extra:
        return replace(budget, first=budget.first.add(span, 1, now_ns)), None
    spent = budget.extra.drop_expired(span, now_ns)
    allowed = config.floor + budget.first.inner_total(span, now_ns) * config.share_percent // 100
    by_key = {name: calls.drop_expired(span, now_ns) for name, calls in budget.extra_by_key.items()}
    by_key = {name: calls for name, calls in by_key.items() if calls.total}
    own = by_key.get(key, EMPTY)
    key_max = (allowed - spent.total + own.total + 1) // 2 if key else allowed
    for held, most in ((spent, allowed), (own, key_max)):
        if held.total >= most:
            wait_ns = held.frees_in_ns(span, held.total - most + 1, now_ns)
            return budget, config.window_ns if wait_ns is None else wait_ns
    by_key[key] = own.add(span, 1, now_ns)
    return replace(budget, extra=spent.add(span, 1, now_ns), extra_by_key=by_key), None
