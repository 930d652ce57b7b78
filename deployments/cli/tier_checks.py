"""What `mlx-stack-serve doctor` tries of the tiers: a fault at every edge of the chain, and a hosted tier's prefill.

The edges: the configured chain, limits and `drive` run with scripted tiers; the first breaks, and the next must answer.
No request leaves this machine.

The prefill (`doctor --ask`): does an upstream continue a last message of the model's own? The request begins to count
from eleven, in words that no fresh answer begins with, so that the next number tells an upstream that continues from
one that begins anew. One request of `TOKENS` tokens for each hosted tier; it leaves the machine and may cost money.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, Timeouts
from deployments.graph.replica import make_tier
from deployments.interfaces import Ports, Tier
from deployments.request.drive import drive
from deployments.request.policy import build_expected, limits_of
from deployments.request.run_record import Run
from deployments.telemetry import MonotonicClock
from deployments.tiers.hosted.continuing import Continues
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.config import CloudFallback
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Failed, Fault, Text, TierState

__all__ = ["Finding", "check_edges", "check_prefill"]

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


TOKENS = 16
WAIT_S = 60.0
COUNT = "Count from one to twenty, in words, separated by commas."
BEGUN = "I begin where it gets interesting: eleven, twelve, thirteen"
_NEXT = re.compile(r"\W*(fourteen|14)\b", re.IGNORECASE)
_REFUSED = frozenset({400, 422})  # the statuses of a request that the upstream doesn't take as it is


def check_prefill(config: AppConfig, *, ask: bool) -> Iterator[Finding]:
    """Say of each hosted tier how it is asked for the rest of an answer; with `ask`, whether its upstream is fit for
    that."""
    cloud = config.reliability.escalation.cloud_fallback
    for name, tier in config.tiers.items():
        if isinstance(tier, HostedTierConfig):
            yield asyncio.run(_check_tier(name, tier, cloud, ask=ask))


async def _check_tier(name: str, config: HostedTierConfig, cloud: CloudFallback, *, ask: bool) -> Finding:
    key = f"tiers.{name}.continues"
    how = _make(name, config, cloud).continues
    source = "" if config.continues else ", since nothing is set"
    if not ask:
        return Finding("ok", key, f"{how}{source} (no request was sent; `doctor --ask` sends one of {TOKENS} tokens)")
    level, words = await _try(_make(name, config.model_copy(update={"continues": "prefill"}), cloud), key, how)
    return Finding(level, key, f"{how}{source}: {words}")


def _make(name: str, config: HostedTierConfig, cloud: CloudFallback) -> HostedTier:
    tier = make_tier(name, config, cloud)
    assert isinstance(tier, HostedTier)
    return tier


async def _try(tier: HostedTier, key: str, how: Continues) -> tuple[str, str]:
    """Ask the tier to count on, and return a level and words."""
    try:
        status = await tier.status()
        if status.state is not TierState.READY:
            return "warn", f"can't be tried: {status.reason}"
        text, failed = await _ask(tier)
    finally:
        await tier.close()
    if failed is not None and failed.fault is not Fault.SEAM and failed.status not in _REFUSED:
        return "warn", f"can't be told: {failed.message}"
    if failed is None and _NEXT.match(text):
        return "ok", _praise(key, how)
    if failed is not None and failed.fault is not Fault.SEAM:
        habit = f"the upstream refuses a prefill ({failed.status}: {failed.message})"
    elif text or failed is not None:
        habit = "the upstream begins anew instead of going on behind a prefill"
    else:
        habit = "the upstream says nothing behind a prefill"
    if how == "prefill":
        return "fail", f"{habit}: set `{key}: anchor`"
    return "ok", f"{habit}, so an anchor is right"


def _praise(key: str, how: Continues) -> str:
    words = "the upstream honours a prefill"
    return words if how == "prefill" else f"{words}: `{key}: prefill` would go on to the letter"


async def _ask(tier: HostedTier) -> tuple[str, Failed | None]:
    request = ChatRequest(
        request_id=f"doctor-{os.getpid()}",
        session_id="doctor",
        messages=({"role": "user", "content": COUNT},),
        max_tokens=TOKENS,
        timeout_s=WAIT_S,
        begun=BEGUN,
    )
    text, failed = "", None
    async with aclosing(tier.stream(request)) as answer:
        async for events in answer:
            for event in events:
                if isinstance(event, Text):
                    text += event.text
                elif isinstance(event, Failed):
                    failed = event
    return text, failed
