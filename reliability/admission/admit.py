"""May this call run now? Breaker, token budget, retry budget and memory level, in one step.

A *grant* is the permit of the tier's breaker, a reservation of tokens and a counted call together. `admit`
gives all of it or nothing: each part is a pure step on its own value, and the new values are put together
only when all have said yes. So a rejection leaves the others untouched, and nothing ever has to be rolled back.

A grant is open from `admit` until `settle` names it, or until it expires; then it is closed by whichever call
comes next (`expire` is for the owner's timer): the verdict counts as ignored, and charged is what `progress` has last
said that the call has used. A settle for a grant that isn't open changes nothing, but that one that has expired is
charged what it used beyond. Grant names are unique as long as each life of the owner brings
its own `epoch`; grants of an older epoch stay settleable.

Who owns it: one writer (an actor, the simulator). Every state is an immutable value; an older one stays
valid, and `admit` copies a few small dicts however many sessions are remembered. Time is the owner's:
nanoseconds that don't run backwards, also across restarts (wall clock at start plus monotonic clock since); a
step back stands still.

Must never happen: a grant with only some of its parts, a part without its grant, a state that can't be
written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reliability.admission import breaker as breakers
from reliability.admission import budget as budgets
from reliability.admission import retry_budget as retries
from reliability.admission.breaker import Breaker, BreakerConfig, Change, Permit, Phase
from reliability.admission.budget import Budget, BudgetAsk, BudgetConfig, Closed, Load, Policy, Reserved
from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.admission.memory_rules import MemoryRules, memory_rule
from reliability.admission.retry_budget import RetryBudget, RetryBudgetConfig
from reliability.admission.shards import Shards
from reliability.memory.pressure import Level
from reliability.rolling import SECOND_NS
from reliability.types import Usage, Verdict

__all__ = [
    "PROGRESS_TOKENS",
    "Admission",
    "AdmissionConfig",
    "Ask",
    "Grant",
    "MemoryRules",
    "RejectedBy",
    "Rejection",
    "Settled",
    "admit",
    "charge",
    "close",
    "expire",
    "isolate",
    "memory_rule",
    "phase_of",
    "progress",
    "reset_session",
    "restore",
    "settle",
    "sweep",
    "with_epoch",
]

TIERS_MAX = 64  # tiers come from the configuration; this only bounds a mistake


class RejectedBy(StrEnum):
    """Why a call may not run."""

    MEMORY_PRESSURE = "memory_pressure"
    OPEN = "open"
    PROBING = "probing"
    ISOLATED = "isolated"
    BUDGET = "budget"
    RETRY_BUDGET = "retry_budget"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """All limits. `breakers` holds the tiers whose breaker differs from `breaker`."""

    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    breakers: Mapping[str, BreakerConfig] = field(default_factory=dict)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    retries: RetryBudgetConfig = field(default_factory=RetryBudgetConfig)
    memory: MemoryRules = field(default_factory=MemoryRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One call that wants to run. `extra`: its request has called this tier before. `fallback`: it has called others
    before, but not this one."""

    tier: str
    key: str
    session: str
    prompt_tokens: int
    output_tokens: int | None = None
    tools: int = 0
    extra: bool = False
    fallback: bool = False
    cheap: bool = False
    local: bool = True
    level: Level = Level.UNKNOWN
    sustained_ns: int = 0
    hold_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The call may run until `expires_ns` and generate `output_cap` tokens. It is settled once, by its id."""

    id: str
    tier: str
    probe: bool
    tokens: int
    output_cap: int
    capped: bool
    expires_ns: int
    warnings: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Rejection:
    """The call may not run. `policy`, `windows` and `asked` (tokens) only where the token budget rejects."""

    tier: str
    rejected_by: RejectedBy
    detail: str
    retry_after_s: float | None
    policy: Policy | None = None
    windows: tuple[Load, ...] = ()
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """What closing a grant did. With `known` False it was not open, and nothing changed."""

    id: str
    known: bool
    tier: str = ""
    expired: bool = False
    tokens: int = 0
    overrun: int = 0
    warnings: tuple[Load, ...] = ()
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """What an open grant holds beside its reservation of the same name."""

    tier: str
    permit: Permit


@dataclass(frozen=True, slots=True)
class Admission:
    """All that stands between a request and a tier."""

    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    retries: RetryBudget = field(default_factory=RetryBudget)
    grants: Shards[Open] = field(default_factory=Shards)
    granted: int = 0
    epoch: str = ""
    now_ns: int = 0


def admit(state: Admission, config: AdmissionConfig, ask: Ask, now_ns: int) -> tuple[Admission, Grant | Rejection]:
    """Give everything that the call needs, or nothing."""
    now_ns = max(now_ns, state.now_ns)
    state, _ = expire(state, config, now_ns)
    rejection = _reject_at_once(state, config, ask)
    if rejection is not None:
        return state, rejection
    breaker, permit = breakers.admit(
        state.breakers.get(ask.tier, Breaker()), _breaker_config(config, ask.tier), now_ns, ask.hold_ns
    )
    if isinstance(permit, breakers.Rejected):
        return state, _reject_by_breaker(ask.tier, permit)
    name = f"{state.epoch}:{state.granted}"
    hold_ns = permit.expires_ns - now_ns
    budget, reserved = budgets.reserve(state.budget, config.budget, name, _budget_ask(ask), now_ns, hold_ns)
    if isinstance(reserved, budgets.Denied):
        return state, _reject_by_budget(ask.tier, reserved)
    calls, taken = retries.take(state.retries, config.retries, ask.extra, now_ns, counted=not ask.fallback)
    if isinstance(taken, retries.Exhausted):
        wait_s = taken.retry_after_ns / SECOND_NS
        return state, Rejection(ask.tier, RejectedBy.RETRY_BUDGET, "too many extra calls", wait_s)
    after = Admission(
        breakers={**state.breakers, ask.tier: breaker},
        budget=budget,
        retries=calls,
        grants=state.grants.put(name, Open(ask.tier, permit)),
        granted=state.granted + 1,
        epoch=state.epoch,
        now_ns=now_ns,
    )
    return after, _grant(ask.tier, permit, reserved)


def settle(
    state: Admission,
    config: AdmissionConfig,
    grant_id: str,
    verdict: Verdict,
    usage: Usage | None,
    now_ns: int,
    retry_after_ns: int = 0,
) -> tuple[Admission, Settled]:
    """Close a grant. `usage` None: unknown, so what was reserved is charged. Too late: its verdict is ignored."""
    now_ns = max(now_ns, state.now_ns)
    tokens = None if usage is None else usage.total_tokens
    budget, closed = budgets.settle(state.budget, config.budget, grant_id, tokens, now_ns)
    if closed is None:
        late = budget is not state.budget  # it has expired, and is charged the rest
        return replace(state, budget=budget, now_ns=now_ns) if late else state, Settled(grant_id, known=False)
    after = replace(state, budget=budget, now_ns=now_ns)
    return _released(after, config, closed, verdict, retry_after_ns)


def progress(state: Admission, grant_id: str, tokens: int) -> Admission:
    """Note what an open grant's call has used so far, prompt included. The same state where that is nothing new."""
    budget = budgets.progress(state.budget, grant_id, tokens)
    return state if budget is state.budget else replace(state, budget=budget)


def charge(state: Admission, config: AdmissionConfig, key: str, session: str, tokens: int, now_ns: int) -> Admission:
    """Count the tokens of a call that ran without a grant. No breaker hears of it."""
    now_ns = max(now_ns, state.now_ns)
    state, _ = expire(state, config, now_ns)
    budget = budgets.charge(state.budget, config.budget, key, session, tokens, now_ns)
    return replace(state, budget=budget, now_ns=now_ns)


def expire(state: Admission, config: AdmissionConfig, now_ns: int) -> tuple[Admission, tuple[Settled, ...]]:
    """Close the grants that were never settled. Costs nothing where nothing is due."""
    now_ns = max(now_ns, state.now_ns)
    budget, closed = budgets.expire(state.budget, config.budget, now_ns)
    if budget is state.budget:
        return state, ()
    state = replace(state, budget=budget, now_ns=now_ns)
    settled: list[Settled] = []
    for each in closed:
        state, answer = _released(state, config, each, Verdict.IGNORED, 0)
        settled.append(answer)
    return state, tuple(settled)


def isolate(state: Admission, tier: str) -> Admission:
    """Keep all calls off a tier, by hand."""
    if not _has_room(state, tier):
        return state
    return _with_breaker(state, tier, breakers.isolate(state.breakers.get(tier, Breaker())))


def restore(state: Admission, tier: str) -> Admission:
    """Lift the hold by hand; the breaker beneath is as it was."""
    known = state.breakers.get(tier)
    return state if known is None else _with_breaker(state, tier, breakers.restore(known))


def close(state: Admission, tier: str, now_ns: int) -> Admission:
    """Close a tier's breaker by hand. A hold by hand stays."""
    known = state.breakers.get(tier)
    return state if known is None else _with_breaker(state, tier, breakers.close(known, max(now_ns, state.now_ns)))


def reset_session(state: Admission, key: str, session: str) -> Admission:
    """Forget by hand what a session has spent."""
    return replace(state, budget=budgets.reset_session(state.budget, key, session))


def sweep(state: Admission, config: AdmissionConfig, now_ns: int) -> Admission:
    """Let every idle session go: for the owner's timer. The same state where there is none."""
    budget = budgets.sweep(state.budget, config.budget, max(now_ns, state.now_ns))
    return state if budget is state.budget else replace(state, budget=budget)


def phase_of(state: Admission, tier: str, now_ns: int) -> Phase:
    """The phase of a tier's breaker, for display: it changes nothing."""
    return breakers.phase_at(state.breakers.get(tier, Breaker()), max(now_ns, state.now_ns))


def with_epoch(state: Admission, epoch: str) -> Admission:
    """The state of a new life of the owner: new grants get names that no older life has given."""
    return replace(state, epoch=epoch)


def _reject_at_once(state: Admission, config: AdmissionConfig, ask: Ask) -> Rejection | None:
    rule = memory_rule(config.memory, ask)
    if rule:
        return Rejection(ask.tier, RejectedBy.MEMORY_PRESSURE, rule, config.memory.retry_after_s)
    if _has_room(state, ask.tier):
        return None
    return Rejection(ask.tier, RejectedBy.FULL, f"more than {TIERS_MAX} tiers", None)


def _budget_ask(ask: Ask) -> BudgetAsk:
    return BudgetAsk(
        key=ask.key,
        session=ask.session,
        prompt_tokens=ask.prompt_tokens,
        output_tokens=ask.output_tokens,
        cheap=ask.cheap,
        slack=0 if ask.local else PROGRESS_TOKENS,  # what a paid call may have cost since it last said so
    )


def _grant(tier: str, permit: Permit, held: Reserved) -> Grant:
    cap, expires_ns = held.output_cap, held.expires_ns
    return Grant(held.name, tier, permit.probe, held.tokens, cap, held.capped, expires_ns, held.warnings)


def _released(
    state: Admission, config: AdmissionConfig, closed: Closed, verdict: Verdict, retry_after_ns: int
) -> tuple[Admission, Settled]:
    """Return the permit of a grant whose reservation has just been closed."""
    held = state.grants.get(closed.name)
    if held is None:
        return state, Settled(closed.name, known=False)
    says = Verdict.IGNORED if closed.expired else verdict
    breaker, change = breakers.settle(
        state.breakers.get(held.tier, Breaker()),
        _breaker_config(config, held.tier),
        held.permit,
        says,
        state.now_ns,
        retry_after_ns,
    )
    after = replace(
        state,
        breakers={**state.breakers, held.tier: breaker},
        grants=state.grants.drop(closed.name),
    )
    return after, Settled(
        id=closed.name,
        known=True,
        tier=held.tier,
        expired=closed.expired,
        tokens=closed.tokens,
        overrun=closed.overrun,
        warnings=closed.warnings,
        change=change,
    )


def _reject_by_breaker(tier: str, rejected: breakers.Rejected) -> Rejection:
    wait_ns = rejected.retry_after_ns
    rejected_by = RejectedBy(rejected.cause.value)
    return Rejection(
        tier, rejected_by, f"breaker is {rejected_by.value}", None if wait_ns is None else wait_ns / SECOND_NS
    )


def _reject_by_budget(tier: str, denied: budgets.Denied) -> Rejection:
    if denied.denial is budgets.Denial.ROOM:
        return Rejection(tier, RejectedBy.FULL, "too many open reservations", denied.retry_after_s)
    detail = ", ".join(f"{load.window}: {load.tokens} > {load.tokens_max}" for load in denied.windows)
    return Rejection(tier, RejectedBy.BUDGET, detail, denied.retry_after_s, denied.policy, denied.windows, denied.asked)


def _with_breaker(state: Admission, tier: str, breaker: Breaker) -> Admission:
    return replace(state, breakers={**state.breakers, tier: breaker})


def _has_room(state: Admission, tier: str) -> bool:
    return tier in state.breakers or len(state.breakers) < TIERS_MAX


def _breaker_config(config: AdmissionConfig, tier: str) -> BreakerConfig:
    return config.breakers.get(tier, config.breaker)
