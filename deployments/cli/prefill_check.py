"""Does a hosted tier's upstream continue a last message of the model's own (`doctor --ask`)?

The request begins to count from eleven, in words that no fresh answer begins with, so that the next number tells an
upstream that continues from one that begins anew. One request of `TOKENS` tokens for each hosted tier, and only if the
person asks for it: it leaves the machine and may cost money.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import aclosing

from deployments.cli.chain_faults import Finding
from deployments.config import AppConfig
from deployments.config_tiers import HostedTierConfig
from deployments.graph.replica import make_tier
from deployments.tiers.hosted.continuing import Continues
from deployments.tiers.hosted.hosted_tier import HostedTier
from reliability.config import CloudFallback
from reliability.types import ChatRequest, Failed, Fault, Text, TierState

__all__ = ["check_prefill"]

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
