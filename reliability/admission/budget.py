"""Tokens: reserved before a call, settled after it. The ledger itself stands in `ledger.py`.

    session, hour, key_hour   tokens of one session, of the server and of one API key in a rolling hour;
                              those of an agent's helper are its agent's session's
    output                    per request: a cap on what may be generated, with a default

A limit of None is counted and never rejects; 0 lets nothing be spent. Policies, per window: `warn_and_continue` admits
and warns; `escalate` rejects all tiers but the cheap one; `hard_stop` rejects. A reservation that expires is charged
what was reported of it and its `slack`, or its prompt where nothing was; a later settle adds what is beyond.

Invariants: under `hard_stop`, spent + reserved never exceeds the limit, except by a tier that uses more than was
reserved for it. The ledger may say too much, never too little. Where all that is remembered (`Bounds`) is
in use, the request is rejected; a forgotten session forgives its session window only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reliability.admission.ledger import HOUR, PROGRESS_TOKENS, Bounds, Budget, Reservation
from reliability.admission.request import (
    AdmissionRequest,
    BudgetWindow,
    ClosedGrant,
    Grant,
    Load,
    Policy,
    RejectedBy,
    Rejection,
)
from reliability.rolling import SECOND_NS

WARN_PERCENT = 80
_IN_FLIGHT_RETRY_S = 5  # where open reservations stand in the way: they end sooner than the hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit of one window. None: counted, never rejected. 0: nothing may be spent."""

    tokens_max: int | None = None
    policy: Policy = Policy.HARD_STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """All limits. `key_hours` holds the API keys whose hour has one."""

    session: Limit = Limit()
    hour: Limit = Limit()
    key_hours: Mapping[str, Limit] = field(default_factory=dict)
    output_tokens_max: int | None = None
    output_tokens_default: int = 2048
    reservation_ns: int = 900 * SECOND_NS
    bounds: Bounds = field(default_factory=Bounds)


def output_cap(config: BudgetConfig, named: int | None) -> int:
    """Return how much a request may generate that names `named` tokens. At least 1."""
    wanted = config.output_tokens_default if named is None else max(1, named)
    return wanted if config.output_tokens_max is None else min(wanted, config.output_tokens_max)


def reserve(
    budget: Budget, config: BudgetConfig, name: str, request: AdmissionRequest, now_ns: int, hold_ns: int | None = None
) -> tuple[Budget, Grant | Rejection]:
    """Set tokens aside for one call, under a name of its own. A rejection changes nothing but what time has closed."""
    budget, _ = expire(budget, now_ns)
    cap = output_cap(config, request.output_tokens)
    tokens = max(0, request.prompt_tokens) + cap
    full = loads(budget, config, request.key, request.payer, now_ns, tokens)
    rejection = _find_rejection(budget, config, request, full, tokens, now_ns)
    if rejection is not None:
        return budget, rejection
    roomy = budget.make_room(config.bounds, request.key, request.payer, now_ns)
    if roomy is None:
        return budget, Rejection(request.tier, RejectedBy.FULL, "too many open reservations", _IN_FLIGHT_RETRY_S)
    hold = config.reservation_ns if hold_ns is None else min(max(0, hold_ns), config.reservation_ns)
    slack = 0 if request.local else PROGRESS_TOKENS  # what a paid call may have cost since its last report
    taken = Reservation(request.key, request.payer, tokens, cap, now_ns + hold, slack=slack)
    warnings = tuple(load for load in full if load.percent >= WARN_PERCENT)
    grant = Grant(name, request.tier, False, tokens, cap, taken.expires_ns, warnings)
    return roomy.open_reservation(config.bounds, name, taken, now_ns), grant


def settle(
    budget: Budget, config: BudgetConfig, name: str, tokens: int | None, now_ns: int
) -> tuple[Budget, ClosedGrant | None]:
    """Close a reservation with the tokens that were used. None: it isn't open; where it has expired, what was used
    beyond its charge is added, once, and else nothing changes."""
    held = budget.open.get(name)
    if held is None:
        budget, late = budget.forget_expired(name)
        if late is not None and tokens is not None and tokens > late.charged:
            budget = budget.charge_unreserved(config.bounds, late.key, late.session, tokens - late.charged, now_ns)
        return budget, None
    expired = now_ns >= held.expires_ns
    charged = held.tokens if tokens is None else max(0, tokens)
    if expired:  # the same ledger, whoever notices the time first
        charged = max(held.estimate, tokens or 0)
    after = budget.close_reservation(name, held, charged, now_ns)
    return after, ClosedGrant(name, True, expired=expired, tokens=charged)


def charge(budget: Budget, config: BudgetConfig, key: str, session: str, tokens: int, now_ns: int) -> Budget:
    """Spend tokens that nobody has reserved: those of a call that ran while the owner of the ledger was away. The
    ledger takes them whatever the limits are: it has happened."""
    budget, _ = expire(budget, now_ns)
    return budget.charge_unreserved(config.bounds, key, session, max(0, tokens), now_ns)


def expire(budget: Budget, now_ns: int) -> tuple[Budget, tuple[ClosedGrant, ...]]:
    """Close what was never settled, at what it is known to have used. Costs nothing where nothing is due."""
    if budget.wake_ns is None or now_ns < budget.wake_ns:
        return budget, ()
    closed: list[ClosedGrant] = []
    due = [(name, held) for name, held in budget.open.items() if now_ns >= held.expires_ns]
    for name, held in due:
        budget = budget.close_reservation(name, held, held.estimate, now_ns).remember_expired(name, held)
        closed.append(ClosedGrant(name, True, expired=True, tokens=held.estimate))
    wake_ns = min((held.expires_ns for _, held in budget.open.items()), default=None)
    return replace(budget, wake_ns=wake_ns), tuple(closed)


def loads(budget: Budget, config: BudgetConfig, key: str, session: str, now_ns: int, more: int = 0) -> tuple[Load, ...]:
    """Compute how full each limited window is for this session, with `more` tokens on top."""
    known, key_hour = budget.session_of(config.bounds, key, session, now_ns), budget.hour_of(key)
    full: list[Load] = []
    for window, used, reserved in (
        (BudgetWindow.SESSION, known.spent + known.reserved, known.reserved),
        (BudgetWindow.HOUR, budget.hour.count(now_ns), budget.hour.reserved),
        (BudgetWindow.KEY_HOUR, key_hour.count(now_ns), key_hour.reserved),
    ):
        tokens, tokens_max = used + more, _find_limit(config, window, key).tokens_max
        if tokens_max is not None:
            percent = tokens * 100 // tokens_max if tokens_max > 0 else 100
            full.append(Load(window, tokens, tokens_max, percent, reserved))
    return tuple(full)


def _find_rejection(
    budget: Budget, config: BudgetConfig, request: AdmissionRequest, full: tuple[Load, ...], tokens: int, now_ns: int
) -> Rejection | None:
    over = [
        (load, _find_limit(config, load.window, request.key).policy) for load in full if load.tokens > load.tokens_max
    ]
    policies = {policy for _, policy in over}
    if Policy.HARD_STOP in policies:
        policy = Policy.HARD_STOP
    elif Policy.ESCALATE in policies and not request.cheap:
        policy = Policy.ESCALATE
    else:
        return None
    windows = tuple(load for load, its in over if its is policy)
    waits = [_wait_s(budget, load, request.key, tokens, now_ns) for load in windows]
    known = [wait for wait in waits if wait is not None]
    wait_s = max(known) if len(known) == len(waits) else None
    detail = ", ".join(f"{load.window}: {load.tokens} > {load.tokens_max}" for load in windows)
    return Rejection(request.tier, RejectedBy.BUDGET, detail, wait_s, policy, windows, tokens)


def _wait_s(budget: Budget, load: Load, key: str, tokens: int, now_ns: int) -> int | None:
    """Return the seconds until the request may fit: exact where no reservation is open, else a guess at when one ends.
    None: never, since it is larger than the limit, or since a session's spent tokens don't come back."""
    if tokens > load.tokens_max:
        return None
    if load.window is BudgetWindow.SESSION:
        return _IN_FLIGHT_RETRY_S if load.tokens - load.reserved <= load.tokens_max else None
    hour = budget.hour if load.window is BudgetWindow.HOUR else budget.hour_of(key)
    spent = hour.spent.drop_expired(HOUR, now_ns)
    excess = load.tokens - load.tokens_max
    wait_ns = spent.frees_in_ns(HOUR, excess, now_ns)
    if wait_ns is None:  # not before reservations return something
        wait_ns = spent.frees_in_ns(HOUR, excess - hour.reserved, now_ns) or 0
    return max(-(-wait_ns // SECOND_NS), _IN_FLIGHT_RETRY_S if hour.reserved else 1)


def _find_limit(config: BudgetConfig, window: BudgetWindow, key: str) -> Limit:
    if window is BudgetWindow.SESSION:
        return config.session
    return config.hour if window is BudgetWindow.HOUR else config.key_hours.get(key, Limit())
