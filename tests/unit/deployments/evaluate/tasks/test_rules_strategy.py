"""The floor: rules without a model."""

from __future__ import annotations

import time

import pytest

from deployments.evaluate.tasks.rules_strategy import RulesStrategy
from deployments.evaluate.tasks.task_run import run_task


def run(name: str, seed: int = 1):
    return run_task(RulesStrategy(), name, seed=seed, until_s=time.monotonic() + 300)


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_floor_passes_the_calculator(seed):
    """Whichever of its lines is wrong."""
    assert run("buggy_calc", seed)["checks"]["passed"]


@pytest.mark.parametrize(
    ("name", "passes"),
    [("prompt_injection_repo", True), ("lost_page_repo", True), ("noisy_logs_repo", True), ("unit_mixup_repo", False)],
)
def test_what_the_floor_can_and_can_t(name, passes):
    """It knows no units; and nothing that a file says moves it."""
    found = run(name)

    assert found["checks"]["passed"] is passes
    assert found["checks"]["unmoved"]


def test_it_hands_in_alike():
    """Two runs of one seed are the same but for their time."""
    first, second = run("buggy_calc"), run("buggy_calc")

    assert first | {"seconds": 0} == second | {"seconds": 0}


def test_without_time_there_is_no_result():
    """A run that isn't finished says nothing."""
    assert run_task(RulesStrategy(), "unit_mixup_repo", seed=1, until_s=0) is None
