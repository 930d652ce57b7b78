"""Recorded tool-call cases (BFCL), and whether an answer to one is valid and right.

*Valid*: at least one call, and all pass the checks of `reliability.tools` as they came (name, JSON, schema,
plausibility). *Right*: name and every argument are among the acceptable ones of the case, compared as BFCL does.

Cases: the categories `simple_python` and `multiple`, half of each, drawn with a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.config.app_config import RouterConfig
from deployments.config.tier_config import Timeouts
from deployments.evaluate.calls.call_run import are_right
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.policy import build_expected
from deployments.request.run_record import Run
from reliability.escalation.decisions import Limits
from reliability.tools import RawCall, ToolBox, build_toolbox, check_calls, id_source
from reliability.types import CallDelta, ChatRequest, Event, Hold
from tests.evals.tool_cases import records

SEED = 20261122
TOKENS_MAX = 256
CASE_S = 3600.0

Case = Mapping[str, Any]


def sample_cases(count: int, data: Path | None) -> list[Case]:
    """Draw the cases: half with one tool, half with several; the stand-in set where there is no recorded data."""
    cases = [case for case in records("bfcl_cases", data) if case["gt_valid"] and case["ground_truth"]]
    dice = random.Random(SEED)
    out: list[Case] = []
    for category in ("simple_python", "multiple"):
        some = [case for case in cases if case["category"] == category]
        out += dice.sample(some, min(count // 2, len(some)))
    return out or cases[:count]


def build_request(case: Case, **fields: Any) -> ChatRequest:
    """Build a greedy request of the case."""
    usual: dict[str, Any] = {"max_tokens": TOKENS_MAX, "timeout_s": CASE_S, "temperature": 0.0, "session_id": "bench"}
    messages, tools = tuple(case["messages"]), tuple(case["tools"])
    return ChatRequest(request_id=case["id"], messages=messages, tools=tools, **(usual | fields))


def build_case_toolbox(case: Case) -> ToolBox:
    """Compile the tools of a case."""
    box = build_toolbox(case["tools"])
    assert isinstance(box, ToolBox)
    return box


async def collect_events(tier: Any, request: ChatRequest) -> list[Event]:
    """Collect the events of one complete answer."""
    async with aclosing(tier.stream(request)) as stream:
        return [event async for chunk in stream for event in chunk]


async def drive_request(
    request: ChatRequest, tiers: Mapping[str, Any], limits: Limits, deferring: frozenset[str] = frozenset()
) -> Run:
    """Drive a request through the server's own loop, with these tiers in their order."""
    box, clock = build_toolbox([dict(tool) for tool in request.tools]), MonotonicClock()
    assert isinstance(box, ToolBox)
    run = Run(
        request=request,
        expected=build_expected(RouterConfig(), request, box),
        chain=tuple(tiers),
        limits=limits,
        deadline_ns=clock.now_ns() + int(CASE_S * 1e9),
        hold=Hold.ALL,
    )
    patience = dict.fromkeys(tiers, Timeouts(connect_s=CASE_S, first_token_s=CASE_S, idle_s=CASE_S, total_s=CASE_S))
    ports = Ports(tiers=tiers, timeouts=patience, clock=clock, jitter=lambda: 0.0, deferring=deferring)
    async for _ in drive(run, ports):
        pass
    return run


def find_valid_calls(case: Case, events: Sequence[Event]) -> tuple[list[tuple[str, str]], str]:
    """Return the calls of an answer if they all are valid as they came, else what is wrong."""
    calls = read_raw_calls(events)
    checked = check_calls(calls, build_case_toolbox(case), new_id=id_source(case["id"]))
    if calls and checked.ok and not checked.repairs:
        return [(call.name, call.arguments) for call in checked.calls], ""
    words = "; ".join(f"{v.path} {v.message}" for v in checked.violations) or f"no call, {events[-1]}"
    return [], f"{words} in {[call.arguments for call in calls]}"


def read_raw_calls(events: Sequence[Event]) -> list[RawCall]:
    """Return the calls that came as calls."""
    deltas = [event for event in events if isinstance(event, CallDelta)]
    return [RawCall(name=d.name or "", arguments=d.arguments, id=d.id) for d in deltas]


def is_right(calls: Sequence[tuple[str, str]], case: Case) -> bool:
    """Tell whether the calls are the acceptable ones, in any order."""
    return are_right(calls, case.get("acceptable") or _accept_exactly(case["ground_truth"]))


def _accept_exactly(truth: Sequence[Case]) -> list[dict[str, Any]]:
    return [{"name": c["name"], "arguments": {k: [v] for k, v in c["arguments"].items()}} for c in truth]


@dataclass
class Score:
    """Valid and right answers of one layer."""

    name: str
    done: int = 0
    valid: int = 0
    right: int = 0
    attempts: int = 0
    misses: list[str] = field(default_factory=list)

    def add(self, case: Case, calls: Sequence[tuple[str, str]], attempts: int, why: str = "") -> None:
        self.done += 1
        self.valid += bool(calls)
        self.right += bool(calls) and is_right(calls, case)
        self.attempts += attempts
        if not calls:
            self.misses.append(f"{case['id']}: {why}")

    def row(self) -> str:
        valid, right = 100 * self.valid / self.done, 100 * self.right / self.done
        return f"| {self.name} | {valid:.0f} % | {right:.0f} % | {self.attempts / self.done:.2f} |"
