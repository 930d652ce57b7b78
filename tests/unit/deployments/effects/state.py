"""The effects of the keys that the state actor decides by, and of those that bound what it keeps."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import AppConfig
from deployments.graph.replica import make_tier
from deployments.reports.incidents import incidents_of
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.judge import advise
from deployments.request.policy import build_expected, hold_of, state_limits
from deployments.state.actor import SessionState
from deployments.state.client import folder_of
from deployments.state.journal import Journal
from deployments.state.records import KeptResponse, Query, ReportItem, StateStep, TurnItem
from reliability.admission import admit as reducer
from reliability.admission.admit import AdmissionState, Grant, RejectedBy, Rejection
from reliability.admission.request import AdmissionRequest
from reliability.answer.judgement import expect
from reliability.loops import JudgeConfig, Turn
from reliability.tools import ToolBox, build_toolbox
from reliability.types import Hold, Usage, Verdict
from tests.support.small_config import REQUEST, config_of, run

NS_PER_S = 1_000_000_000
START_NS = 10**18
ASK = AdmissionRequest(tier="fast", key="", session="s", prompt_tokens=10, output_tokens=90)


class Desk:
    """The reducer under a configuration, with a clock that is set by hand."""

    def __init__(self, config: AppConfig) -> None:
        self.limits = state_limits(config, config.state, {})
        self.state = AdmissionState()
        self.now_ns = START_NS

    def ask(self, **changes: Any) -> Grant | Rejection:
        self.state, answer = reducer.admit(self.state, self.limits.admission, replace(ASK, **changes), self.now_ns)
        return answer

    def end(self, grant: Grant | Rejection, verdict: Verdict, retry_after_s: float = 0.0) -> None:
        assert isinstance(grant, Grant)
        wait_ns = int(retry_after_s * NS_PER_S)
        self.state, _ = reducer.settle(
            self.state, self.limits.admission, grant.id, verdict, Usage(), self.now_ns, wait_ns
        )

    def fail(self, times: int, retry_after_s: float = 0.0) -> None:
        for _ in range(times):
            self.end(self.ask(), Verdict.FAILURE, retry_after_s)

    def opens_after(self) -> int:
        """How many failures in a row it takes."""
        for count in range(1, 1000):
            self.fail(1)
            if isinstance(self.ask(), Rejection):
                return count
        return 0

    def open_s(self) -> float:
        rejection = self.ask()
        assert isinstance(rejection, Rejection)
        assert rejection.retry_after_s is not None
        return rejection.retry_after_s

    def probe(self) -> None:
        """Wait until a probe may run, and let it fail."""
        self.now_ns += int(self.open_s() * NS_PER_S) + 1
        self.fail(1)


def desk(path: str = "", value: Any = None) -> Desk:
    return Desk(config_of(path, value))


def hard(**changes: Any) -> dict[str, Any]:
    return {"policy": "hard_stop", **changes}


def budget_limit(key: str) -> Callable[[], None]:
    def check() -> None:
        few = desk("reliability.token_budget", hard(**{key: 150}))
        assert isinstance(few.ask(), Grant)
        assert isinstance(few.ask(), Rejection)

    return check


def budget_enabled() -> None:
    off = desk("reliability.token_budget", hard(per_session=150, enabled=False))
    assert all(isinstance(off.ask(), Grant) for _ in range(3))


def budget_policy() -> None:
    warns = desk("reliability.token_budget", {"per_session": 150, "policy": "warn_and_continue"})
    cheap = desk("reliability.token_budget", {"per_session": 150, "policy": "escalate"})
    assert [isinstance(warns.ask(), Grant) for _ in range(2)] == [True, True]
    assert [isinstance(cheap.ask(), Grant) for _ in range(2)] == [True, False]
    assert isinstance(cheap.ask(cheap=True), Grant)


def failures_max() -> None:
    assert desk("reliability.tier_health.failures_max", 2).opens_after() == 2
    assert desk().opens_after() == 5


def failure_rate() -> None:
    """rate_percent, rate_calls_min and rate_window_s: one failure and one success in turn."""

    def opened_at(spread_s: float = 0.0, **keys: Any) -> int:
        alternating = desk("reliability.tier_health", {"failures_max": None} | keys)
        for count in range(1, 100):
            alternating.now_ns += int(spread_s * NS_PER_S)
            grant = alternating.ask()
            if isinstance(grant, Rejection):
                return count - 1
            alternating.end(grant, Verdict.FAILURE if count % 2 else Verdict.SUCCESS)
        return 0

    assert opened_at(rate_percent=50, rate_calls_min=8) == 9
    assert opened_at(rate_percent=50, rate_calls_min=20) == 21
    assert opened_at(rate_percent=90, rate_calls_min=8) == 0
    assert opened_at(rate_percent=50, rate_calls_min=8, spread_s=10, rate_window_s=30) == 0


def open_times() -> None:
    """open_s and open_max_s: doubling from the one to the other."""
    alone = desk("reliability.tier_health", {"failures_max": 1, "open_s": 20})
    alone.fail(1)
    assert alone.open_s() == 20  # over the default of open_max_s, which nothing has set
    short = desk("reliability.tier_health", {"failures_max": 1, "open_s": 2, "open_max_s": 3})
    short.fail(1)
    assert short.open_s() == 2
    short.probe()
    assert short.open_s() == 3


def retry_after_max() -> None:
    heeds, ignores = desk(), desk("reliability.tier_health.retry_after_max_s", 0)
    heeds.fail(1, retry_after_s=60)
    ignores.fail(1, retry_after_s=60)
    assert heeds.open_s() == 60
    assert isinstance(ignores.ask(), Grant)


def retry_budget() -> None:
    """share_percent, floor and window_s."""

    def extras(**keys: Any) -> int:
        some = desk("reliability.retry_budget", keys)
        for _ in range(20):
            some.ask()
        some.now_ns += 10 * NS_PER_S
        return sum(isinstance(some.ask(extra=True), Grant) for _ in range(40))

    assert extras(share_percent=0, floor=3) == 3
    assert extras(share_percent=100, floor=0) == 20
    assert extras(share_percent=100, floor=0, window_s=5) == 0
    rejection = desk("reliability.retry_budget", {"share_percent": 0, "floor": 0}).ask(extra=True)
    assert isinstance(rejection, Rejection)
    assert rejection.rejected_by is RejectedBy.RETRY_BUDGET


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


def judged(config: JudgeConfig, calls: int, *, failing: bool = False) -> Any:
    """What the judge says of so many calls of one tool in a row."""
    messages: list[Any] = list(REQUEST.messages)
    for number in range(calls):
        call = {"name": "f", "arguments": f'{{"a": "{number}"}}'}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}]},
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": f'{{"error": "no {number}"}}' if failing else f"result {number}",
            },
        ]
    whole = config_of()
    request = replace(REQUEST, messages=tuple(messages))
    one = run(whole, request=REQUEST)
    one = replace(one, request=request, expected=build_expected(whole, request, build_toolbox(())), attempts=[])

    async def go() -> Any:
        cloud = whole.reliability.escalation.cloud_fallback
        tiers = {name: make_tier(name, whole.tiers[name], cloud) for name in ("fast", "standard")}
        timeouts = dict.fromkeys(tiers, whole.server.timeouts)
        ports = Ports(tiers=tiers, timeouts=timeouts, clock=MonotonicClock(), jitter=lambda: 0.0)
        one.deadline_ns = ports.clock.now_ns() + 30 * NS_PER_S
        return await advise(one, ports, config)

    return asyncio.run(go())


def judge_enabled() -> None:
    assert judged(judge(enabled=False), 5) is None
    assert judged(judge(), 5) is not None


def judge_thresholds() -> None:
    assert judged(judge(consecutive_threshold=3), 3).case.count == 3
    assert judged(judge(), 3) is None
    assert judged(judge(consecutive_threshold=0, failure_threshold=2), 2, failing=True).case.trouble == "failures"
    assert judged(judge(consecutive_threshold=0), 2, failing=True) is None


def judge_tier() -> None:
    assert judged(judge(judge_tier="standard"), 5).by == "standard"
    assert judged(judge(), 5).by is None


def judge_timeout() -> None:
    asked = judged(judge(judge_tier="standard", timeout_s=7.0), 5)
    assert asked.run.request.timeout_s == 7.0


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
    """reports_max, sessions_max, session_ttl_s, incidents_max, incidents_days and journal_bytes_max, by trimming."""
    keys: dict[str, Any] = {"reports_max": 2, "sessions_max": 2, "incidents_max": 3}
    left = kept_after(**keys)
    assert left == {"reports": 2, "sessions": 2, "incidents": 3}
    assert kept_after() == {"reports": 8, "sessions": 8, "incidents": 8}
    assert kept_after(later_s=100.0, session_ttl_s=50)["sessions"] == 0
    assert kept_after(later_s=2 * 86_400.0, incidents_days=1)["incidents"] == 0
    bulky = kept_after(text="x" * 200_000, journal_bytes_max=1_048_576)
    assert bulky["reports"] < 8


def kept_after(later_s: float = 0.0, text: str = "", **keys: Any) -> dict[str, int]:
    config = config_of("state", keys)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "j.sqlite", "me", config.state)
        journal.begin()
        now_s = time.time()
        with journal.step():
            for number in range(8):
                report = {"request_id": f"r{number}", "session": f"s{number}", "attempts": [], "text": text}
                journal.write_report("", report, now_s)
                journal.write_incident({"at": now_s, "kind": "flaw", "text": text})
        journal.trim(now_s + later_s)
        counts = {
            table: journal._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("reports", "sessions", "incidents")
        }
        journal.close()
        return counts


def response_bounds() -> None:
    """responses_bytes_max and responses_ttl_s, by writing and trimming."""
    assert responses_after() == 8
    assert responses_after(responses_bytes_max=2_500) == 2
    assert responses_after(responses_bytes_max=0) == 0
    assert responses_after(later_s=100.0, responses_ttl_s=50) == 0


def responses_after(later_s: float = 0.0, **keys: Any) -> int:
    """Keep eight responses of 1,000 bytes, wait, and count what is there."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "j.sqlite", "me", config_of("state", keys).state)
        journal.begin()
        with journal.step():
            for number in range(8):
                journal.shelf.write(KeptResponse("", f"r{number}", "s", None, float(number), 9, b"x" * 1_000))
        journal.trim(8.0 + later_s)
        count = sum(journal.shelf.find("", f"r{number}") is not None for number in range(8))
        journal.close()
        return count


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
