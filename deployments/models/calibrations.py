"""The calibrations of the models that were measured: how likely a call of such a model is right.

`calibrations.json` has them by the sha256 of the model's weights; docs/decisions/092-confidence.md has how they were
fitted, and how well they tell on cases that they have not seen.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from reliability.confidence import Calibration, ModelCalibration
from reliability.config import CalibrationConfig, SignWeights
from reliability.types import TierStatus

FILE = Path(__file__).with_name("calibrations.json")


def find_calibration(status: TierStatus, fitted: Mapping[str, CalibrationConfig]) -> ModelCalibration | None:
    """Find the calibration of what stands behind a tier, first among those of the configuration; None where it was not
    measured, or an adapter changes it."""
    if status.adapter is not None or status.sha256 is None:
        return None
    found = fitted.get(status.sha256) or _read_all().get(status.sha256)
    if found is None:
        return None
    return ModelCalibration(_build(found.right), None if found.unwanted is None else _build(found.unwanted))


def _build(weights: SignWeights) -> Calibration:
    return Calibration(weights.base, weights.weights, weights.share)


@cache
def _read_all() -> dict[str, CalibrationConfig]:
    known = json.loads(FILE.read_bytes())
    return {digest: CalibrationConfig.model_validate(one) for digest, one in known.items()}
