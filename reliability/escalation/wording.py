"""How a refusal is worded for the caller: what happened, the figures, and the way out.

Who reads it is a person before an agent that has stopped, or the agent itself, and neither knows
this server's parts. So each sentence says what was met in the caller's own terms, names the limit
by its configuration key, and ends with what can be done. One sentence speaks of one tier, or of a
budget; `describe_attempts` in `refusals` joins them.

Agents read the text by machine as well. One of them (opencode 1.18.33, read and tried 2026-11-23) asks again, five
times and without a word, whatever the status, where three digits in the text look like a passing error's status: the
"500" of "500,000 tokens" is one. So `figure` writes such numbers in another unit, and a session whose name has such
digits in it isn't named.

What must never happen: a session of somebody else in a message, a text without a bound.
"""

from __future__ import annotations

import re

from reliability.admission.admit import RejectedBy, Rejection
from reliability.admission.budget import BudgetWindow, Load, Policy
from reliability.admission.request import AdmissionRequest

LIKE_A_STATUS = re.compile(r"429|50[0234]|524")
PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
FIGURE_MAX = 10**15
MINUTES_FROM_S = 120

WAYS_OUT = {
    RejectedBy.ISOLATED: "was taken out by hand: POST /v1/reliability/tiers/{tier}/restore lets it back in",
    RejectedBy.OPEN: "has failed and is left alone for {wait} more (its circuit breaker is open): come back then, or "
    "POST /v1/reliability/tiers/{tier}/close",
    RejectedBy.PROBING: "has failed and is being tried with another request: come back in {wait}",
    RejectedBy.RETRY_BUDGET: "failed, and all requests together have had their second tries of this minute: come back "
    "in {wait}",
    RejectedBy.MEMORY_PRESSURE: "takes no request of this size while the machine is short of memory ({rule}): come "
    "back in {wait}, or send a smaller one",
    RejectedBy.FULL: "can take no more calls ({rule}): come back in {wait}",
}


def figure(number: int) -> str:
    """Write a number as people read it: 616,827, and 0.5 million where digits look like a status."""
    number = min(max(number, -FIGURE_MAX), FIGURE_MAX)
    for tried in (number, _round_to_two_digits(number)):
        for text in (f"{tried:,}", *_write_in_units(tried)):
            if not LIKE_A_STATUS.search(text):
                return text if tried == number else f"about {text}"
    return "many"


def duration(seconds: float | None) -> str:
    """Write a wait as people read it, never shorter than it is."""
    whole_s = max(1, -int(-(seconds or 0.0) // 1))
    if whole_s <= MINUTES_FROM_S:
        return f"{whole_s} s"
    return f"{figure(-(-whole_s // 60))} min"


def describe_rejection(rejection: Rejection, request: AdmissionRequest) -> str:
    """Describe why this call wasn't let through."""
    if rejection.rejected_by is RejectedBy.BUDGET:
        return "; ".join(_describe_window(load, rejection, request) for load in rejection.windows) or rejection.detail
    words = WAYS_OUT[rejection.rejected_by].format(
        tier=rejection.tier, wait=duration(rejection.retry_after_s), rule=_describe_rule(rejection.detail)
    )
    return f"tier {rejection.tier} {words}"


def _describe_rule(rule: str) -> str:
    return re.sub(r"\d+", lambda digits: figure(int(digits[0])), rule.replace("_", " "))


def _describe_window(load: Load, rejection: Rejection, request: AdmissionRequest) -> str:
    """Describe which tokens are spent, of how many, and what helps."""
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
    return (
        "start a new session (another X-MLX-Stack-Session), raise the limit, or POST "
        f"/v1/reliability/sessions/{_name_in_path(request.session)}/reset{cheaper}"
    )


def _name_in_path(session: str) -> str:
    """Return the session's name where it can stand in a path as it is and misleads no machine; the
    header has it anyway."""
    plain = PLAIN_NAME.fullmatch(session) and not LIKE_A_STATUS.search(session)
    return session if plain else "{id}"


def _write_in_units(number: int) -> list[str]:
    """Write the number in larger units, exactly: those in which it has no more than two digits
    before its point."""
    fits = [(size, name) for size, name in UNITS if abs(number) < 100 * size and abs(number) * 10 >= size]
    return [f"{number / size:.12f}".rstrip("0").rstrip(".") + f" {name}" for size, name in fits]


def _round_to_two_digits(number: int) -> int:
    """Round to two digits."""
    power: int = 10 ** max(0, len(str(abs(number))) - 2)
    return round(number / power) * power
