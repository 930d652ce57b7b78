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


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How likely an answer of one tier has to be right (`least`), and what that is told by. `texts`, `request`: as in
    `read_signs`."""

    calibration: Calibration
    least: float
    texts: Sequence[str]
    request: str

    def estimate(self, calls: Sequence[ToolCall], toolbox: ToolBox, unsure: Unsure) -> float:
        """Return how likely these calls are right, 0 to 1."""
        return self.calibration.estimate(read_signs(calls, toolbox, self.texts, self.request, unsure))
