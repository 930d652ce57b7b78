"""How short of memory a node is: normal, warn, critical; unknown where no source has reported for `stale_ns`.

A source is any number that grows with trouble (macOS: 1, 2, 4; Linux: PSI percent; headroom: the used share). It *calls
for* a level at `enter` and *holds* it at `leave`, which is lower; the worst source counts. Critical is entered at the
first reading, warn at the second in a row; a level is left after `calm_ns` in which no source held it, or
after `latch_ns` without a call for it.

Invariants: no two steps down within `calm_ns`; no alarm from silence; no level outlives its last reading by more than
`stale_ns`. The node's monitor makes the only state, with `observe`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from reliability.rolling import SECOND_NS

_WARN_READINGS = 2  # in a row, before the level is warn


class Level(StrEnum):
    """How short of memory a node is."""

    UNKNOWN = "unknown"
    NORMAL = "normal"
    WARN = "warn"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 to 2 for the known levels, -1 for unknown."""
        return _LEVELS.index(self) if self in _LEVELS else -1


_LEVELS = (Level.NORMAL, Level.WARN, Level.CRITICAL)
_CRITICAL = 2
_Edge = Literal["enter", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where a source calls for a level (`enter`), and down to where it holds it (`leave`)."""

    warn_enter: float
    warn_leave: float
    critical_enter: float
    critical_leave: float


MACOS_LEVEL = Thresholds(warn_enter=2, warn_leave=2, critical_enter=4, critical_leave=4)
LINUX_PSI = Thresholds(warn_enter=10, warn_leave=5, critical_enter=40, critical_leave=20)
USED_SHARE = Thresholds(warn_enter=0.85, warn_leave=0.80, critical_enter=0.95, critical_leave=0.90)


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureConfig:
    """The sources by name, and how long things take."""

    sources: Mapping[str, Thresholds]
    calm_ns: int = 10 * SECOND_NS
    latch_ns: int = 300 * SECOND_NS
    stale_ns: int = 15 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source reports. None or not a number: it can't tell."""

    source: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Pressure:
    """The state of one node. `held_ns`, `called_ns`: when a source last held, last called for, the level."""

    level: Level = Level.UNKNOWN
    source: str = ""
    now_ns: int = 0
    fresh_until_ns: int = 0
    held_ns: int = 0
    called_ns: int = 0
    pressed_ns: int | None = None
    rising: int = 0
    values: Mapping[str, tuple[float, int]] = field(default_factory=dict)


def level_at(pressure: Pressure, now_ns: int) -> Level:
    """Return the level at this moment: unknown once the last reading is stale."""
    return pressure.level if now_ns < pressure.fresh_until_ns else Level.UNKNOWN


def measure_sustained_ns(pressure: Pressure, now_ns: int) -> int:
    """Return for how long the level has been at warn or above. 0 where it is not, or is unknown."""
    if pressure.pressed_ns is None or level_at(pressure, now_ns) is Level.UNKNOWN:
        return 0
    return max(0, now_ns - pressure.pressed_ns)


def observe(pressure: Pressure, config: PressureConfig, readings: Sequence[Reading], now_ns: int) -> Pressure:
    """Take what the sources report now; with none, only let time pass. The clock never runs back."""
    now_ns = max(now_ns, pressure.now_ns)
    observed = {r.source: (r.value, now_ns) for r in readings if r.value is not None and r.value == r.value}
    known = {**pressure.values, **observed}
    values = {
        name: known[name] for name in config.sources if name in known and now_ns < known[name][1] + config.stale_ns
    }
    fresh_until_ns = max((seen for _, seen in values.values()), default=0) + config.stale_ns
    seen = replace(pressure, now_ns=now_ns, values=values, fresh_until_ns=fresh_until_ns if values else now_ns)
    if not values:
        return replace(seen, level=Level.UNKNOWN, source="", pressed_ns=None, rising=0)
    loud = any(_rank(config.sources[name], "enter", values[name][0]) for name in observed if name in values)
    return _move_level(seen, config, loud, now_ns)


def _move_level(pressure: Pressure, config: PressureConfig, loud: bool, now_ns: int) -> Pressure:
    called, caller = _worst_source(pressure, config, "enter")
    held, holder = _worst_source(pressure, config, "leave")
    rank = pressure.level.rank
    rising = pressure.rising + loud if called > max(rank, 0) else 0
    if called > rank and (rank < 0 or called == _CRITICAL or rising >= _WARN_READINGS):
        return _enter_level(pressure, called, caller, now_ns)
    if called >= rank:
        source = caller if rank > 0 else ""
        return replace(pressure, source=source, rising=rising, held_ns=now_ns, called_ns=now_ns)
    if held >= rank and now_ns - pressure.called_ns < config.latch_ns:
        return replace(pressure, source=holder, held_ns=now_ns)
    if held < rank and now_ns - pressure.held_ns < config.calm_ns:
        return pressure
    below = [name for ranked, name in ((called, caller), (held, holder)) if ranked >= rank - 1]
    return _enter_level(pressure, rank - 1, below[0] if below else pressure.source, now_ns)


def _enter_level(pressure: Pressure, rank: int, source: str, now_ns: int) -> Pressure:
    pressed_ns = now_ns if pressure.pressed_ns is None else pressure.pressed_ns
    return replace(
        pressure,
        level=_LEVELS[rank],
        source=source if rank > 0 else "",
        held_ns=now_ns,
        called_ns=now_ns,
        pressed_ns=pressed_ns if rank > 0 else None,
        rising=0,
    )


def _worst_source(pressure: Pressure, config: PressureConfig, edge: _Edge) -> tuple[int, str]:
    ranks = [(_rank(config.sources[name], edge, value), name) for name, (value, _) in pressure.values.items()]
    return max(ranks, key=lambda ranked: ranked[0])


def _rank(thresholds: Thresholds, edge: _Edge, value: float) -> int:
    """Return the rank of the level that a value calls for (`enter`), or holds (`leave`)."""
    warn, critical = getattr(thresholds, f"warn_{edge}"), getattr(thresholds, f"critical_{edge}")
    return int(value >= warn) + int(value >= critical)
