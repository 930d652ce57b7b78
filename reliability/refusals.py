"""Why a request gets no answer: the kinds of faults, the codes of a refusal, and which attempt explains it best.

One question comes before all others: may waiting mend it? Agents ask again, often for minutes and without a word, where
an error looks as if it passed, and give up at once where it doesn't; so the codes fall into two kinds, and a refusal
has one that passes (`PASSING`) exactly where something that was met may pass. A tier that failed, is full, loads or is
left alone comes back; an hour's tokens do too. A session's spent tokens, an invalid answer after all re-asks, a prompt
that is too long and a missing key stay as they are, however often they are asked.

What counts is what each tier said last. Where that is a second try that was barred for want of a retry budget, what it
was for counts as well.

What must never happen: a code that passes where nothing may pass, or the other way round; a time to come back that
nobody has told.
"""

from __future__ import annotations

from enum import StrEnum

from reliability.types import Attempt, Fault, Flaw

__all__ = [
    "MENDABLE",
    "NO_CANDIDATE",
    "PASSING",
    "TIMEOUTS",
    "TRANSIENT",
    "RefuseCode",
    "code_of",
    "passes",
    "retry_after_s",
    "speaking",
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
    NO_TIER_EVER = "no_tier_ever"
    LOADING = "loading"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    UPSTREAM = "upstream"
    DEADLINE = "deadline"
    BROKEN_STREAM = "broken_stream"
    INVALID_ANSWER = "invalid_answer"
    LOOP = "loop"
    BUDGET = "budget"
    RATE = "rate"
    MEMORY_PRESSURE = "memory_pressure"
    CLOUD_BARRED = "cloud_barred"
    STOPPING = "stopping"


# They pass where a time is told. Our own admission knows when its bars end, and says none where only a person can lift
# them; a tier that is only restarting says so, too, and one without a model or a key doesn't.
TIMED = frozenset({Fault.BUDGET, Fault.BREAKER_OPEN, Fault.RETRY_BUDGET, Fault.STATE_SILENT, Fault.UNAVAILABLE})
# What a client can act on comes first: what passes, then what it must change, then what only the server's owner can
# mend.
PASSES: tuple[tuple[frozenset[Fault | Flaw], RefuseCode], ...] = (
    (frozenset({Fault.OVERLOADED}), RefuseCode.OVERLOADED),
    (frozenset({Fault.BUDGET}), RefuseCode.RATE),
    (TIMEOUTS, RefuseCode.TIMEOUT),
    (TRANSIENT, RefuseCode.UPSTREAM),
    (frozenset({Fault.MEMORY_PRESSURE}), RefuseCode.MEMORY_PRESSURE),
    (frozenset({Fault.LOADING}), RefuseCode.LOADING),
    (TIMED, RefuseCode.NO_TIER),
)
STAYS: tuple[tuple[frozenset[Fault | Flaw], RefuseCode], ...] = (
    (frozenset({Fault.BUDGET}), RefuseCode.BUDGET),
    (MENDABLE, RefuseCode.INVALID_ANSWER),
    (frozenset({Fault.CONTEXT_LENGTH}), RefuseCode.CONTEXT_LENGTH),
    (frozenset({Fault.UNSUPPORTED}), RefuseCode.UNSUPPORTED),
    (TIMED | {Fault.AUTH}, RefuseCode.NO_TIER_EVER),
    (frozenset({Fault.CLOUD_BARRED}), RefuseCode.CLOUD_BARRED),
)
PASSING = frozenset({code for _, code in PASSES} | {RefuseCode.DEADLINE, RefuseCode.BROKEN_STREAM, RefuseCode.STOPPING})
CLAUSE_CHARS_MAX = 500
WALK_CHARS_MAX = 2_000


def passes(attempt: Attempt) -> bool:
    """Whether waiting may mend what was met."""
    if attempt.fault in TIMED:
        return attempt.retry_after_s is not None
    return any(attempt.fault in kinds for kinds, _ in PASSES)


def telling_rank(attempt: Attempt) -> int:
    """The lower, the more it helps the client to hear of this one."""
    met = attempt.fault or attempt.flaw
    table, start = (PASSES, 0) if passes(attempt) else (STAYS, len(PASSES))
    return start + next((rank for rank, (kinds, _) in enumerate(table) if met in kinds), len(table))


def code_of(attempt: Attempt) -> RefuseCode:
    """What a refusal is called that this attempt explains."""
    met = attempt.fault or attempt.flaw
    table = PASSES if passes(attempt) else STAYS
    return next((code for kinds, code in table if met in kinds), RefuseCode.INVALID_ANSWER)


def walk_in_words(attempts: tuple[Attempt, ...]) -> str:
    """How each tier was left, in order. Each clause names its tier; what bars several of them alike is said once."""
    clauses = dict.fromkeys(_named(attempt)[:CLAUSE_CHARS_MAX] for attempt in speaking(attempts))
    return "; ".join(clauses)[:WALK_CHARS_MAX]


def retry_after_s(attempts: tuple[Attempt, ...]) -> float | None:
    """When the first of the tiers may answer again, in seconds; None where nothing passes, and where one of those that
    may come back hasn't said when."""
    passing = [a for a in speaking(attempts) if passes(a)]
    waits = [a.retry_after_s for a in passing if a.retry_after_s is not None]
    if len(waits) < len(passing):
        return None
    return min(waits) if waits else None


def speaking(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """The attempts that say how each tier was left: its last, and what was behind it where that is a second try that
    was barred."""
    found: list[Attempt] = []
    silent = {attempt.tier for attempt in attempts}
    for attempt in reversed(attempts):
        if attempt.tier in silent:
            found.append(attempt)
            if attempt.fault is not Fault.RETRY_BUDGET:
                silent.discard(attempt.tier)
    return found[::-1]


def _named(attempt: Attempt) -> str:
    """What was met, with the tier's name before it where it doesn't stand there. A budget is no tier's."""
    if attempt.fault is Fault.BUDGET or f"tier {attempt.tier}" in attempt.detail:
        return attempt.detail
    return f"tier {attempt.tier}: {attempt.detail}"
