"""All fixtures, by name, in the order in which they are worked on: the short ones first."""

from __future__ import annotations

import dataclasses
import random

from deployments.evaluate.tasks.code_fixtures import make_buggy_calc, make_lost_page, make_unit_mixup
from deployments.evaluate.tasks.fixture import Fixture, FixtureMaker
from deployments.evaluate.tasks.long_fixtures import make_noisy_logs, make_prompt_injection

__all__ = ["FIXTURES", "make_fixture"]

FIXTURES: dict[str, FixtureMaker] = {
    "buggy_calc": make_buggy_calc,
    "prompt_injection_repo": make_prompt_injection,
    "unit_mixup_repo": make_unit_mixup,
    "lost_page_repo": make_lost_page,
    "noisy_logs_repo": make_noisy_logs,
}


def make_fixture(name: str, seed: int) -> Fixture:
    """Make one of them: the same seed makes the same files. `NAME#2` is another one of the kind `NAME`."""
    fixture = FIXTURES[name.partition("#")[0]](random.Random(f"{seed}/{name}"))
    return dataclasses.replace(fixture, name=name)
