"""May this call run now? Breaker, token budget, retry budget and memory level, in one step.

A *grant* is the permit of the tier's breaker, a reservation of tokens and a counted call together: `admit` gives all of
it or nothing. It is open until `settle` names it or until it expires; then the next call closes it as ignored, and
charges what `progress` last reported. A late settle changes nothing but adds what was used beyond that.

Invariants: one writer; states are immutable values, and `admit` copies a few small dicts. Time is nanoseconds, and a
step back stands still. Grant names are unique as long as each incarnation of the owner brings its own `epoch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from reliability.admission import breaker as breakers
from reliability.admission import budget as budgets
from reliability.admission.breaker import Breaker, BreakerConfig, Permit, Phase
from reliability.admission.budget import BudgetConfig
from reliability.admission.ledger import Budget
from reliability.admission.persistent_map import Shards
from reliability.admission.request import (
    AdmissionRequest,
    ClosedGrant,
    Grant,
    MemoryRules,
    RejectedBy,
    Rejection,
    memory_rule,
)
from reliability.admission.retry_budget import RetryBudget, RetryBudgetLimits, take
from reliability.rolling import SECOND_NS
from reliability.types import Usage, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """All limits."""

    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    retries: RetryBudgetLimits = field(default_factory=RetryBudgetLimits)
    memory: MemoryRules = field(default_factory=MemoryRules)


@dataclass(frozen=True, slots=True)
class _OpenGrant:
    """What an open grant holds beside its reservation of the same name."""

    tier: str
    permit: Permit


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """All that stands between a request and a tier."""

    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    retries: RetryBudget = field(default_factory=RetryBudget)
    grants: Shards[_OpenGrant] = field(default_factory=Shards)
    granted: int = 0
    epoch: str = ""
    now_ns: int = 0


def admit(
    state: AdmissionState, config: AdmissionConfig, request: AdmissionRequest, now_ns: int
) -> tuple[AdmissionState, Grant | Rejection]:
    """Give everything that the call needs, or nothing."""
    now_ns = max(now_ns, state.now_ns)
    state, _ = expire(state, config, now_ns)
    if rule := memory_rule(config.memory, request):
        return state, Rejection(request.tier, RejectedBy.MEMORY_PRESSURE, rule, config.memory.retry_after_s)
    known = state.breakers.get(request.tier, Breaker())
    breaker, permit = breakers.admit(known, config.breaker, now_ns, request.hold_ns, request.key)
    if isinstance(permit, breakers.BreakerRejection):
        rejected_by, wait_ns = RejectedBy(permit.cause.value), permit.retry_after_ns
        wait_s = None if wait_ns is None else wait_ns / SECOND_NS
        return state, Rejection(request.tier, rejected_by, f"breaker is {rejected_by.value}", wait_s)
    name = f"{state.epoch}:{state.granted}"
    hold_ns = permit.expires_ns - now_ns
    budget, reserved = budgets.reserve(state.budget, config.budget, name, request, now_ns, hold_ns)
    if isinstance(reserved, Rejection):
        return state, reserved
    calls, wait_ns = state.retries, None
    if not request.fallback:
        calls, wait_ns = take(calls, config.retries, request.extra, now_ns, request.key)
    if wait_ns is not None:
        return state, Rejection(request.tier, RejectedBy.RETRY_BUDGET, "too many extra calls", wait_ns / SECOND_NS)
    after = replace(
        _with_breaker(state, request.tier, breaker),
        budget=budget,
        retries=calls,
        grants=state.grants.put(name, _OpenGrant(request.tier, permit)),
        granted=state.granted + 1,
        now_ns=now_ns,
    )
    return after, replace(reserved, probe=permit.probe)


def settle(
    state: AdmissionState,
    config: AdmissionConfig,
    grant_id: str,
    verdict: Verdict,
    usage: Usage | None,
    now_ns: int,
    retry_after_ns: int = 0,
) -> tuple[AdmissionState, ClosedGrant]:
    """Close a grant. `usage` None: unknown, so what was reserved is charged. Too late: its verdict is ignored."""
    now_ns = max(now_ns, state.now_ns)
    tokens = None if usage is None else usage.total_tokens
    budget, closed = budgets.settle(state.budget, config.budget, grant_id, tokens, now_ns)
    if closed is None:
        late = budget is not state.budget  # it has expired, and is charged the rest
        return replace(state, budget=budget, now_ns=now_ns) if late else state, ClosedGrant(grant_id, known=False)
    after = replace(state, budget=budget, now_ns=now_ns)
    return _release_permit(after, config, closed, verdict, retry_after_ns)


def charge(
    state: AdmissionState, config: AdmissionConfig, key: str, session: str, tokens: int, now_ns: int
) -> AdmissionState:
    """Count the tokens of a call that ran without a grant. No breaker learns of it."""
    now_ns = max(now_ns, state.now_ns)
    state, _ = expire(state, config, now_ns)
    budget = budgets.charge(state.budget, config.budget, key, session, tokens, now_ns)
    return replace(state, budget=budget, now_ns=now_ns)


def expire(
    state: AdmissionState, config: AdmissionConfig, now_ns: int
) -> tuple[AdmissionState, tuple[ClosedGrant, ...]]:
    """Close the grants that were never settled. Costs nothing where nothing is due."""
    now_ns = max(now_ns, state.now_ns)
    budget, closed = budgets.expire(state.budget, now_ns)
    if budget is state.budget:
        return state, ()
    state = replace(state, budget=budget, now_ns=now_ns)
    settled: list[ClosedGrant] = []
    for each in closed:
        state, answer = _release_permit(state, config, each, Verdict.IGNORED, 0)
        settled.append(answer)
    return state, tuple(settled)


def obey(
    state: AdmissionState, tier: str, order: Literal["isolate", "restore", "close"], now_ns: int
) -> AdmissionState:
    """Obey an operator: keep all calls off a tier, lift that hold, or close the tier's breaker (a hold stays)."""
    known = state.breakers.get(tier)
    if order == "isolate":
        return _with_breaker(state, tier, replace(known or Breaker(), isolated=True))
    if known is None:
        return state
    if order == "restore":
        return _with_breaker(state, tier, replace(known, isolated=False))
    return _with_breaker(state, tier, breakers.close(known, max(now_ns, state.now_ns)))


def phase_of(state: AdmissionState, tier: str, now_ns: int) -> Phase:
    """Return the phase of a tier's breaker, for display: it changes nothing."""
    return breakers.phase_at(state.breakers.get(tier, Breaker()), max(now_ns, state.now_ns))


def _release_permit(
    state: AdmissionState, config: AdmissionConfig, closed: ClosedGrant, verdict: Verdict, retry_after_ns: int
) -> tuple[AdmissionState, ClosedGrant]:
    """Return the permit of a grant whose reservation has just been closed."""
    held = state.grants.get(closed.id)
    if held is None:
        return state, ClosedGrant(closed.id, known=False)
    known = state.breakers.get(held.tier, Breaker())
    verdict = Verdict.IGNORED if closed.expired else verdict
    breaker, change = breakers.settle(known, config.breaker, held.permit, verdict, state.now_ns, retry_after_ns)
    after = replace(_with_breaker(state, held.tier, breaker), grants=state.grants.drop(closed.id))
    return after, replace(closed, tier=held.tier, change=change)


def _with_breaker(state: AdmissionState, tier: str, breaker: Breaker) -> AdmissionState:
    return replace(state, breakers={**state.breakers, tier: breaker})
