"""Where a request goes next: `decide(situation)`, an ordered list of small policies.

`decide` sees only the attempts so far and what is left of the request's limits, and the first policy that has an
opinion wins. It keeps nothing between calls: a request has few attempts, so each decision reads them all again. The
order of `POLICIES` is the specification:

1. a good answer is accepted;
2. once text or calls have left for the client, no other answer can take their place: refuse (the shell ends the
   stream in an error frame);
3. a request that a tier calls wrong in itself is refused, since every tier would say so;
4. no time or no attempt left: refuse;
5. a fault that a second call may cure is retried on the same tier, a bounded number of times;
6. otherwise the next tier of the chain;
7. nothing left: refuse, with the most telling of the faults met.

This is the only place that retries. Inner clients retry nothing.

What must never happen: a tier called twice after it said that it can't (no model, no key), a call after the commit
point, a walk that goes back down the chain, more attempts than `attempts_max`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from reliability.types import Attempt, Fault, Flaw, Reason

__all__ = [
    "POLICIES",
    "Accept",
    "Call",
    "Decision",
    "Limits",
    "Refuse",
    "RefuseCode",
    "Situation",
    "decide",
    "reason_of",
]

BACKOFF_FIRST_NS = 100_000_000
BACKOFF_MAX_NS = 2_000_000_000
# A tier may ask for patience with Retry-After; more than this and another tier is the better answer.
RETRY_AFTER_MAX_NS = 2_000_000_000

TRANSIENT = frozenset({Fault.SERVER_ERROR, Fault.PROTOCOL, Fault.CRASHED})
TIMEOUTS = frozenset(
    {Fault.CONNECT_TIMEOUT, Fault.FIRST_TOKEN_TIMEOUT, Fault.IDLE_TIMEOUT, Fault.TOTAL_TIMEOUT},
)
# The tier said at once that it is no candidate. Moving on is no escalation that a person could have switched off.
NO_CANDIDATE = frozenset({Fault.UNAVAILABLE, Fault.LOADING, Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH})


class RefuseCode(StrEnum):
    """Why a request gets no answer. `deployments/wire/errors.py` maps each to one row of the error table."""

    BAD_REQUEST = "bad_request"
    UNSUPPORTED = "unsupported"
    CONTEXT_LENGTH = "context_length"
    NO_TIER = "no_tier"
    LOADING = "loading"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    UPSTREAM = "upstream"
    DEADLINE = "deadline"
    BROKEN_STREAM = "broken_stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the walk. `escalate_on` holds the reasons that may move a request to another tier."""

    retries_max: int
    attempts_max: int
    escalate_on: frozenset[Reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that `decide` may look at. `chain` begins with the tier that the request starts at; `jitter` is in [0, 1)."""

    chain: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    remaining_ns: int
    limits: Limits
    jitter: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call `tier` after `wait_ns`."""

    tier: str
    wait_ns: int = 0


@dataclass(frozen=True, slots=True)
class Accept:
    """The last attempt is the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """No answer. `message` and `param` are those of the attempt that explains the refusal best."""

    code: RefuseCode
    message: str
    param: str | None = None
    retry_after_s: float | None = None


Decision = Call | Accept | Refuse
Policy = Callable[[Situation], Decision | None]


def decide(situation: Situation) -> Decision:
    """Return what to do next. Total: the last policy always answers."""
    for policy in POLICIES:
        decision = policy(situation)
        if decision is not None:
            return decision
    raise AssertionError("the last policy answers every situation")


def reason_of(attempt: Attempt) -> Reason:
    """The public reason for leaving a tier after `attempt`."""
    if attempt.flaw is Flaw.LOOP:
        return Reason.LOOP_DETECTED
    if attempt.flaw is not None:
        return Reason.TOOL_VALIDATION_FAILURE
    if attempt.fault is Fault.CONTEXT_LENGTH:
        return Reason.CONTEXT_LENGTH
    if attempt.fault in TIMEOUTS:
        return Reason.TIMEOUT
    return Reason.SERVER_ERROR


def accept_good(situation: Situation) -> Decision | None:
    """A good attempt is the answer."""
    return Accept() if situation.attempts and situation.attempts[-1].good else None


def stop_after_commit(situation: Situation) -> Decision | None:
    """What the client has seen can't be taken back."""
    last = _last(situation)
    if last is None or not (last.text_out or last.calls_out):
        return None
    return Refuse(code=RefuseCode.BROKEN_STREAM, message=last.detail)


def stop_bad_request(situation: Situation) -> Decision | None:
    """A request that is wrong in itself is wrong on every tier."""
    last = _last(situation)
    if last is None or last.fault is not Fault.BAD_REQUEST:
        return None
    return Refuse(code=RefuseCode.BAD_REQUEST, message=last.detail, param=last.param)


def stop_when_spent(situation: Situation) -> Decision | None:
    """One deadline and one cap of attempts for the whole request."""
    if situation.remaining_ns <= 0:
        return Refuse(code=RefuseCode.DEADLINE, message="the request's deadline has passed")
    if len(situation.attempts) >= situation.limits.attempts_max:
        return refuse_exhausted(situation)
    return None


def retry_transient(situation: Situation) -> Decision | None:
    """Call the same tier again after a fault that a second call may cure."""
    last = _last(situation)
    if last is None or last.fault not in TRANSIENT:
        return None
    retries = sum(1 for a in situation.attempts if a.tier == last.tier) - 1
    # An open breaker of our own would be reached sooner by storming: the wait grows, and `Retry-After` is obeyed.
    wait_ns = max(_backoff_ns(retries, situation.jitter), _retry_after_ns(last))
    patient = wait_ns <= RETRY_AFTER_MAX_NS and wait_ns < situation.remaining_ns
    if retries >= situation.limits.retries_max or not patient:
        return None
    return Call(tier=last.tier, wait_ns=wait_ns)


def climb(situation: Situation) -> Decision | None:
    """The first tier of the chain, then the next one after the tier that was tried last."""
    last = _last(situation)
    if last is None:
        return Call(tier=situation.chain[0])
    if last.fault not in NO_CANDIDATE and reason_of(last) not in situation.limits.escalate_on:
        return None
    position = situation.chain.index(last.tier) + 1
    return Call(tier=situation.chain[position]) if position < len(situation.chain) else None


def refuse_exhausted(situation: Situation) -> Decision:
    """No tier is left: say so with the fault that helps the client most, and name every tier's reason."""
    telling = min(situation.attempts, key=_telling_rank)
    return Refuse(
        code=_code_of(telling),
        message=_walk_in_words(situation.attempts),
        param=telling.param,
        retry_after_s=_retry_after_s(situation.attempts),
    )


POLICIES: tuple[Policy, ...] = (
    accept_good,
    stop_after_commit,
    stop_bad_request,
    stop_when_spent,
    retry_transient,
    climb,
    refuse_exhausted,
)

# What a client can act on comes first: a fault that passes, then what it must change in its request, then what only
# the server's owner can mend.
TELLING: tuple[tuple[frozenset[Fault], RefuseCode], ...] = (
    (frozenset({Fault.OVERLOADED}), RefuseCode.OVERLOADED),
    (TIMEOUTS, RefuseCode.TIMEOUT),
    (TRANSIENT, RefuseCode.UPSTREAM),
    (frozenset({Fault.LOADING}), RefuseCode.LOADING),
    (frozenset({Fault.CONTEXT_LENGTH}), RefuseCode.CONTEXT_LENGTH),
    (frozenset({Fault.UNSUPPORTED}), RefuseCode.UNSUPPORTED),
    (frozenset({Fault.UNAVAILABLE, Fault.AUTH}), RefuseCode.NO_TIER),
)


def _last(situation: Situation) -> Attempt | None:
    return situation.attempts[-1] if situation.attempts else None


def _backoff_ns(retries: int, jitter: float) -> int:
    """Doubling, capped in the exponent so that no number of retries overflows, with up to half of it as jitter."""
    full = min(BACKOFF_MAX_NS, BACKOFF_FIRST_NS << min(retries, 10))
    return int(full * (0.5 + 0.5 * jitter))


def _retry_after_ns(attempt: Attempt) -> int:
    return int((attempt.retry_after_s or 0.0) * 1e9)


def _telling_rank(attempt: Attempt) -> int:
    return next((rank for rank, (faults, _) in enumerate(TELLING) if attempt.fault in faults), len(TELLING))


def _code_of(attempt: Attempt) -> RefuseCode:
    return next((code for faults, code in TELLING if attempt.fault in faults), RefuseCode.UPSTREAM)


def _walk_in_words(attempts: tuple[Attempt, ...]) -> str:
    """One clause a tier, in order; of several attempts on one tier the last speaks. Each clause names its tier."""
    return "; ".join({a.tier: a.detail for a in attempts}.values())


def _retry_after_s(attempts: tuple[Attempt, ...]) -> float | None:
    waits = [a.retry_after_s for a in attempts if a.retry_after_s is not None]
    return min(waits) if waits else None
