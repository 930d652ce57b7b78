"""Memory pressure: fast in, slowly out, never stuck, never a false alarm."""

import math
from dataclasses import replace

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

CONFIG = PressureConfig(
    sources={"share": USED_SHARE, "psi": LINUX_PSI},
    calm_ns=10,
    latch_ns=50,
    stale_ns=15,
)
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


def test_critical_at_once_warn_at_the_second() -> None:
    """One reading makes it critical; warn needs two in a row, and a calm one between starts again."""
    assert at((0, 0.1), (1, 0.99)).level is Level.CRITICAL
    assert at((0, 0.1), (1, 0.86)).level is Level.NORMAL
    assert at((0, 0.1), (1, 0.86), (2, 0.86)).level is Level.WARN
    assert at((0, 0.1), (1, 0.86), (2, 0.1), (3, 0.86)).level is Level.NORMAL
    waiting = observe(at((0, 0.1), (1, 0.86)), CONFIG, [], 2)
    assert waiting.level is Level.NORMAL


def test_the_first_reading_decides() -> None:
    """Out of unknown the first reading gives the level, whatever it is."""
    assert [at((5, share)).level for share in (0.1, 0.86, 0.99)] == [Level.NORMAL, Level.WARN, Level.CRITICAL]


def test_it_leaves_slowly_and_lower() -> None:
    """A level is left one step at a time, only below its lower threshold, and only after the calm time."""
    hot = at((0, 0.99))
    assert read(read(hot, 8, 0.91), 16, 0.91).level is Level.CRITICAL
    calm = read(hot, 5, 0.5)
    assert read(calm, 9, 0.5).level is Level.CRITICAL
    warm = read(calm, 10, 0.5)
    assert warm.level is Level.WARN
    assert read(warm, 19, 0.5).level is Level.WARN
    assert read(warm, 20, 0.5).level is Level.NORMAL
    assert read(read(warm, 19, 0.81), 28, 0.5).level is Level.WARN


def test_a_held_level_times_out() -> None:
    """A level that is only held, and not called for, is left after the latch time."""
    pressure = at((0, 0.86))
    for now_ns in range(1, 50):
        pressure = read(pressure, now_ns, 0.82)
        assert pressure.level is Level.WARN
    assert read(pressure, 50, 0.82).level is Level.NORMAL


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
