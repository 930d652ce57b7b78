"""The rate of a counter, and levels over series of readings as the sensors give them."""

from pathlib import Path

from deployments.memory.sensors.linux import LinuxSensor
from deployments.memory.sensors.macos import MacosSensor
from deployments.memory.sensors.sensor import NS_PER_S, Counter
from reliability.memory.pressure import Level, Pressure, PressureConfig, Reading, level_at, observe

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_counter_needs_time_to_pass():
    """No time, no rate."""
    counter = Counter()
    assert counter.per_s(1, 5) is None
    assert counter.per_s(2, 5) is None


def test_limits_are_in_order() -> None:
    """No level is left above where it is entered, nor comes before a lower one."""
    for limits in (*LinuxSensor.sources.values(), *MacosSensor.sources.values()):
        assert limits.warn_leave <= limits.warn_enter <= limits.critical_enter
        assert limits.warn_leave <= limits.critical_leave <= limits.critical_enter


def replay(name: str, sources: tuple[str, ...]) -> list[tuple[int, str]]:
    """The moves between levels over a series: (second, level)."""
    pressure, moves = Pressure(), []
    settings = PressureConfig(sources={s: LinuxSensor.sources.get(s) or MacosSensor.sources[s] for s in sources})
    for line in (FIXTURES / name).read_text().splitlines()[1:]:
        at_s, *numbers = (float(word) for word in line.split("\t"))
        now_ns = int(at_s * NS_PER_S) + 1
        readings = [Reading(s, n) for s, n in zip(sources, numbers, strict=True)]
        before, pressure = pressure, observe(pressure, settings, readings, now_ns)
        if pressure.level is not before.level:
            moves.append((int(at_s), pressure.level.value))
    assert level_at(pressure, now_ns) is Level.NORMAL
    return moves


def test_a_linux_series():
    """PSI and the used share through a swap storm: up fast, down one level at a time, no flapping."""
    moves = replay("linux_psi.tsv", ("psi", "used_share"))

    assert [level for _, level in moves] == ["normal", "warn", "critical", "warn", "normal"]
    assert 40 <= moves[1][0] <= 50
    assert moves[3][0] - moves[2][0] >= 10
    assert moves[4][0] - moves[3][0] >= 10


def test_a_macos_series():
    """A kernel level that flickers is one rise and one descent."""
    moves = replay("macos_level.tsv", ("macos_level", "swap_out_mb"))

    assert [level for _, level in moves] == ["normal", "warn", "critical", "warn", "normal"]
    assert moves[2][0] == 40
    assert moves[4][0] == 99  # calm since 90, and the time that calm must last
