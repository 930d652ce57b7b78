"""Why a request gets no answer: the kinds of faults, the codes of a refusal, and which attempt explains it best."""

from __future__ import annotations

from enum import StrEnum

from reliability.types import Attempt, Fault, Flaw

__all__ = [
    "MENDABLE",
    "NO_CANDIDATE",
    "TIMEOUTS",
    "TRANSIENT",
    "RefuseCode",
    "code_of",
    "retry_after_s",
    "telling_rank",
    "walk_in_words",
]

TRANSIENT = frozenset({Fault.SERVER_ERROR, Fault.PROTOCOL, Fault.CRASHED})
TIMEOUTS = frozenset(
    {Fault.CONNECT_TIMEOUT, Fault.FIRST_TOKEN_TIMEOUT, Fault.IDLE_TIMEOUT, Fault.TOTAL_TIMEOUT},
)
# The tier said at once that it is no candidate, or was barred. Moving on is no escalation that could be switched off.
NO_CANDIDATE = frozenset(
    {
        Fault.UNAVAILABLE,
        Fault.LOADING,
        Fault.UNSUPPORTED,
        Fault.CONTEXT_LENGTH,
        Fault.BREAKER_OPEN,
        Fault.RETRY_BUDGET,
        Fault.MEMORY_PRESSURE,
        Fault.BUDGET,
        Fault.STATE_SILENT,
        Fault.CLOUD_BARRED,
    }
)
MENDABLE = frozenset({Flaw.TOOL_CALL_INVALID, Flaw.EMPTY, Flaw.TRUNCATED, Flaw.CYCLE})


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
    INVALID_ANSWER = "invalid_answer"
    LOOP = "loop"
    BUDGET = "budget"
    MEMORY_PRESSURE = "memory_pressure"
    CLOUD_BARRED = "cloud_barred"


NOT_TO_BE_HAD = frozenset({Fault.UNAVAILABLE, Fault.AUTH, Fault.BREAKER_OPEN, Fault.RETRY_BUDGET, Fault.STATE_SILENT})
# What a client can act on comes first: a fault that passes, then what it must change in its request, then what only
# the server's owner can mend.
TELLING: tuple[tuple[frozenset[Fault | Flaw], RefuseCode], ...] = (
    (frozenset({Fault.OVERLOADED}), RefuseCode.OVERLOADED),
    (frozenset({Fault.BUDGET}), RefuseCode.BUDGET),
    (MENDABLE, RefuseCode.INVALID_ANSWER),
    (TIMEOUTS, RefuseCode.TIMEOUT),
    (TRANSIENT, RefuseCode.UPSTREAM),
    (frozenset({Fault.MEMORY_PRESSURE}), RefuseCode.MEMORY_PRESSURE),
    (frozenset({Fault.LOADING}), RefuseCode.LOADING),
    (frozenset({Fault.CONTEXT_LENGTH}), RefuseCode.CONTEXT_LENGTH),
    (frozenset({Fault.UNSUPPORTED}), RefuseCode.UNSUPPORTED),
    (NOT_TO_BE_HAD, RefuseCode.NO_TIER),
    (frozenset({Fault.CLOUD_BARRED}), RefuseCode.CLOUD_BARRED),
)


def telling_rank(attempt: Attempt) -> int:
    """The lower, the more it helps the client to hear of this one."""
    met = attempt.fault or attempt.flaw
    return next((rank for rank, (kinds, _) in enumerate(TELLING) if met in kinds), len(TELLING))


def code_of(attempt: Attempt) -> RefuseCode:
    """What a refusal is called that this attempt explains."""
    met = attempt.fault or attempt.flaw
    return next((code for kinds, code in TELLING if met in kinds), RefuseCode.INVALID_ANSWER)


def walk_in_words(attempts: tuple[Attempt, ...]) -> str:
    """One clause a tier, in order; of several attempts on one tier the last speaks. Each clause names its tier."""
    return "; ".join({a.tier: a.detail for a in attempts}.values())


def retry_after_s(attempts: tuple[Attempt, ...]) -> float | None:
    """When the first of the tiers may answer again, in seconds; None where none has said."""
    waits = [a.retry_after_s for a in attempts if a.retry_after_s is not None]
    return min(waits) if waits else None
