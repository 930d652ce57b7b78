"""Agents that only think."""

from __future__ import annotations

import pytest

from reliability.loops import LoopConfig, Stage
from tests.evals.step_cases import StepCase
from tests.support.conversation import USER, acted, ask, loop_at, quiet, stages

CONFIG = LoopConfig()
POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold
THOUGHT = "I should look at the part %n of it before I go on."


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("think", "ok"),
        ("think", "Your thought has been logged."),
        ("think", ""),
        ("sequentialthinking", '{"thoughtNumber": %a, "thoughtHistoryLength": %n}'),
        ("update_plan", "Plan updated"),
    ],
)
def test_an_agent_that_only_thinks_is_ended(tool: str, result: str) -> None:
    """Law: thoughts alone, however they differ, are nudged when a poll is, and broken when a poll is, where what they
    are answered says nothing new."""
    case = StepCase(tool, f'{{"thought": "{THOUGHT} %a", "thoughtNumber": %a}}', result)
    found = stages(case.build(POLL_BREAK, "Please find out what is wrong."))
    assert found.index(Stage.WARN) == POLL_NUDGE - 1
    assert found.index(Stage.BREAK) == POLL_BREAK - 1


def test_thoughts_that_lead_on_are_no_loop() -> None:
    """Law: thoughts whose results say something new, and thoughts before another call, are free."""
    history = StepCase("think", '{"thought": "%a"}', "ok").build(POLL_BREAK, "Please find out what is wrong.")
    assert loop_at(history, ask("read_file", {"path": "a.py"})) is None
    words = ("doors", "roofs", "walls", "floors", "cellars", "gardens", "fences", "lamps", "pipes", "wires", "stairs")
    results = [f"The reviewer says: look at the {word}" for word in words]
    assert quiet([USER, *[m for result in results for m in acted("think", {"thought": result[-5:] + "?"}, result)]])
