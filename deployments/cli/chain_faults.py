"""Force a fault through every edge of the chain, to find a chain that is configured and doesn't work.

The configured chain, limits and `drive` run with scripted tiers: the first breaks, and the next must answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from deployments.config import AppConfig
from deployments.config_tiers import Timeouts
from deployments.ports import Ports, Tier
from deployments.request.drive import drive
from deployments.request.policy import build_expected, limits_of
from deployments.request.run_record import Run
from deployments.telemetry import MonotonicClock
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.tools import ToolBox
from reliability.types import ChatRequest

__all__ = ["Finding", "check_edges"]

# Long enough for a healthy scripted tier on a busy machine, short enough for a person who waits.
HANG_S = 1.0
FAULTS: dict[str, dict[str, Any]] = {
    "a 500": {"status": 500},
    "a hang": {"silence": True},
    "a cut connection": {"cut": True},
    "no model": {"unavailable": "forced by doctor"},
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `level`: ok, warn (works, but less than configured) or fail."""

    level: str
    what: str
    words: str


def check_edges(config: AppConfig, dead: Mapping[str, str] = MappingProxyType({})) -> Iterator[Finding]:
    """Force each fault through each edge of the chain. An edge that leads to a tier in `dead` is a warning."""
    escalation = config.reliability.escalation
    if not escalation.enabled:
        yield Finding("warn", "chain", "escalation.enabled is false: no tier stands in for another")
        return
    for head, after in pairwise(escalation.chain):
        findings = [asyncio.run(_check_edge(config, head, after, words, fault)) for words, fault in FAULTS.items()]
        if after in dead and all(finding.level == "ok" for finding in findings):
            yield Finding("warn", findings[0].what, f"works, but leads nowhere today: {after} is {dead[after]}")
        else:
            yield from findings


async def _check_edge(config: AppConfig, head: str, after: str, words: str, fault: Mapping[str, Any]) -> Finding:
    tiers: dict[str, Tier] = {
        head: ScriptedTier(name=head, script=[{"answer": [dict(fault)]}]),
        after: ScriptedTier(name=after, script=[{"answer": [{"text": f"this is {after}"}]}]),
    }
    run = _make_probe(config, head, after)
    timeouts = Timeouts(connect_s=HANG_S, first_token_s=HANG_S, idle_s=HANG_S, total_s=HANG_S)
    clock = MonotonicClock()
    run.deadline_ns = clock.now_ns() + int(60e9)
    ports = Ports(tiers=tiers, timeouts=dict.fromkeys(tiers, timeouts), clock=clock, jitter=lambda: 0.0)
    async for _ in drive(run, ports):
        pass
    for tier in tiers.values():
        await tier.close()
    what = f"edge {head} -> {after}"
    if run.finish is not None and run.tier == after:
        return Finding("ok", what, f"{words} on {head}: {after} answers")
    why = run.refusal.message if run.refusal else "no answer"
    allowed = ", ".join(config.reliability.escalation.escalate_on) or "nothing"
    return Finding("fail", what, f"{words} on {head} ends the request ({why}); escalate_on: {allowed}")


def _make_probe(config: AppConfig, head: str, after: str) -> Run:
    request = ChatRequest(
        request_id=f"doctor-{os.getpid()}",
        session_id="doctor",
        messages=({"role": "user", "content": "Are you there?"},),
        max_tokens=16,
        timeout_s=60.0,
    )
    return Run(
        request=request,
        expected=build_expected(config, request, ToolBox()),
        chain=(head, after),
        limits=limits_of(config),
        deadline_ns=0,
    )
