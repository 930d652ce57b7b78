"""Tiers that scale to zero: what happens to the request that finds one without a replica.

`tiers.NAME.asleep` says what it does: wait for a replica, up to `wake_s`, or go on along the chain; unset, it goes on
where a local tier that is warm and well follows. Invariants: no replica is started for a model that isn't here; a
status, a health check or `/ready` neither starts one nor keeps it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, TierBase, Timeouts
from deployments.graph.handle import NO_REPLICA, HandleTier, UnavailableTier
from deployments.graph.replica import make_hosted
from deployments.models.catalog import ModelChoice, choose_here
from deployments.models.presence import look
from reliability.types import TierState, TierStatus

_ColdTiers = Mapping[str, Literal["wait", "next", "absent"]]
# A core reads 24 to 75 tokens a second: a prompt that needs the context of these models takes minutes.
_PATIENT = Timeouts(first_token_s=600.0, total_s=900.0)


def let_auto_sleep(config: AppConfig) -> AppConfig:
    """Return the configuration with `min_replicas: 0` for each tier that needs no replica at the start, unless it says
    otherwise: a local one whose `auto` model comes later, which also gets time for a long prompt where no timeouts are
    set, and a hosted one that can send no request."""
    patience = {} if "timeouts" in config.server.model_fields_set else {"timeouts": _PATIENT}
    changed: dict[str, TierBase] = {}
    for name, tier in config.tiers.items():
        if "min_replicas" in tier.model_fields_set:
            continue
        if isinstance(tier, MlxTierConfig) and choose_here(name, tier.model).fetch != "load":
            changed[name] = tier.model_copy(update={"min_replicas": 0} | ({} if tier.timeouts else patience))
        elif _find_powerless(name, config):
            changed[name] = tier.model_copy(update={"min_replicas": 0})
    return config.model_copy(update={"tiers": {**config.tiers, **changed}}) if changed else config


def _find_powerless(name: str, config: AppConfig) -> Callable[[], TierStatus] | None:
    """Return what looks up the status of a hosted tier that can send no request, as without its key; else None."""
    tier = config.tiers[name]
    if not isinstance(tier, HostedTierConfig):
        return None
    hosted = make_hosted(name, tier, config.reliability.escalation.cloud_fallback)
    return hosted.describe if hosted.describe().state is TierState.UNAVAILABLE else None


def make_cold_status(name: str, config: AppConfig) -> Callable[[], TierStatus] | None:
    """Make what looks up the status of a tier that may scale to zero; None for one that never does."""
    tier = config.tiers[name]
    if tier.min_replicas:
        return None
    if powerless := _find_powerless(name, config):
        return powerless
    choice = choose_here(name, tier.model) if isinstance(tier, MlxTierConfig) else None
    cold = TierStatus(
        name=name,
        kind=tier.kind,
        state=TierState.ASLEEP,
        reason=NO_REPLICA,
        model=getattr(tier, "model", None),
        source=choice.source if choice else None,
        context_tokens=tier.context_tokens or (choice.context_tokens if choice else None),
    )
    return partial(_look_up, cold, choice)


def _look_up(cold: TierStatus, choice: ModelChoice | None) -> TierStatus:
    found = None if choice is None else look(cold.name, choice)
    if found is None or found.state == "here":
        return cold
    state = TierState.LOADING if found.state == "coming" else TierState.UNAVAILABLE
    return replace(cold, state=state, reason=found.words, download_bytes=found.size_bytes)


def find_cold(
    chain: Sequence[str],
    scalable: Mapping[str, TierBase],
    tiers: Mapping[str, HandleTier],
    stands_in: Callable[[str], bool],
) -> _ColdTiers:
    """Find what a request does about the cold tiers of its chain. `stands_in`: a tier is local, warm and well."""
    found: dict[str, Literal["wait", "next", "absent"]] = {}
    for place, name in enumerate(chain):
        if name not in scalable or tiers[name].warm:
            continue
        found[name] = scalable[name].asleep or ("next" if any(map(stands_in, chain[place + 1 :])) else "wait")
        if tiers[name].absent is not None:
            found[name] = "absent"
    return found


def bypass_cold(cold: _ColdTiers, tiers: Mapping[str, HandleTier]) -> dict[str, UnavailableTier]:
    """Build the stand-ins for the tiers that are passed by. One that isn't waited for is started by its stand-in."""
    built: dict[str, UnavailableTier] = {}
    for name, way in cold.items():
        known = tiers[name].known
        if way != "wait" and known is not None:
            built[name] = UnavailableTier(known, tiers[name].start_replica if way == "next" else None)
    return built


def extend_timeouts(
    cold: _ColdTiers, scalable: Mapping[str, TierBase], timeouts: Mapping[str, Timeouts]
) -> dict[str, Timeouts]:
    """Extend the timeouts of the tiers that are waited for: a cold start may take `wake_s`."""
    waited = [name for name, way in cold.items() if way == "wait"]
    return {name: timeouts[name].model_copy(update={"connect_s": scalable[name].wake_s}) for name in waited}
