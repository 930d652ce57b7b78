"""The effects of the keys of `evaluate`: what a tier is held against."""

from collections.abc import Callable
from typing import Any

from deployments.evaluate.figures.verdicts import judge_tiers
from tests.support.evaluation_cells import make_cells, make_report, task_cell
from tests.support.small_config import config_of

# Runs enough for a verdict.
MORE = ("unit_mixup_repo", "noisy_logs_repo", "prompt_injection_repo")
REPORT = make_report(make_cells(fast_right=24) | {f"layers/task/fast/{name}": task_cell(passed=False) for name in MORE})


def judge(key: str, value: Any) -> list[str]:
    """What each criterion comes to under the configured thresholds."""
    thresholds = config_of(f"evaluate.{key}", value).evaluate.model_dump()
    calls, tasks, speeds = REPORT["calls"], REPORT["tasks"], REPORT["speeds"]
    return [one["outcome"] for one in judge_tiers(["fast"], calls, tasks, speeds, thresholds, None)["fast"]["criteria"]]


def prove(key: str, one: Any, other: Any) -> Callable[[], None]:
    def proof() -> None:
        assert judge(key, one) != judge(key, other)

    return proof


EVALUATE: dict[str, Callable[[], None]] = {
    "tasks_passed_min": prove("tasks_passed_min", 0.0, 1.0),
    "calls_right_min": prove("calls_right_min", 0.5, 0.99),
    "first_token_s_max": prove("first_token_s_max", 10.0, 0.01),
    "tokens_s_min": prove("tokens_s_min", 0.0, 1000.0),
    "prompt_tokens": prove("prompt_tokens", 1024, 100_000),
}
