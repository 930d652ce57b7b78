"""Serve's demand for replicas, held through a lull, and Serve's scaling factors, which it applies after the policy.

Serve turns what a policy says into `current + factor * (said - current)`. A cap must come out of that unchanged, so the
policy applies the factor to the demand itself and then says what the factor turns into the cap.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

__all__ = ["HeldDemand", "after_factors", "before_factors"]

# Serve rounds up: a cap of 2 that arithmetic makes 2.0000000001 would be 3.
_EPSILON = 1e-6


class HeldDemand:
    """The highest demand of the last `hold_s`, per deployment."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        # Falling from left to right: only what isn't topped by something newer. So it has at most as many entries as
        # there are numbers of replicas.
        self._peaks: dict[str, deque[tuple[float, int]]] = {}

    def of(self, name: str, wanted: int, now_s: float) -> int:
        """Take the demand of this moment; the answer is the one to go by."""
        peaks = self._peaks.setdefault(name, deque())
        while peaks and peaks[-1][1] <= wanted:
            peaks.pop()
        peaks.append((now_s, wanted))
        while now_s - peaks[0][0] > self._hold_s:
            peaks.popleft()
        return peaks[0][1]


def after_factors(context: Any, demand: float) -> int:
    """What Serve would make of this demand, before its bounds. `context`: Serve's AutoscalingContext."""
    current = int(context.current_num_replicas)
    if current == 0:
        return math.ceil(demand)
    return math.ceil(current + _factor(context, demand - current) * (demand - current) - _EPSILON)


def before_factors(context: Any, replicas: int) -> float:
    """What a policy must say so that Serve makes `replicas` of it."""
    current = int(context.current_num_replicas)
    if current in (0, replicas):
        return replicas
    return float(current + (replicas - current - _EPSILON) / _factor(context, replicas - current))


def _factor(context: Any, delta: float) -> float:
    config = context.config
    return float(config.get_upscaling_factor() if delta > 0 else config.get_downscaling_factor())
