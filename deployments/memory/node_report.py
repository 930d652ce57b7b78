"""What a monitor reports of its node: values that cross processes, so durations and no moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.memory.plan import TierNeed
from reliability.memory.pressure import Level

__all__ = ["Holder", "NodeReport", "NodeState", "Transition"]


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
class NodeState:
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
class Transition(NodeState):
    """A node's move between levels. `id` is unique for ever, so a reader can drop one that it has; `age_s` is as of the
    report."""

    id: str
    before: Level
    after: Level
    age_s: float = 0.0

    def snapshot(self) -> dict[str, Any]:
        """Return the transition as JSON: for an incident."""
        held = [{"tier": h.tier, "replica": h.holder, "bytes": h.bytes, "used_bytes": h.used_bytes} for h in self.held]
        return {
            "id": self.id,
            "node": self.node,
            "host": self.host,
            "before": self.before.value,
            "after": self.after.value,
            "source": self.source,
            "values": dict(self.values),
            "total_bytes": self.total_bytes,
            "available_bytes": self.available_bytes,
            "budget_bytes": self.budget_bytes,
            "held": held,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport(NodeState):
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
