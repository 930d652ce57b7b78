"""One fixture worked on by one strategy: a throw-away folder, the work, the score, and the result as JSON."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from deployments.evaluate.tasks.fixture import write_files
from deployments.evaluate.tasks.fixtures import make_fixture
from deployments.evaluate.tasks.strategy import Strategy
from deployments.evaluate.tasks.task_score import score
from deployments.evaluate.tasks.work_folder import WorkFolder

__all__ = ["run_task"]


def run_task(strategy: Strategy, name: str, *, seed: int, until_s: float) -> dict[str, Any] | None:
    """Run and score; None where the time didn't suffice."""
    fixture, began_s = make_fixture(name, seed), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="evaluate-") as place:
        write_files(fixture, Path(place))
        folder = WorkFolder(Path(place))
        outcome = strategy.work(fixture, folder, seed=seed, until_s=until_s)
        if outcome is None:
            return None
        seconds = time.monotonic() - began_s
        return {
            "checks": score(fixture, outcome, folder),
            "ended": outcome.ended,
            "diagnosis": outcome.diagnosis,
            "seconds": round(seconds, 3),
            "tokens": sum(step["tokens"] for step in outcome.steps),
            "steps": [dict(step) for step in outcome.steps],
            "calls": list(outcome.calls),
            "refused_paths": folder.refusals,
            "errors": list(outcome.errors),
        }
