"""What the monitors, views and leases of one application agree on: settings, needs, names of monitors, their reports.

The digest of the settings stands in a monitor's name, so a redeploy with other settings starts a new one. A report
crosses processes, so it has durations and no moments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reliability.config import MemoryPressureConfig
from reliability.memory.pressure import Level

_SHARE = MemoryPressureConfig.model_fields["budget_share"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """As `reliability.config.MemoryPressureConfig`; a monitor that isn't called for `linger_s` ends."""

    sensor: str = "auto"
    budget_bytes: int | None = None
    budget_share: float | None = None
    poll_s: float = 1.0
    calm_s: float = 10.0
    stale_s: float = 15.0
    lease_s: float = 10.0
    linger_s: float = 60.0

    def budget_of(self, total_bytes: int | None, working_set_bytes: int | None = None) -> int | None:
        """Return what all replicas of a node may hold: the GPU's working set, where nothing is set; None: unknown."""
        if self.budget_bytes is not None:
            return self.budget_bytes
        if self.budget_share is None and working_set_bytes is not None:
            return working_set_bytes
        share = _SHARE if self.budget_share is None else self.budget_share
        return None if total_bytes is None else int(total_bytes * share)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that change with any setting."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierNeed:
    """What one replica of a tier takes. `replica_bytes` None: not known yet. `priority`: the higher, the earlier it
    grows. `local` False: it runs elsewhere, and this machine's memory doesn't bound it."""

    name: str
    replica_bytes: int | None
    replicas_min: int
    replicas_max: int
    priority: int = 0
    local: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """All that a replica must know to take part."""

    settings: MonitorSettings
    needs: tuple[TierNeed, ...] = ()


def settings_of(config: MemoryPressureConfig) -> MonitorSettings | None:
    """Return the settings, or None where memory pressure is switched off."""
    if not config.enabled:
        return None
    share = config.budget_share if "budget_share" in config.model_fields_set else None
    same = config.model_dump(include={"sensor", "budget_bytes", "poll_s", "calm_s", "stale_s", "lease_s"})
    return MonitorSettings(budget_share=share, **same)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A replica that holds bytes, or waits for them (`why`). `used_bytes`: what its process really holds."""

    holder: str
    tier: str
    bytes: int
    since_s: float
    why: str = ""
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeState:
    """What a reading says of a node, and who holds its memory. `source`: what decided its level."""

    node: str
    host: str
    source: str
    values: Mapping[str, float]
    total_bytes: int | None
    available_bytes: int | None
    budget_bytes: int | None
    held: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition(_NodeState):
    """A node's move between levels. `id` is unique for ever; `age_s` is as of the report."""

    id: str
    before: Level
    after: Level
    age_s: float = 0.0

    def snapshot(self) -> dict[str, Any]:
        """Return the transition as JSON: for an incident."""
        held = [{"tier": h.tier, "replica": h.holder, "bytes": h.bytes, "used_bytes": h.used_bytes} for h in self.held]
        told = asdict(self)
        del told["age_s"]
        return told | {"before": self.before.value, "after": self.after.value, "held": held}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport(_NodeState):
    """What a monitor knows. `fresh_s`: for how long from now the level may be believed; 0: it is unknown. `epoch` names
    one incarnation of the monitor, `started_unix_s` tells which of two monitors of a node is newer. `needs` and `caps`
    are the last that a view and the policy brought; `caps` says per tier why it doesn't get what it wants."""

    pid: int
    epoch: str
    started_unix_s: float
    level: Level
    sustained_s: float
    fresh_s: float
    waiting: tuple[Holder, ...]
    needs: tuple[TierNeed, ...]
    caps: Mapping[str, str]
    transitions: tuple[Transition, ...]
    problem: str = ""
