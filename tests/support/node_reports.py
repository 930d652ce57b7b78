"""Nodes and needs as the tests of replica counts want them."""

from typing import Any

from deployments.memory.plan import NodeReport, TierNeed
from reliability.memory.pressure import Level

GB = 10**9


def report(node: str = "n", **changes: Any) -> NodeReport:
    facts: dict[str, Any] = {"node": node, "host": node, "pid": 1, "epoch": "e", "started_unix_s": 1.0}
    facts |= {"level": Level.NORMAL, "source": "", "sustained_s": 0.0, "fresh_s": 10.0, "values": {}, "caps": {}}
    facts |= {"total_bytes": 16 * GB, "available_bytes": 14 * GB, "budget_bytes": 12 * GB}
    facts |= dict.fromkeys(("held", "waiting", "needs", "transitions"), ())
    return NodeReport(**(facts | changes))


def need(name: str, gb: float, least: int = 1, most: int = 10, **changes: Any) -> TierNeed:
    return TierNeed(name=name, replica_bytes=int(gb * GB), replicas_min=least, replicas_max=most, **changes)
