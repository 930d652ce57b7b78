"""Which calibration a tier's model has."""

import json

from deployments.models.calibrations import FILE, find_calibration
from reliability.confidence import Calibration, ModelCalibration
from reliability.types import TierState, TierStatus

OWN = ModelCalibration(right=Calibration(base=1.0, weights={"unsure": -0.5}))


def status_of(sha256: str | None, adapter: str | None = None) -> TierStatus:
    return TierStatus(name="t", kind="mlx", state=TierState.READY, sha256=sha256, adapter=adapter)


def test_a_calibration_is_that_of_the_weights():
    """Law: what was fitted here comes first; other weights, weights under an adapter and unknown ones have none."""
    shipped = next(iter(json.loads(FILE.read_bytes())))
    assert find_calibration(status_of(shipped), {}) is not None
    own = find_calibration(status_of(shipped), {shipped: OWN})
    assert own.right.estimate({"unsure": 2.0}) == 0.5
    assert own.unwanted is None
    assert find_calibration(status_of("ab" * 32), {}) is None
    assert find_calibration(status_of(None), {"": OWN}) is None
    assert find_calibration(status_of(shipped, adapter="a"), {shipped: OWN}) is None


def test_each_calibration_of_the_package_is_read_and_tells():
    """Law: signs of a call that hesitates and makes things up never make it likelier."""
    for digest in json.loads(FILE.read_bytes()):
        found = find_calibration(status_of(digest), {})
        bad = {"most_unsure": 3.0, "unsure": 8.0, "made_up": 3.0, "unused_numbers": 2.0}
        assert found.right.estimate(bad) <= found.right.estimate(dict.fromkeys(bad, 0.0))
