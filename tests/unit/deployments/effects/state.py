"""The effects of the keys that the state actor decides by, and of those that bound what it keeps."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import AppConfig
from deployments.reports.incidents import incidents_of
from deployments.request.interfaces import MonotonicClock
from deployments.request.judge import Advice, advise
from deployments.request.policy import hold_of, state_limits
from deployments.state.actor import SessionState
from deployments.state.client import folder_of
from deployments.state.records import Query, ReportItem, StateStep, TurnItem
from reliability.admission.admit import AdmissionConfig
from reliability.answer.judgement import expect
from reliability.loops import JudgeConfig, SeenCall, StuckCase, Turn, find_case
from reliability.tools import ToolBox
from reliability.types import Hold
from tests.support.driving import make_ports, tell_in_turn
from tests.support.small_config import REQUEST, config_of, run
from tests.unit.deployments.request.test_judge import make_stuck_run
from tests.unit.deployments.state.test_journal_bounds import (
    test_ages_are_bounded,
    test_bytes_are_bounded,
    test_numbers_are_bounded,
)
from tests.unit.deployments.state.test_response_shelf import (
    test_what_is_old_is_trimmed,
    test_what_shall_not_be_kept_never_reaches_the_disk,
)

NS_PER_S = 1_000_000_000


def reaches(path: str, value: Any, read: Callable[[AppConfig], Any], expected: Any) -> Callable[[], None]:
    """The key's value is that of the setting by which the core decides, or by which the journal is trimmed; what the
    setting does is proven in the tests of those."""

    def check() -> None:
        assert read(config_of(path, value)) == expected
        assert read(config_of()) != expected

    return check


def admission(key: str, value: Any, read: Callable[[AdmissionConfig], Any], expected: Any) -> Callable[[], None]:
    return reaches(
        f"reliability.{key}", value, lambda config: read(state_limits(config, config.state, {}).admission), expected
    )


ROWS: list[tuple[str, Any, Callable[[AdmissionConfig], Any], Any]] = [
    ("token_budget.enabled", False, lambda one: one.budget.session.tokens_max, None),
    ("token_budget.per_session", 150, lambda one: one.budget.session.tokens_max, 150),
    ("token_budget.per_hour", 150, lambda one: one.budget.hour.tokens_max, 150),
    ("token_budget.policy", "escalate", lambda one: {one.budget.session.policy, one.budget.hour.policy}, {"escalate"}),
    ("tier_health.failures_max", 2, lambda one: one.breaker.failures_max, 2),
    ("tier_health.rate_percent", 33, lambda one: one.breaker.rate_percent, 33),
    ("tier_health.rate_calls_min", 8, lambda one: one.breaker.rate_calls_min, 8),
    ("tier_health.rate_window_s", 31, lambda one: one.breaker.rate_window_ns, 31 * NS_PER_S),
    ("tier_health.open_s", 2, lambda one: one.breaker.open_ns, 2 * NS_PER_S),
    ("tier_health.open_max_s", 3_000, lambda one: one.breaker.open_max_ns, 3_000 * NS_PER_S),
    ("tier_health.retry_after_max_s", 0, lambda one: one.breaker.retry_after_max_ns, 0),
    ("retry_budget.share_percent", 0, lambda one: one.retries.share_percent, 0),
    ("retry_budget.floor", 3, lambda one: one.retries.floor, 3),
    ("retry_budget.window_s", 5, lambda one: one.retries.window_ns, 5 * NS_PER_S),
]
ADMISSION: dict[str, Callable[[], None]] = {row[0]: admission(*row) for row in ROWS}


def window_size() -> None:
    """The session window, for clients that send no history: as many answers as it holds."""
    for size in (2, 5):
        config = config_of("reliability.loop_detection.window_size", size)
        limits = state_limits(config, config.state, {})
        with tempfile.TemporaryDirectory() as folder:
            actor = actor_in(folder, config)
            actor.configure(limits)
            for number in range(8):
                said = TurnItem(key="", session="s", turn=Turn(text=f"answer {number}"), request=f"r{number}")
                actor.step(StateStep(client="c", number=number + 1, config=limits.digest, items=(said,)))
            window = actor._windows.find("", "s")
            assert len(window.answers) == size


def judge(**keys: Any) -> JudgeConfig:
    return config_of("reliability.circuit_breaker", {"enabled": True, **keys}).reliability.circuit_breaker


def judged(config: JudgeConfig, calls: int, *, failing: bool = False) -> StuckCase | None:
    """The case that so many calls of one tool in a row are."""
    results = [f'{{"error": "no {number}"}}' if failing else f"result {number}" for number in range(calls)]
    turns = [Turn((SeenCall("f", f'{{"a": "{number}"}}'),), (result,)) for number, result in enumerate(results)]
    return find_case(tuple(turns), config)


def advised(config: JudgeConfig) -> Advice | None:
    """What comes of a run that is stuck."""
    tiers, _ = tell_in_turn(["standard"], [[{"text": "Try another tool."}]])
    run, clock = make_stuck_run(), MonotonicClock()
    run.deadline_ns = clock.now_ns() + 30 * NS_PER_S
    return asyncio.run(advise(run, make_ports(tiers, clock), config))


def judge_enabled() -> None:
    assert advised(judge(enabled=False)) is None
    assert advised(judge()) is not None


def judge_thresholds() -> None:
    assert judged(judge(consecutive_threshold=3), 3).count == 3
    assert judged(judge(), 3) is None
    assert judged(judge(consecutive_threshold=0, failure_threshold=2), 2, failing=True).trouble == "failures"
    assert judged(judge(consecutive_threshold=0), 2, failing=True) is None


def judge_tier() -> None:
    assert advised(judge(judge_tier="standard")).by == "standard"
    assert advised(judge()).by is None


def judge_timeout() -> None:
    assert advised(judge(judge_tier="standard", timeout_s=7.0)).run.request.timeout_s == 7.0


def hold() -> None:
    expected = expect((), ToolBox(), id_seed="r")
    assert hold_of(config_of("reliability.streaming.hold", "all"), expected, stream=True) is Hold.ALL
    assert hold_of(config_of(), expected, stream=True) is Hold.TOOL_CALLS
    assert hold_of(config_of(), expected, stream=False) is Hold.ALL


def keep_text() -> None:
    """An answer that says something wrong: its words are in the incident only where they may be."""
    broken = config_of("tiers.fast.script", [{"answer": [{"tool_call": {"name": "f", "arguments": '{"a": '}}]}])
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    one = run(broken, request=replace(REQUEST, tools=(tool,)))
    without, with_text = (incidents_of(one, at_s=0.0, statuses={}, keep_text=keep) for keep in (False, True))
    assert len(str(with_text)) > len(str(without))


# -- what is kept ----------------------------------------------------------------------------------------------


def actor_in(folder: str, config: AppConfig) -> SessionState:
    return SessionState(folder=folder, bounds=config.state, idle_exit_s=None)


def journal_bounds() -> None:
    """reports_max, sessions_max, session_ttl_s, incidents_max, incidents_days and journal_bytes_max, by trimming: the
    journal's own tests are the proof."""
    for proof in (test_numbers_are_bounded, test_ages_are_bounded, test_bytes_are_bounded):
        with tempfile.TemporaryDirectory() as folder:
            proof(Path(folder))


def response_bounds() -> None:
    """responses_bytes_max and responses_ttl_s: the shelf's own tests are the proof."""
    for proof in (test_what_shall_not_be_kept_never_reaches_the_disk, test_what_is_old_is_trimmed):
        with tempfile.TemporaryDirectory() as folder:
            proof(Path(folder))


def state_path() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = config_of("state.path", f"{folder}/here")
        actor = actor_in(str(folder_of("app", config.state)), config)
        limits = state_limits(config, config.state, {})
        actor.configure(limits)
        done = ReportItem(key="", session="s", report={"request_id": "r", "session": "s", "attempts": []})
        actor.step(StateStep(client="c", number=1, config=limits.digest, items=(done,)))
        assert (Path(folder) / "here" / "ledger.sqlite").exists()
        assert actor.report("", "r") is not None
        assert actor.browse(Query()) == []
