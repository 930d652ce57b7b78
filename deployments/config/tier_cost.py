"""What a call costs, and whether it leaves this machine.

A price is an estimate in US dollars per million tokens; an unknown one is None and never 0. Cached prompt tokens count
at the full price. *Cloud* means that the prompt leaves the machine: a hosted tier on loopback is local and every other
one is cloud, unless its `cloud` key says otherwise, since only a person knows what a local proxy passes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from yarl import URL

from deployments.config.loopback import is_loopback
from deployments.config.tier_config import HostedTierConfig, ScriptedTierConfig, TierBase
from reliability.config import CloudFallback
from reliability.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    usd_per_mtok_prompt: float
    usd_per_mtok_completion: float


# Estimates of 2026-11, from the providers' own price lists, for the models that a preset brings along.
_KNOWN_PRICES: Mapping[str, Price] = MappingProxyType(
    {"anthropic/claude-sonnet-4-6": Price(usd_per_mtok_prompt=3.0, usd_per_mtok_completion=15.0)}
)


def price_of(tier: TierBase, cloud_fallback: CloudFallback) -> Price | None:
    """Return the configured price, else the known one of a preset's model at the preset's own URL, else None."""
    if not isinstance(tier, HostedTierConfig):
        return None
    prompt, completion = tier.usd_per_mtok_prompt, tier.usd_per_mtok_completion
    if prompt is not None and completion is not None:
        return Price(usd_per_mtok_prompt=prompt, usd_per_mtok_completion=completion)
    if tier.preset is None or tier.base_url is not None:
        return None
    return _KNOWN_PRICES.get(tier.model or cloud_fallback.model)


def cost_usd(usage: Usage | None, price: Price | None) -> float | None:
    """Estimate the cost of one attempt in US dollars; None where the tokens or the price aren't known."""
    if usage is None or price is None:
        return None
    prompt = usage.prompt_tokens * price.usd_per_mtok_prompt
    completion = usage.completion_tokens * price.usd_per_mtok_completion
    return (prompt + completion) / 1_000_000


def is_cloud(tier: TierBase) -> bool:
    """Tell whether a request to this tier leaves the machine. Total: a URL that can't be read counts as cloud."""
    if isinstance(tier, ScriptedTierConfig):
        return tier.cloud
    if not isinstance(tier, HostedTierConfig):
        return False
    if tier.cloud is not None:
        return tier.cloud
    if tier.base_url is None:
        return True  # a preset's own provider (`cloud_fallback.provider`): never this machine
    try:
        return not is_loopback(URL(tier.base_url).host or "")  # the host as the tier's own client reads it
    except (ValueError, IndexError):  # yarl's IndexError: empty brackets before an `@`
        return True


def cloud_tiers(tiers: Mapping[str, TierBase]) -> frozenset[str]:
    """Name the tiers that a local-only request never reaches, and that aren't called without a budget."""
    return frozenset(name for name, tier in tiers.items() if is_cloud(tier))
