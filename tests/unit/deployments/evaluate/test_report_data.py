"""The report as data: JSON, whole, and honest about what is missing."""

import json

from deployments.config.app_config import patch
from deployments.evaluate.report_data import FORMAT
from tests.support.evaluation_cells import CONFIG, FACTS, hesitant_cells, make_report


def test_a_report_is_json_and_the_same_again():
    """What is written can be read by `--compare`."""
    report = make_report()

    assert json.loads(json.dumps(report)) == report
    assert report["format"] == FORMAT
    assert make_report() == report


def test_outcomes_and_what_was_left_out():
    """Outcomes are those of calls and tasks, good or not, by the cell's key; speeds have none. What was left out is
    counted by phase: planned and run."""
    report = make_report()
    outcomes, left = report["outcomes"], {one["phase"]: one for one in report["left_out"]}

    assert outcomes["layers/call/large/0"] is True
    assert outcomes["layers/task/fast/buggy_calc"] is False
    assert not any("length" in key for key in outcomes)
    assert left["tool calls, each tier alone"] == {"phase": "tool calls, each tier alone", "planned": 16, "run": 16}
    assert left["tasks, unchecked"]["run"] == 0


def test_the_checklist_ticks_only_what_is_known():
    """Nothing measured: nothing ticked but what needs no measurement."""
    full = {one["item"]: one["known"] for one in make_report()["checklist"]}
    empty = {one["item"]: one["known"] for one in make_report({}, {"models": FACTS["models"]})["checklist"]}

    assert full["time to the first token"]
    assert full["throughput under concurrency"]
    assert not full["peak memory"]  # of `large` nothing is known
    assert [item for item, known in empty.items() if known] == ["provenance", "update and rollback", "fallback"]


def test_weights_without_a_digest_are_not_known():
    """Those of a server by its URL: what it has loaded, nobody has said. A hosted tier has none here."""

    def find_provenance(**models: dict[str, str]) -> tuple[bool, str]:
        item = next(one for one in make_report({}, {"models": models})["checklist"] if one["item"] == "provenance")
        return item["known"], item["words"]

    assert find_provenance(served={"id": "served"}) == (False, "digest of the weights known for none")
    known = FACTS["models"]["fast"]
    assert find_provenance(fast=known, premium={"kind": "hosted"}) == (True, "digest of the weights known for fast")


def test_a_calibration_that_pays_is_proposed_under_the_default_configuration():
    """Law: the proposal of a chain whose calls are held has the calibrations that tell them, with the models' digests,
    also where `confidence.min` was that before; the server takes it."""
    report = make_report(hesitant_cells(144))
    told = report["cascade"]["proposal"]["reliability"]["escalation"]["confidence"]

    assert told["calibrations"] == {FACTS["models"]["fast"]["sha256"]: report["confidence"]["fast"]["calibration"]}
    assert patch(CONFIG, report["cascade"]["proposal"]).reliability.escalation.confidence.min == told["min"] > 0
    assert "by calibrations of this report" in report["cascade"]["chosen"]["words"]
