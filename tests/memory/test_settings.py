"""What replicas agree on: names, needs in bytes, and what is asked of Ray."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config_tiers import MlxTierConfig
from deployments.memory.placement import asks_within
from deployments.memory.plan import MonitorSettings, TierNeed, check_live, monitor_name, name_prefix, settings_of
from deployments.models.catalog import weight_bytes_of
from deployments.models.needs import KV_TOKENS, plan_of, replica_bytes
from reliability.config import MemoryPressureConfig
from tests.effects.driving import config_of


def test_other_settings_are_another_monitor():
    """Any setting changes the name, and the same settings never do; names of an application begin alike."""
    plain = MonitorSettings()
    others = [replace(plain, **{f.name: "scripted:x" if f.name == "sensor" else 3}) for f in fields(MonitorSettings)]
    names = {monitor_name("app", settings, "node") for settings in (plain, *others)}

    assert len(names) == len(fields(MonitorSettings)) + 1
    assert monitor_name("app", MonitorSettings(), "node") in names
    assert all(name.startswith(name_prefix("app")) for name in names)


def test_rules_change_live_and_the_rest_does_not():
    """A `user_config` may change what requests are kept off; what the monitors were started with it may not."""
    base = MemoryPressureConfig()
    check_live(base, MemoryPressureConfig(sustained_s=1, complex_tools=None))
    with pytest.raises(ValueError, match=r"memory_pressure\.poll_s: changes with a restart only"):
        check_live(base, MemoryPressureConfig(poll_s=2))
    with pytest.raises(ValueError, match=r"memory_pressure\.enabled"):
        check_live(base, MemoryPressureConfig(enabled=False))


def test_a_reading_must_outlive_the_poll():
    """Readings that are stale before the next one comes are refused: the level would be unknown half of the time."""
    with pytest.raises(ValueError, match=r"stale_s \(1\) is under twice poll_s \(1\)"):
        MemoryPressureConfig(poll_s=1, stale_s=1)
    assert settings_of(MemoryPressureConfig(enabled=False)) is None


SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 32}


def model(folder: Path, **shape: object) -> str:
    """An mlx-lm model folder of 1000 bytes of weights and this shape, as a source."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, **shape}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return f"path:{folder}"


def test_weights_and_cache_are_counted(tmp_path: Path):
    """Weights, what stands beside them, and KV_TOKENS tokens of cache by the model's own shape."""

    def of(**shape: object) -> int:
        return replica_bytes("t", MlxTierConfig(kind="mlx", model=model(tmp_path / "m", **shape))) or 0

    token_bytes = 2 * 2 * 1 * 8  # keys and values, layers, heads of them, their width
    without_cache = of() - KV_TOKENS * token_bytes * 2
    assert without_cache == 1000 + (400 << 20)
    assert of(torch_dtype="float32") == without_cache + KV_TOKENS * token_bytes * 4
    assert of(max_position_embeddings=10) == without_cache + 10 * token_bytes * 2
    assert of(num_hidden_layers=None) == without_cache


def test_a_number_of_ones_own_counts(tmp_path: Path):
    """`replica_bytes` replaces the estimate; a model of which nothing is known has none."""
    source = model(tmp_path / "m")
    assert replica_bytes("t", MlxTierConfig(kind="mlx", model=source, replica_bytes=5)) == 5
    assert replica_bytes("t", MlxTierConfig(kind="mlx", model=f"path:{tmp_path / 'nowhere'}")) is None
    assert weight_bytes_of("hf:mlx-community/Qwen3-8B-4bit@main") == 4_700_000_000
    assert weight_bytes_of("hf:somebody/else@main") is None


def test_the_plan_of_a_configuration():
    """Tiers that come first in the chain grow first; a hosted tier runs elsewhere; scripted ones take nothing."""
    plan = plan_of(config_of())
    assert plan is not None
    needs = {need.name: need for need in plan.needs}
    assert needs["fast"].priority > needs["standard"].priority > needs["m"].priority
    assert (needs["premium"].local, needs["fast"].local) == (False, True)
    assert needs["fast"].replica_bytes == 0


NEEDS = st.lists(
    st.builds(
        TierNeed,
        name=st.sampled_from("abcd"),
        replica_bytes=st.sampled_from([None, 0, 10, 30, 60]),
        replicas_min=st.integers(0, 3),
        replicas_max=st.just(5),
        local=st.booleans(),
    ),
    unique_by=lambda n: n.name,
    max_size=4,
)


@given(NEEDS, st.lists(st.integers(0, 100), max_size=3))
def test_nothing_is_asked_that_cannot_be_had(needs: list[TierNeed], room: list[int]) -> None:
    """Either every tier with bytes asks for them, and one replica of each fits, or none asks at all."""
    asks = asks_within(needs, room)
    local = {n.name: n.replica_bytes for n in needs if n.local and n.replica_bytes}

    assert asks in ({}, local)
    if asks:
        least = [n.replica_bytes or 0 for n in needs if n.name in asks for _ in range(max(1, n.replicas_min))]
        assert sum(least) <= sum(room)
        assert max(least) <= max(room)
