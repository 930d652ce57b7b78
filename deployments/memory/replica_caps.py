"""What the nodes' memory allows each tier: `reliability.memory.replicas` over the reports of all monitors.

A tier that not even the largest node could hold once isn't counted: its replica is refused by the lease and holds
nothing. Invariants: no tier grows while a node that counts for it is unknown; the bytes stay within the budgets, unless
the minimums alone are more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deployments.memory.plan import NodeReport, TierNeed
from reliability.memory.pressure import Level
from reliability.memory.replicas import Demand, Fit, replicas_that_fit


def cap_replicas(
    needs: tuple[TierNeed, ...], reports: tuple[NodeReport, ...], wanted: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, Fit]:
    """Cap the replicas of each deployment. Without needs (no view has called yet) nothing grows. Tiers whose number is
    fixed aren't in `wanted`, but their bytes count."""
    budgets = [report.budget_bytes for report in reports]
    never = _find_never(needs, budgets)
    local = {need.name: need for need in needs if need.local and need.name not in never}
    if not needs:
        why = "no monitor has reported yet: nothing grows"
        return {n: Fit(n, min(w, now[n]), why if w > now[n] else "") for n, w in wanted.items()}
    fixed = {name: need.replicas_min for name, need in local.items()}
    all_wanted, all_now = {**fixed, **wanted}, {**fixed, **now}
    demands = [_build_demand(need, reports, all_wanted[name], all_now[name]) for name, need in local.items()]
    budget = sum(b for b in budgets if b is not None) if budgets and None not in budgets else None
    by_level: dict[Level, dict[str, Fit]] = {}
    fits = {name: Fit(name, count, "") for name, count in wanted.items()}
    for need in needs:
        if need.name in wanted and need.name in never:
            fits[need.name] = Fit(need.name, min(need.replicas_min, wanted[need.name]), never[need.name])
    for name in local.keys() & wanted.keys():
        level = _level_of(name, reports)
        if level not in by_level:
            by_level[level] = {fit.name: fit for fit in replicas_that_fit(demands, budget, level)}
        fits[name] = _cap_by_node(by_level[level][name], local[name], reports)
    return fits


def _build_demand(need: TierNeed, reports: tuple[NodeReport, ...], wanted: int, now: int) -> Demand:
    """Build the demand of a tier. One whose bytes aren't known counts with what its largest replica holds."""
    held = max((h.bytes for r in reports for h in r.held if h.tier == need.name), default=0)
    return Demand(
        name=need.name,
        replica_bytes=max(need.replica_bytes or 0, held),
        replicas_min=need.replicas_min,
        replicas_wanted=wanted,
        replicas_now=now,
        priority=need.priority,
    )


def _level_of(tier: str, reports: tuple[NodeReport, ...]) -> Level:
    """Return the level for a tier: unknown where any node that counts is unknown and none is in trouble."""
    homes = [r for r in reports if tier in {h.tier for h in r.held}] or reports
    levels = [report.level if report.fresh_s > 0 else Level.UNKNOWN for report in homes]
    worst = max(levels, key=lambda level: level.rank, default=Level.UNKNOWN)
    return Level.UNKNOWN if worst is Level.NORMAL and Level.UNKNOWN in levels else worst


def _cap_by_node(fit: Fit, need: TierNeed, reports: tuple[NodeReport, ...]) -> Fit:
    if not need.replica_bytes:
        return fit
    whole = sum((report.budget_bytes or 0) // need.replica_bytes for report in reports)
    replicas = max(whole, need.replicas_min)
    if not reports or fit.replicas <= replicas:
        return fit
    return Fit(fit.name, replicas, f"the nodes hold {whole} replicas of {need.replica_bytes} bytes one by one")


def find_refused_replicas(needs: Sequence[TierNeed], budgets: Sequence[int | None]) -> dict[str, str]:
    """Find why tiers can't have their `max_replicas`, by tier: all their bytes against the nodes' budgets."""
    known = [budget for budget in budgets if budget is not None]
    if not known:
        return {}
    never = _find_never(needs, known)
    local = [need for need in needs if need.local and need.name not in never]
    demands = [_build_demand(need, (), need.replicas_max, need.replicas_max) for need in local]
    fits = replicas_that_fit(demands, sum(known), Level.NORMAL)
    return never | {fit.name: fit.why for fit in fits if fit.why}


def _find_never(needs: Sequence[TierNeed], budgets: Sequence[int | None]) -> dict[str, str]:
    """Find the tiers of which no node could ever hold a replica, and why; none where a budget isn't known."""
    known = [budget for budget in budgets if budget is not None]
    if not known or len(known) < len(budgets):
        return {}
    largest = max(known)
    return {
        need.name: f"{need.replica_bytes} bytes needed for one replica, the largest budget of a node is {largest}"
        for need in needs
        if need.local and need.replica_bytes and need.replica_bytes > largest
    }
