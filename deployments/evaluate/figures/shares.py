"""Shares with Wilson's 95 % interval, medians with spread, and the exact sign test for paired samples. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

Z95 = 1.959963984540054


def _find_interval(hits: int, runs: int, z: float = Z95) -> tuple[float, float]:
    """Return Wilson's interval of a share; all of it where there are no runs."""
    if runs <= 0:
        return 0.0, 1.0
    share, spread = hits / runs, z * z / runs
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / runs + spread / (4 * runs))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    # At the ends the formula is exact but for rounding.
    return (0.0 if hits == 0 else low), (1.0 if hits == runs else high)


def describe_share(hits: int, runs: int) -> dict[str, Any]:
    """Describe a share: how many of how many, and between what it lies."""
    low, high = _find_interval(hits, runs)
    return {"hits": hits, "runs": runs, "share": hits / runs if runs else None, "low": low, "high": high}


def describe_spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Describe a measurement: median, smallest, largest; None where there is none."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def find_sign_p(worse: int, better: int) -> float:
    """Return how likely it is that at least so many of those that changed became worse, if nothing has changed
    (one-sided)."""
    changed = worse + better
    return sum(math.comb(changed, k) for k in range(worse, changed + 1)) / 2**changed if changed else 1.0
