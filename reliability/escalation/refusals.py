"""Why a request gets no answer: the codes that pass, the attempt that explains a refusal best, and its words.

A refusal has a code that passes (`PASSING`) exactly where waiting may cure something that was met: agents ask again
where an error looks as if it passed. Each sentence says what was met, names the limit by its configuration key, and
ends with what can be done. opencode asks again where three digits look like a passing error's status: see `figure`.

Invariants: no time to come back that nobody has reported; no session of somebody else in a message; no text without a
bound; only a fault of the tier itself feeds its breaker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reliability.admission.request import AdmissionRequest, BudgetWindow, Load, Policy, RejectedBy, Rejection
from reliability.attempt import Attempt
from reliability.faults import TRAITS, traits_of
from reliability.types import Fault, RefuseCode, Verdict

LIKE_A_STATUS = re.compile(r"429|50[0234]|524")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
FIGURE_MAX = 10**15
_MINUTES_FROM_S = 120

_WAYS_OUT = {
    RejectedBy.ISOLATED: "was taken out by hand: POST /v1/reliability/tiers/{tier}/restore lets it back in",
    RejectedBy.OPEN: "has failed and is left alone for {wait} more (its circuit breaker is open): come back then, or "
    "POST /v1/reliability/tiers/{tier}/close",
    RejectedBy.PROBING: "has failed and is being tried with another request: come back in {wait}",
    RejectedBy.RETRY_BUDGET: "failed, and no second try is left at this moment: come back in {wait}",
    RejectedBy.MEMORY_PRESSURE: "takes no request of this size while the machine is short of memory ({rule}): come "
    "back in {wait}, or send a smaller one",
    RejectedBy.FULL: "can take no more calls ({rule}): come back in {wait}",
}
# What passes comes first, then what the client must change, then what only the server's owner can repair.
CODE_RANKING = (
    RefuseCode.OVERLOADED,
    RefuseCode.RATE,
    RefuseCode.TIMEOUT,
    RefuseCode.UPSTREAM,
    RefuseCode.MEMORY_PRESSURE,
    RefuseCode.LOADING,
    RefuseCode.NO_TIER,
    RefuseCode.BUDGET,
    RefuseCode.INVALID_ANSWER,
    RefuseCode.CONTEXT_LENGTH,
    RefuseCode.UNSUPPORTED,
    RefuseCode.BAD_REQUEST,
    RefuseCode.NO_TIER_EVER,
    RefuseCode.CLOUD_BARRED,
)
_PASSING_FIRST = CODE_RANKING[: CODE_RANKING.index(RefuseCode.BUDGET)]
PASSING = frozenset({*_PASSING_FIRST, RefuseCode.DEADLINE, RefuseCode.BROKEN_STREAM, RefuseCode.STOPPING})
_CLAUSE_CHARS_MAX = 500
ATTEMPTS_CHARS_MAX = 2_000


def figure(number: int) -> str:
    """Write a number as people read it: 616,827, and 0.5 million where digits look like a status."""
    number = min(max(number, -FIGURE_MAX), FIGURE_MAX)
    power: int = 10 ** max(0, len(str(abs(number))) - 2)
    for tried in (number, round(number / power) * power):  # then with two digits
        for text in (f"{tried:,}", *_write_in_units(tried)):
            if not LIKE_A_STATUS.search(text):
                return text if tried == number else f"about {text}"
    return "many"


def duration(seconds: float | None) -> str:
    """Write a wait as people read it, never shorter than it is."""
    whole_s = max(1, -int(-(seconds or 0.0) // 1))
    if whole_s <= _MINUTES_FROM_S:
        return f"{whole_s} s"
    return f"{figure(-(-whole_s // 60))} min"


def _describe_rejection(rejection: Rejection, request: AdmissionRequest) -> str:
    if rejection.rejected_by is RejectedBy.BUDGET:
        return "; ".join(_describe_window(load, rejection, request) for load in rejection.windows) or rejection.detail
    rule = re.sub(r"\d+", lambda digits: figure(int(digits[0])), rejection.detail.replace("_", " "))
    wait = duration(rejection.retry_after_s)
    words = _WAYS_OUT[rejection.rejected_by].format(tier=rejection.tier, wait=wait, rule=rule)
    return f"tier {rejection.tier} {words}"


def _describe_window(load: Load, rejection: Rejection, request: AdmissionRequest) -> str:
    owner, key = {
        BudgetWindow.SESSION: ("this session", "reliability.token_budget.per_session"),
        BudgetWindow.HOUR: ("all sessions together", "reliability.token_budget.per_hour"),
        BudgetWindow.KEY_HOUR: ("this API key", "tokens_per_hour of the key"),
    }[load.window]
    span = "" if load.window is BudgetWindow.SESSION else " of an hour"
    most = f"{figure(load.tokens_max)} tokens{span} ({key})"
    if rejection.requested_tokens > load.tokens_max:
        message = f"this request may take {figure(rejection.requested_tokens)} tokens, and {owner} may take {most}"
        return f"{message}: shorten it, ask for fewer `max_tokens`, or raise the limit"
    spent = load.tokens - rejection.requested_tokens - load.reserved
    has, its = ("have", "the") if load.window is BudgetWindow.HOUR else ("has", "its")
    parts = [f"{has} used {figure(spent)} of {its} {most}"]
    if load.reserved:
        parts.append(f"open calls hold {figure(load.reserved)}")
    if spent <= load.tokens_max:
        parts.append(f"this request may take {figure(rejection.requested_tokens)}")
    return f"{owner} {', '.join(parts)}: {_find_way_out(load, rejection, request)}"


def _find_way_out(load: Load, rejection: Rejection, request: AdmissionRequest) -> str:
    cheaper = ", and until then only the cheapest tier answers" if rejection.policy is Policy.ESCALATE else ""
    if rejection.retry_after_s is not None:
        return f"come back in {duration(rejection.retry_after_s)}, or raise the limit{cheaper}"
    if load.window is not BudgetWindow.SESSION:
        return f"raise the limit{cheaper}"
    plain = _PLAIN_NAME.fullmatch(request.session) and not LIKE_A_STATUS.search(request.session)
    name = request.session if plain else "{id}"
    return (
        "start a new session (another X-MLX-Stack-Session), raise the limit, or POST "
        f"/v1/reliability/sessions/{name}/reset{cheaper}"
    )


def _write_in_units(number: int) -> list[str]:
    """Write the number exactly in each unit in which it has at most two digits before its point."""
    fits = [(size, name) for size, name in _UNITS if abs(number) < 100 * size and abs(number) * 10 >= size]
    return [f"{number / size:.12f}".rstrip("0").rstrip(".") + f" {name}" for size, name in fits]


def passes(attempt: Attempt) -> bool:
    """Return whether waiting may cure what was met."""
    return code_of(attempt) in PASSING


def rank_attempt(attempt: Attempt) -> int:
    """Return how little it helps the client to hear of this one. A loop comes last."""
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
    """Describe how each tier was left, in order; what rejects several of them alike stands there once."""
    clauses = dict.fromkeys(_describe_attempt(attempt)[:_CLAUSE_CHARS_MAX] for attempt in find_last_attempts(attempts))
    return "; ".join(clauses)[:ATTEMPTS_CHARS_MAX]


def retry_after_s(attempts: tuple[Attempt, ...]) -> float | None:
    """Return when the first tier may answer again; None where nothing passes, or one didn't report when."""
    passing = [a for a in find_last_attempts(attempts) if passes(a)]
    waits = [a.retry_after_s for a in passing if a.retry_after_s is not None]
    if len(waits) < len(passing):
        return None
    return min(waits) if waits else None


def find_last_attempts(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """Find each tier's last attempt, and the one before it where the last is a rejected second try."""
    found: list[Attempt] = []
    unexplained = {attempt.tier for attempt in attempts}
    for attempt in reversed(attempts):
        if attempt.tier in unexplained:
            found.append(attempt)
            if attempt.fault is not Fault.RETRY_BUDGET:
                unexplained.discard(attempt.tier)
    return found[::-1]


def _describe_attempt(attempt: Attempt) -> str:
    """Describe what was met, with the tier's name before it where it isn't named. A budget is no tier's."""
    if attempt.fault is Fault.BUDGET or f"tier {attempt.tier}" in attempt.detail:
        return attempt.detail
    return f"tier {attempt.tier}: {attempt.detail}"


def verdict_of(attempt: Attempt, earlier: Sequence[Attempt] = ()) -> Verdict:
    """Return the verdict for the breaker. A full tier that reports until when is a failure. A request blames a tier
    once, whatever `earlier` attempts it made there: a body that breaks an upstream breaks it always."""
    traits = traits_of(attempt)
    verdict = Verdict.IGNORED if attempt.cancelled else traits.verdict
    if attempt.retry_after_s is not None and traits.verdict_with_time is not None:
        verdict = traits.verdict_with_time
    if verdict is Verdict.FAILURE:
        for other in earlier:
            if other.tier == attempt.tier and verdict_of(other) is Verdict.FAILURE:
                return Verdict.IGNORED
    return verdict


def record_rejection(rejection: Rejection, request: AdmissionRequest) -> Attempt:
    """Record a call that was not let through: nothing ran."""
    return Attempt(
        tier=rejection.tier,
        ran=False,
        fault=next(fault for fault in Fault if rejection.rejected_by in TRAITS[fault].rejected_by),
        detail=_describe_rejection(rejection, request),
        retry_after_s=rejection.retry_after_s,
        hard_stop=rejection.rejected_by is RejectedBy.BUDGET and rejection.policy is Policy.HARD_STOP,
    )
