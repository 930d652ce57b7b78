"""The effects of the keys under `memory_pressure`, and of `replica_bytes`."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from deployments.config.app_config import AppConfig
from deployments.memory.monitor import MemoryPressure, _make_sensor
from deployments.memory.sensors.scripted import ScriptedSensor
from deployments.models.needs import plan_of
from reliability.admission.admit import AdmissionConfig, AdmissionState, admit
from reliability.admission.request import AdmissionRequest, MemoryRules, Rejection
from reliability.memory.pressure import Level
from tests.support.small_config import config_of, options_of

AT = "reliability.memory_pressure"
S = 1_000_000_000


def section(**keys: Any) -> AppConfig:
    return config_of(AT, keys)


def rules_of(**keys: Any) -> MemoryRules:
    return section(**keys).reliability.memory_pressure.rules


def rule(key: str, field: str, value: int | None, expected: int | None) -> Callable[[], None]:
    """The key's value is that of the rule by which a call is rejected; what that does is proven in test_request.py."""

    def check() -> None:
        assert getattr(rules_of(**{key: value}), field) == expected != getattr(rules_of(), field)

    return check


def retry_after_s() -> None:
    asked = AdmissionRequest(tier="fast", key="k", session="s", prompt_tokens=4000, level=Level.CRITICAL)
    _, answer = admit(AdmissionState(), AdmissionConfig(memory=rules_of(retry_after_s=33)), asked, 0)
    assert isinstance(answer, Rejection)
    assert answer.retry_after_s == 33


def enabled() -> None:
    assert plan_of(section()) is not None
    assert plan_of(section(enabled=False)) is None
    asked = options_of(config_of("tiers.fast.replica_bytes", 5), "fast").ray_actor_options
    off = config_of("tiers.fast.replica_bytes", 5).model_dump(mode="json", exclude_unset=True)
    off["reliability"]["memory_pressure"] = {"enabled": False}
    assert asked["memory"] == 5
    assert "memory" not in options_of(AppConfig.model_validate(off), "fast").ray_actor_options


def sensor() -> None:
    assert isinstance(_make_sensor(section(sensor="scripted:x").reliability.memory_pressure.sensor), ScriptedSensor)
    assert not isinstance(_make_sensor(section().reliability.memory_pressure.sensor), ScriptedSensor)


def replica_bytes() -> None:
    for name in ("fast", "m"):
        assert options_of(config_of(f"tiers.{name}.replica_bytes", 77), name).ray_actor_options["memory"] == 77
    assert "memory" not in options_of(config_of(), "fast").ray_actor_options
    # A hosted tier holds no model: what it is said to take is asked of nobody.
    assert "memory" not in options_of(config_of("tiers.premium.replica_bytes", 77), "premium").ray_actor_options


Play = Callable[[MemoryPressure, Path], Awaitable[None]]


def with_monitor(play: Play, **keys: Any) -> None:
    """Run a play with the monitor that the configuration makes, and the file that its sensor reads."""

    async def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sensor = Path(folder) / "sensor"
            sensor.write_text("normal")
            plan = plan_of(section(**{"sensor": f"scripted:{sensor}", "poll_s": 0.05, **keys}))
            assert plan is not None
            monitor = MemoryPressure(plan.settings)
            await monitor.peek()
            try:
                await play(monitor, sensor)
            finally:
                polling = monitor._polling
                assert polling is not None
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)

    asyncio.run(go())


def reaches(key: str, value: float) -> Callable[[], None]:
    """The key's value is that of the monitor's setting; what the setting does is proven in test_monitor.py."""

    def check() -> None:
        plans = [plan_of(section(**{key: value})), plan_of(section())]
        assert [getattr(plan.settings, key) == value for plan in plans] == [True, False]

    return check


def budget() -> None:
    async def bounded(monitor: MemoryPressure, _: Path) -> None:
        assert (await monitor.acquire("a", "fast", 11)).never
        assert (await monitor.acquire("a", "fast", 10)).granted

    async def shared(monitor: MemoryPressure, _: Path) -> None:
        report = await monitor.peek()
        assert report.total_bytes is not None
        assert report.budget_bytes == int(report.total_bytes * 0.5)

    with_monitor(bounded, budget_bytes=10)
    with_monitor(shared, budget_share=0.5)


MEMORY: dict[str, Callable[[], None]] = {
    "enabled": enabled,
    "sensor": sensor,
    "sustained_s": rule("sustained_s", "sustained_ns", 70, 70 * S),
    "complex_prompt_tokens": rule("complex_prompt_tokens", "complex_prompt_tokens", 9001, 9001),
    "complex_output_tokens": rule("complex_output_tokens", "complex_output_tokens", None, None),
    "complex_tools": rule("complex_tools", "complex_tools", 21, 21),
    "critical_prompt_tokens": rule("critical_prompt_tokens", "critical_prompt_tokens", 5001, 5001),
    "retry_after_s": retry_after_s,
    "budget_bytes": budget,
    "budget_share": budget,
    "poll_s": reaches("poll_s", 2.0),
    **{key: reaches(key, 22.0) for key in ("calm_s", "stale_s", "lease_s")},
}
