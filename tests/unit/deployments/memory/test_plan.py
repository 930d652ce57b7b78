"""What replicas agree on: the names of monitors, and what may change while they run."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from deployments.memory.plan import MonitorSettings, check_live, monitor_name, name_prefix, settings_of
from reliability.config import MemoryPressureConfig


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
