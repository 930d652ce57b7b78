"""What a `user_config` may change while the server runs, and what only a restart can.

A key that another deployment reads, or that is read once when the graph is built, is refused by name. A tier's patch
never turns a local tier into a cloud one behind the Router's back. At a replica's start a wrong patch is refused with
an error that Serve shows; later the replica keeps its configuration, logs the line, and `/ready` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from deployments.config.app_config import RouterConfig, check_names, patch
from deployments.config.config_errors import ConfigError
from deployments.config.tier_config import TierBase
from deployments.config.tier_cost import is_cloud
from deployments.memory.plan import settings_of
from deployments.telemetry import log_error
from reliability.config import MemoryPressureConfig

C = TypeVar("C")

# The Router reads these of a tier when it starts, or Serve did when it made the deployment.
_TIERS_AT_START = (
    *("timeouts", "retry_strategy", "min_replicas", "max_replicas", "replica_bytes", "asleep", "idle_s", "wake_s"),
    *("usd_per_mtok_prompt", "usd_per_mtok_completion"),
)
_SERVERS_AT_START = ("router_replicas", "max_ongoing_requests", "keep_awake")


def apply_change(
    merge: Callable[[Mapping[str, Any]], C], change: Mapping[str, Any] | None, current: C, *, first: bool, at: str
) -> tuple[C, str | None]:
    """Return the configuration to go on with, and why a change was refused. Raises ConfigError: it is the `first`."""
    try:
        return merge(change or {}), None
    except ValueError as error:
        if first:
            raise ConfigError(f"user_config of {at}: {error}") from None
        log_error("user_config_refused", error, deployment=at)
        return current, str(error)


def patch_router(base: RouterConfig, change: Mapping[str, Any], tiers: Collection[str]) -> RouterConfig:
    """Return `base` with the Router's `user_config` merged in. Raises ValueError: as `patch`; an unknown name; a key
    that needs a restart."""
    config = patch(base, change)
    check_names(config, tuple(tiers))
    _check_monitors(base.reliability.memory_pressure, config.reliability.memory_pressure)
    for name in _SERVERS_AT_START:
        _refuse_difference(f"server.{name}", getattr(base.server, name), getattr(config.server, name))
    before, after = base.reliability.escalation, config.reliability.escalation
    _refuse_difference("reliability.escalation.cloud_fallback", before.cloud_fallback, after.cloud_fallback)
    return config


def _check_monitors(base: MemoryPressureConfig, changed: MemoryPressureConfig) -> None:
    """Refuse a change of what the monitors were started with: everything but the rules."""
    _refuse_difference("reliability.memory_pressure.enabled", base.enabled, changed.enabled)
    before, after = settings_of(base), settings_of(changed)
    if before is not None and after is not None:
        old, new = asdict(before), asdict(after)
        for name in old:
            _refuse_difference(f"reliability.memory_pressure.{name}", old[name], new[name])


def patch_tier(base: TierBase, change: Mapping[str, Any]) -> TierBase:
    """Return `base` with a tier's `user_config` merged in. Raises ConfigError: as `patch`; a key that needs a restart;
    a change that moves the tier on or off this machine."""
    config = patch(base, change)
    for name in _TIERS_AT_START:
        _refuse_difference(name, getattr(base, name, None), getattr(config, name, None))
    before, after = is_cloud(base), is_cloud(config)
    if before != after:
        words = {True: "a cloud tier", False: "a tier on this machine"}
        turned = f"would turn {words[before]} into {words[after]} while the server runs"
        raise ConfigError(f"{turned}: change args and start it again")
    return config


def _refuse_difference(key: str, before: object, after: object) -> None:
    if before != after:
        raise ConfigError(f"{key}: changes with a restart only; put it under args")
