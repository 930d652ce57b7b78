"""Memory pressure: fast in, slowly out, never stuck, never a false alarm."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.memory.pressure import (
    LINUX_PSI,
    MACOS_LEVEL,
    USED_SHARE,
    Level,
    Pressure,
    PressureConfig,
    Reading,
    level_at,
    measure_sustained_ns,
    observe,
)

CONFIG = PressureConfig(sources={"share": USED_SHARE, "psi": LINUX_PSI}, calm_ns=10, latch_ns=50, stale_ns=15)
VALUES = st.sampled_from([None, 0.0, 0.5, 0.79, 0.80, 0.84, 0.85, 0.90, 0.94, 0.95, 1.0, math.nan, 7.0, 60.0])
STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.lists(st.tuples(st.sampled_from(["share", "psi", "odd"]), VALUES), max_size=3)),
    max_size=60,
)


def read(pressure: Pressure, now_ns: int, share: float | None) -> Pressure:
    """One reading of one source."""
    return observe(pressure, CONFIG, [Reading("share", share)], now_ns)


def at(*readings: tuple[int, float]) -> Pressure:
    """The state after these readings."""
    pressure = Pressure()
    for now_ns, share in readings:
        pressure = read(pressure, now_ns, share)
    return pressure


@given(STEPS)
def test_no_flapping(steps: list[tuple[int, list[tuple[str, float | None]]]]) -> None:
    """A step down is one level, and follows any other step after `calm_ns` at the earliest."""
    pressure, now_ns, moved_ns = Pressure(), 0, None
    for wait_ns, readings in steps:
        now_ns += wait_ns
        before = pressure
        pressure = observe(pressure, CONFIG, [Reading(*r) for r in readings], now_ns)
        if pressure.level is before.level:
            continue
        if Level.UNKNOWN not in (before.level, pressure.level) and pressure.level.rank < before.level.rank:
            assert pressure.level.rank == before.level.rank - 1
            assert now_ns - moved_ns >= CONFIG.calm_ns
        moved_ns = now_ns


@given(STEPS)
def test_silence_is_unknown_and_no_alarm(steps: list[tuple[int, list[tuple[str, float | None]]]]) -> None:
    """Silence of `stale_ns` is unknown for every reader; no level rises without a call for it."""
    pressure, now_ns = Pressure(), 0
    for wait_ns, readings in steps:
        now_ns += wait_ns
        before = pressure
        pressure = observe(pressure, CONFIG, [Reading(*r) for r in readings], now_ns)
        if pressure.level.rank > max(before.level.rank, 0):
            assert any(
                value is not None and source in CONFIG.sources and value >= CONFIG.sources[source].warn_enter
                for source, value in readings
            )
        assert (pressure.level is Level.UNKNOWN) is (not pressure.values)
        late_ns = now_ns + CONFIG.stale_ns
        assert level_at(pressure, late_ns) is Level.UNKNOWN
        assert measure_sustained_ns(pressure, late_ns) == 0
        assert (pressure.source in CONFIG.sources) is (pressure.level.rank > 0)


@given(STEPS, st.floats(0, 0.849))
def test_every_latch_times_out(steps: list[tuple[int, list[tuple[str, float | None]]]], share: float) -> None:
    """Whatever was before, readings that call for nothing lead back to normal in bounded time."""
    pressure, now_ns = Pressure(), 0
    for wait_ns, readings in steps:
        now_ns += wait_ns
        pressure = observe(pressure, CONFIG, [Reading(*r) for r in readings], now_ns)
    end_ns = now_ns + 2 * (CONFIG.latch_ns + CONFIG.calm_ns) + CONFIG.stale_ns
    while now_ns <= end_ns:
        pressure = read(pressure, now_ns, share)
        now_ns += 1
    assert (pressure.level, pressure.source) == (Level.NORMAL, "")
    assert measure_sustained_ns(pressure, now_ns) == 0


@pytest.mark.parametrize(
    ("readings", "level"),
    [
        pytest.param([(0, 0.1), (1, 0.99)], Level.CRITICAL, id="one reading makes it critical"),
        pytest.param([(0, 0.1), (1, 0.86)], Level.NORMAL, id="one reading is no warning"),
        pytest.param([(0, 0.1), (1, 0.86), (2, 0.86)], Level.WARN, id="two in a row are"),
        pytest.param([(0, 0.1), (1, 0.86), (2, 0.1), (3, 0.86)], Level.NORMAL, id="a calm one starts again"),
        pytest.param([(0, 0.1), (1, 0.86), (2, None)], Level.NORMAL, id="silence is no second one"),
        pytest.param([(5, 0.1)], Level.NORMAL, id="out of unknown the first decides: normal"),
        pytest.param([(5, 0.86)], Level.WARN, id="out of unknown the first decides: warn"),
        pytest.param([(0, 0.99), (8, 0.91), (16, 0.91)], Level.CRITICAL, id="held above the lower threshold"),
        pytest.param([(0, 0.99), (5, 0.5), (9, 0.5)], Level.CRITICAL, id="not left before the calm time"),
        pytest.param([(0, 0.99), (5, 0.5), (10, 0.5)], Level.WARN, id="left by one step"),
        pytest.param([(0, 0.99), (5, 0.5), (10, 0.5), (19, 0.5)], Level.WARN, id="not again before the calm time"),
        pytest.param([(0, 0.99), (5, 0.5), (10, 0.5), (20, 0.5)], Level.NORMAL, id="and then again"),
        pytest.param([(0, 0.99), (10, 0.5), (19, 0.81), (28, 0.5)], Level.WARN, id="held meanwhile: calm begins anew"),
        pytest.param([(0, 0.86), *((at, 0.82) for at in range(1, 50))], Level.WARN, id="only held: before the latch"),
        pytest.param([(0, 0.86), *((at, 0.82) for at in range(1, 51))], Level.NORMAL, id="only held: left after it"),
    ],
)
def test_levels_come_fast_and_go_slowly(readings: list[tuple[int, float]], level: Level) -> None:
    """Law: the examples' names."""
    assert at(*readings).level is level


def test_the_deciding_source_is_shown() -> None:
    """The worst of several sources counts and is named; normal has none."""
    calm = observe(Pressure(), CONFIG, [Reading("share", 0.1), Reading("psi", 1)], 0)
    assert calm.source == ""
    hot = observe(calm, CONFIG, [Reading("share", 0.86), Reading("psi", 50)], 1)
    assert (hot.level, hot.source) == (Level.CRITICAL, "psi")
    held = observe(hot, CONFIG, [Reading("share", 0.86), Reading("psi", 25)], 2)
    assert held.source == "psi"
    cooler = observe(held, CONFIG, [Reading("share", 0.86), Reading("psi", 1)], 12)
    assert (cooler.level, cooler.source) == (Level.WARN, "share")
    cool = observe(cooler, CONFIG, [Reading("share", 0.1), Reading("psi", 1)], 22)
    assert (cool.level, cool.source) == (Level.NORMAL, "")


def test_a_silent_source_takes_nothing_down_fast() -> None:
    """When the source of an alarm falls silent, the others take the level down at their slow pace."""
    pressure = observe(Pressure(), CONFIG, [Reading("psi", 60)], 0)
    levels = []
    for now_ns in range(1, 40):
        pressure = read(pressure, now_ns, 0.1)
        levels.append((now_ns, pressure.level))
    assert [level for now_ns, level in levels if now_ns < 24] == [Level.CRITICAL] * 23
    assert dict(levels)[24] is Level.WARN
    assert dict(levels)[34] is Level.NORMAL


def test_sustained_counts_from_the_first_warn() -> None:
    """Pressure is sustained from entering warn on, through critical and back, until it is normal."""
    pressure = at((0, 0.86), (8, 0.99), (16, 0.86), (24, 0.86))
    assert measure_sustained_ns(pressure, 24) == 24
    assert measure_sustained_ns(pressure, 38) == 38
    assert measure_sustained_ns(pressure, 39) == 0
    assert measure_sustained_ns(at((0, 0.1)), 5) == 0


def test_a_clock_that_steps_back_stands_still() -> None:
    """An observation from the past is taken as one from now."""
    pressure = read(at((100, 0.99)), 5, 0.1)
    assert (pressure.level, pressure.now_ns) == (Level.CRITICAL, 100)


def test_known_scales() -> None:
    """macOS's 1, 2 and 4 are the three levels."""
    config = replace(CONFIG, sources={"macos": MACOS_LEVEL})
    levels = [observe(Pressure(), config, [Reading("macos", v)], 0).level for v in (1, 2, 4)]
    assert levels == [Level.NORMAL, Level.WARN, Level.CRITICAL]
