"""Why a request gets no answer: the codes that pass, and which attempt explains a refusal best.

One question comes before all others: may waiting cure it? Agents ask again, often for minutes and
without a word, where an error looks as if it passed, and give up at once where it doesn't; so the
codes fall into two kinds, and a refusal has one that passes (`PASSING`) exactly where something
that was met may pass. A tier that failed, is full, loads or is left alone comes back; an hour's
tokens do too. A session's spent tokens, an invalid answer after all re-asks, a prompt that is too
long and a missing key stay as they are, however often they are asked.

What counts is how each tier was left at last. Where that is a second try that was rejected for want
of a retry budget, what it was for counts as well.

What must never happen: a code that passes where nothing may pass, or the other way round; a time to
come back that nobody has reported.
"""

from __future__ import annotations

from reliability.faults import traits_of
from reliability.types import Attempt, Fault, RefuseCode

# What a client can act on comes first: what passes, then what it must change, then what only the
# server's owner can repair.
PASSING_FIRST = (
    RefuseCode.OVERLOADED,
    RefuseCode.RATE,
    RefuseCode.TIMEOUT,
    RefuseCode.UPSTREAM,
    RefuseCode.MEMORY_PRESSURE,
    RefuseCode.LOADING,
    RefuseCode.NO_TIER,
)
THEN_STAYING = (
    RefuseCode.BUDGET,
    RefuseCode.INVALID_ANSWER,
    RefuseCode.CONTEXT_LENGTH,
    RefuseCode.UNSUPPORTED,
    RefuseCode.NO_TIER_EVER,
    RefuseCode.CLOUD_BARRED,
)
CODE_RANKING = PASSING_FIRST + THEN_STAYING
PASSING = frozenset({*PASSING_FIRST, RefuseCode.DEADLINE, RefuseCode.BROKEN_STREAM, RefuseCode.STOPPING})
CLAUSE_CHARS_MAX = 500
ATTEMPTS_CHARS_MAX = 2_000


def passes(attempt: Attempt) -> bool:
    """Return whether waiting may cure what was met."""
    return code_of(attempt) in PASSING


def rank_attempt(attempt: Attempt) -> int:
    """Return how little it helps the client to hear of this one. A loop comes last: a tier's own words say more, and
    where its circuit breaks it has an error of its own."""
    code = code_of(attempt)
    if traits_of(attempt).nudge or code not in CODE_RANKING:
        return len(CODE_RANKING)
    return CODE_RANKING.index(code)


def code_of(attempt: Attempt) -> RefuseCode:
    """Return what a refusal is called that this attempt explains."""
    traits = traits_of(attempt)
    if attempt.retry_after_s is None or traits.code_with_time is None:
        return traits.code
    return traits.code_with_time


def describe_attempts(attempts: tuple[Attempt, ...]) -> str:
    """Describe how each tier was left, in order. Each clause names its tier; what rejects several
    of them alike stands there once."""
    clauses = dict.fromkeys(_describe_attempt(attempt)[:CLAUSE_CHARS_MAX] for attempt in find_last_attempts(attempts))
    return "; ".join(clauses)[:ATTEMPTS_CHARS_MAX]


def retry_after_s(attempts: tuple[Attempt, ...]) -> float | None:
    """Return when the first of the tiers may answer again, in seconds; None where nothing passes,
    and where one of those that may come back hasn't reported when."""
    passing = [a for a in find_last_attempts(attempts) if passes(a)]
    waits = [a.retry_after_s for a in passing if a.retry_after_s is not None]
    if len(waits) < len(passing):
        return None
    return min(waits) if waits else None


def find_last_attempts(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """Find the attempts that say how each tier was left: its last, and the one before it where the
    last is a second try that was rejected."""
    found: list[Attempt] = []
    unexplained = {attempt.tier for attempt in attempts}
    for attempt in reversed(attempts):
        if attempt.tier in unexplained:
            found.append(attempt)
            if attempt.fault is not Fault.RETRY_BUDGET:
                unexplained.discard(attempt.tier)
    return found[::-1]


def _describe_attempt(attempt: Attempt) -> str:
    """Describe what was met, with the tier's name before it where it doesn't stand there. A budget
    is no tier's."""
    if attempt.fault is Fault.BUDGET or f"tier {attempt.tier}" in attempt.detail:
        return attempt.detail
    return f"tier {attempt.tier}: {attempt.detail}"
