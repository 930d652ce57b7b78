"""What a `user_config` may change while the server runs."""

from typing import Any

import pytest

from deployments.config.app_config import RouterConfig
from deployments.config.config_errors import ConfigError
from deployments.graph.reconfigure import _SERVERS_AT_START, _TIERS_AT_START, patch_router, patch_tier
from tests.unit.deployments.config.test_tier_cost import other, preset, tier


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (tier(), {"base_url": "https://example.com/v1"}),
        (tier(), {"cloud": True}),
        (other("scripted"), {"cloud": True}),
        (preset(), {"base_url": "http://localhost:1/v1"}),
    ],
)
def test_a_user_config_does_not_move_a_tier_off_the_machine(base, change):
    """The Router goes by what it knew at the start, so a tier that moved would take local-only requests along."""
    with pytest.raises(ConfigError, match="start it again"):
        patch_tier(base, change)


def test_other_changes_of_a_user_config_pass():
    """A local tier may change its port and its model."""
    changed = patch_tier(tier(), {"base_url": "http://localhost:9/v1", "model": "n"})

    assert (changed.base_url, changed.model) == ("http://localhost:9/v1", "n")


OTHER_VALUES: dict[str, Any] = {
    "timeouts": {"idle_s": 1},
    "retry_strategy": ["resample"],
    "min_replicas": 0,
    "max_replicas": 2,
    "replica_bytes": 5,
    "asleep": "wait",
    "idle_s": 20,
    "wake_s": 5,
    "usd_per_mtok_prompt": 1,
    "usd_per_mtok_completion": 1,
    "router_replicas": 2,
    "max_ongoing_requests": 7,
    "keep_awake": "always",
}
PRICES = {"usd_per_mtok_prompt": 1, "usd_per_mtok_completion": 1}


@pytest.mark.parametrize("key", _TIERS_AT_START)
def test_what_others_read_of_a_tier_needs_a_restart(key):
    """The Router's timeouts, prices and rungs, and the replicas that Serve started: a change that would have no effect
    is refused by name, and the same value again is no change."""
    change = PRICES if key in PRICES else {key: OTHER_VALUES[key]}
    with pytest.raises(
        ConfigError, match=f"^{'usd_per_mtok_prompt' if key in PRICES else key}: changes with a restart"
    ):
        patch_tier(tier(), change)

    assert patch_tier(tier(**change), change) == tier(**change)


@pytest.mark.parametrize(
    "change",
    [
        *({"server": {key: OTHER_VALUES[key]}} for key in _SERVERS_AT_START),
        {"reliability": {"escalation": {"cloud_fallback": {"model": "m"}}}},
        {"reliability": {"memory_pressure": {"poll_s": 2}}},
        {"reliability": {"memory_pressure": {"enabled": False}}},
    ],
)
def test_what_is_read_once_of_the_router_needs_a_restart(change):
    """The graph is built once, and so are the prices of the cloud and the monitors; their rules may change."""
    tiers = ("fast", "standard", "longctx", "premium")
    with pytest.raises(ValueError, match=r"^[\w.]+: changes with a restart only"):
        patch_router(RouterConfig(), change, tiers)
    rules = {"reliability": {"memory_pressure": {"sustained_s": 1, "complex_tools": None}}}
    assert patch_router(RouterConfig(), rules, tiers).reliability.memory_pressure.sustained_s == 1
