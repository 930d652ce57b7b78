"""How likely a call is right, and how likely no tool was wanted, by its signs.

Logistic models, fitted for each model on cases with known answers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reliability.answer.judgement import Judged
from reliability.attempt import UNMEASURED, Confidence
from reliability.confidence.signs import Unsure, read_signs
from reliability.tools import ToolBox
from reliability.types import Flaw

# From here on a call is held to be one that nobody wanted (docs/decisions/092-confidence.md).
UNWANTED_MIN = 0.4


@dataclass(frozen=True, slots=True)
class Calibration:
    """What each sign of a call adds to the log-odds of something, beginning at `base`. `share`: in how many of the
    measured cases it held, 0 to 1."""

    base: float
    weights: Mapping[str, float]
    share: float = 1.0

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What tells how likely the calls of one tier are right, and how likely they have to be (`least`; 0: they need
    not). `texts`, `request`: as in `read_signs`. `words_do`: an answer in words may be what was wanted."""

    calibration: ModelCalibration | None
    least: float
    texts: Sequence[str]
    request: str
    words_do: bool

    def measure(self, judged: Judged, toolbox: ToolBox, unsure: Unsure | None) -> Confidence:
        """Measure an answer's calls, where they are good otherwise and the tier has told what it was unsure of. Of
        invalid calls only the model is known: once valid, they are right as often as its others are."""
        if judged.flaw is Flaw.TOOL_CALL_INVALID and self.calibration is not None:
            return Confidence({}, self.calibration.right.share)
        if judged.flaw is not None or not judged.calls or unsure is None:
            return UNMEASURED
        signs = read_signs(judged.calls, toolbox, self.texts, self.request, unsure)
        known = self.calibration
        if known is None:
            return Confidence(signs)
        asks = known.unwanted if self.words_do else None
        return Confidence(signs, known.right.estimate(signs), None if asks is None else asks.estimate(signs))

    def explain_doubt(self, confidence: Confidence) -> str:
        """Explain why calls are in doubt; "" where they aren't, or nobody knows."""
        likely, unwanted = confidence.likely, confidence.unwanted
        if likely is not None and likely < self.least:
            return f"its tool call is right with a probability of {likely:.0%}"
        if self.least and unwanted is not None and unwanted >= UNWANTED_MIN:
            return f"no tool was wanted with a probability of {unwanted:.0%}"
        return ""
