"""How likely a call is right, by its signs: a logistic model, fitted for each model on cases with known answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reliability.confidence.signs import Unsure, read_signs
from reliability.tools import ToolBox
from reliability.types import ToolCall


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model's calibration: what each sign adds to the log-odds that a call is right, beginning at `base`."""

    base: float
    weights: Mapping[str, float]

    def estimate(self, signs: Mapping[str, float]) -> float:
        """Return how likely a call with these signs is right, 0 to 1. A sign without a weight says nothing."""
        odds = self.base + sum(self.weights.get(name, 0.0) * value for name, value in signs.items())
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, odds))))


@dataclass(frozen=True, slots=True)
class Confidence:
    """What the calls of one answer showed of themselves. `likely`: how likely they are right, 0 to 1; None where the
    model has no calibration."""

    signs: Mapping[str, float]
    likely: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What tells how likely the calls of one tier are right, and how likely they have to be (`least`; 0: they need
    not). `texts`, `request`: as in `read_signs`."""

    calibration: Calibration | None
    least: float
    texts: Sequence[str]
    request: str

    def measure(self, calls: Sequence[ToolCall], toolbox: ToolBox, unsure: Unsure) -> Confidence:
        """Measure these calls."""
        signs = read_signs(calls, toolbox, self.texts, self.request, unsure)
        return Confidence(signs, None if self.calibration is None else self.calibration.estimate(signs))
