"""Series of measured values with a bound, and their quantiles."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

KEPT_MAX = 20_000


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile by nearest rank, the median by the usual mean of the two in the middle; NaN of none."""
    if not values:
        return math.nan
    if share == 0.5:
        return statistics.median(values)
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(slots=True)
class Series:
    """All values are counted and at most `kept_max` kept, each with the same chance (Vitter's algorithm R)."""

    kept_max: int = KEPT_MAX
    count: int = 0
    most: float = 0.0
    kept: list[float] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def add(self, value: float) -> None:
        """Count one more value, and perhaps keep it."""
        self.count += 1
        self.most = max(self.most, value)
        if len(self.kept) < self.kept_max:
            self.kept.append(value)
        elif (at := self.dice.randrange(self.count)) < self.kept_max:
            self.kept[at] = value

    def quantile(self, share: float) -> float:
        """Return the quantile of what is kept."""
        return quantile(self.kept, share)
