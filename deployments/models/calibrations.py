"""The calibrations of the models that were measured: how likely a call of such a model is right.

`calibrations.json` has them by the sha256 of the model's weights; docs/decisions/092-confidence.md has how they were
fitted, and how well they tell on cases that they have not seen.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from reliability.confidence import ModelCalibration
from reliability.types import TierStatus

FILE = Path(__file__).with_name("calibrations.json")


def find_calibration(status: TierStatus, fitted: Mapping[str, ModelCalibration]) -> ModelCalibration | None:
    """Find the calibration of what stands behind a tier, first among those of the configuration; None where it was not
    measured, or an adapter changes it."""
    if status.adapter is not None or status.sha256 is None:
        return None
    return fitted.get(status.sha256) or _read_all().get(status.sha256)


@cache
def _read_all() -> dict[str, ModelCalibration]:
    known = json.loads(FILE.read_bytes())
    return {digest: ModelCalibration.model_validate(one) for digest, one in known.items()}
