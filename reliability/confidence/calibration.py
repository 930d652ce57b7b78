"""How likely a call is right, and how likely no tool was wanted, by its signs.

Logistic models, fitted for each model on cases with known answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reliability.confidence.signs import Unsure, read_signs
from reliability.tools import ToolBox
from reliability.types import ToolCall


@dataclass(frozen=True, slots=True)
class Calibration:
    """What each sign of a call adds to the log-odds of something, beginning at `base`."""

    base: float
    weights: Mapping[str, float]

    def estimate(self, signs: Mapping[str, float]) -> float:
        """Return how likely it is, 0 to 1. A sign without a weight says nothing."""
        odds = self.base + sum(self.weights.get(name, 0.0) * value for name, value in signs.items())
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, odds))))


@dataclass(frozen=True, slots=True)
class ModelCalibration:
    """What was measured of one model: how its signs tell that a call is `right`, and, if known, that it is one where no
    tool was wanted (`unwanted`)."""

    right: Calibration
    unwanted: Calibration | None = None


@dataclass(frozen=True, slots=True)
class Confidence:
    """What the calls of one answer showed of themselves. `likely`: how likely they are right, `unwanted`: how likely no
    tool was wanted, 0 to 1; None where that isn't known."""

    signs: Mapping[str, float]
    likely: float | None = None
    unwanted: float | None = None


UNMEASURED = Confidence({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What tells how likely the calls of one tier are right, and how likely they have to be (`least`; 0: they need
    not). `texts`, `request`: as in `read_signs`. `words_do`: an answer in words may be what was wanted."""

    calibration: ModelCalibration | None
    least: float
    texts: Sequence[str]
    request: str
    words_do: bool

    def measure(self, calls: Sequence[ToolCall], toolbox: ToolBox, unsure: Unsure) -> Confidence:
        """Measure these calls."""
        signs = read_signs(calls, toolbox, self.texts, self.request, unsure)
        known = self.calibration
        if known is None:
            return Confidence(signs)
        asks = known.unwanted if self.words_do else None
        return Confidence(signs, known.right.estimate(signs), None if asks is None else asks.estimate(signs))
