"""A Mac is kept from idle sleep while requests run and it has mains power, by a scripted machine."""

import asyncio
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from deployments.app import keep_awake
from deployments.app.keep_awake import _LINGER_S, KeepAwake, _hold_off_sleep, _is_on_mains, _When


class Mac:
    """A machine with a clock, a plug and a count of assertions."""

    def __init__(self, when: _When = "requests", system: str = "darwin") -> None:
        self.now_s, self.plugged, self.asserted = 1000.0, True, 0
        self.awake = KeepAwake(
            when, system=system, on_mains=lambda: self.plugged, hold=self._hold, now_s=lambda: self.now_s
        )

    def _hold(self) -> Any:
        self.asserted += 1

        def terminate() -> None:
            self.asserted -= 1

        return SimpleNamespace(terminate=terminate, wait=lambda timeout: 0)


async def test_sleep_is_held_off_while_requests_run_and_a_while_longer() -> None:
    """Law: from the first request until `_LINGER_S` after the last, with one assertion; then the machine may sleep."""
    mac = Mac()
    assert not await mac.awake.look()
    mac.awake.note(True)
    assert await mac.awake.look()
    assert await mac.awake.look()
    assert mac.asserted == 1
    mac.now_s += 10 * _LINGER_S
    assert await mac.awake.look(), "a long request still runs"
    mac.awake.note(False)
    mac.now_s += _LINGER_S - 1
    assert await mac.awake.look()
    mac.now_s += 1
    assert not await mac.awake.look()
    assert (mac.asserted, mac.awake._held) == (0, None)


@pytest.mark.parametrize(
    ("when", "system", "asserted"),
    [("always", "darwin", 1), ("never", "darwin", 0), ("always", "linux", 0), ("requests", "linux", 0)],
)
async def test_an_operator_decides_and_other_systems_are_left_alone(when: _When, system: str, asserted: int) -> None:
    """Law: `always` holds off sleep without a request, `never` doesn't with one; only macOS has it at all."""
    mac = Mac(when, system)
    if when != "always":
        mac.awake.note(True)
    await mac.awake.look()
    assert mac.asserted == asserted


async def test_a_request_wakes_the_task_and_its_end_gives_the_assertion_up() -> None:
    """Law: the task sleeps until a request comes; cancelled, as when the Router ends, it leaves no assertion behind."""
    mac = Mac()
    task = asyncio.create_task(mac.awake.run())
    await asyncio.sleep(0)
    mac.awake.note(True)
    async with asyncio.timeout(10):
        while not mac.asserted:
            await asyncio.to_thread(lambda: None)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert mac.asserted == 0


async def test_a_mac_without_the_program_answers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: where sleep can't be held off, the task ends with a line in the log, and no request is any worse."""
    monkeypatch.setattr(keep_awake, "_CAFFEINATE", "/nowhere/caffeinate")
    awake = KeepAwake("always", system="darwin", on_mains=lambda: True, hold=_hold_off_sleep)
    async with asyncio.timeout(10):
        await awake.run()
    assert awake._held is None


@pytest.mark.parametrize(
    ("battery", "mains"),
    [(None, True), (SimpleNamespace(power_plugged=True), True), (SimpleNamespace(power_plugged=False), False),
     (SimpleNamespace(power_plugged=None), True)],
)  # fmt: skip
def test_a_machine_without_a_battery_is_on_mains(monkeypatch: pytest.MonkeyPatch, battery: Any, mains: bool) -> None:
    """Law: a desktop is on mains power; where it isn't known, so it is taken."""
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert _is_on_mains() is mains
