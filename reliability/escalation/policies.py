"""Where a request goes next: `decide(situation)`, an ordered list of small policies.

The first policy of `_POLICIES` that has an opinion wins (docs/decisions/011-order-of-policies.md); what follows from
each fault and flaw stands in `reliability.faults`. This is the only place that retries: a *retry* follows a fault, a
*re-ask* a flaw; an *escalation* is to the next tier because of a flaw, a *fallback* because of a fault.

Invariants: no tier is called twice after it reported that it can't; no call after the call commit point; no way back
down the chain but for a budget, or to a tier that was spared its re-asks, where none behind it has answered; at most
`attempts_max` attempts; no invalid call is accepted, but for one of which a value is only doubted (`Leeway`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reliability.attempt import Attempt
from reliability.confidence import UNWANTED_ALONE_MIN, UNWANTED_MIN
from reliability.escalation.decisions import (
    CONSTRAINED_FROM,
    RETRY_STRATEGY,
    Accept,
    Call,
    Decision,
    Reask,
    Refuse,
    RetryStep,
    Situation,
    drop_correction,
    next_reask,
)
from reliability.escalation.refusals import (
    code_of,
    describe_attempts,
    find_last_attempts,
    passes,
    rank_attempt,
    retry_after_s,
)
from reliability.faults import Again, OtherTier, traits_of
from reliability.types import Fault, Flaw, Reason, RefuseCode

_BACKOFF_FIRST_NS = 100_000_000
BACKOFF_MAX_NS = 2_000_000_000
# A tier may ask for patience with Retry-After; more than this and another tier is the better answer.
RETRY_AFTER_MAX_NS = 2_000_000_000
_LOOP_RETRY_AFTER_S = 5.0
_CYCLE_REASKS_MAX = 1
_DEADLINE_PASSED = "the request's deadline has passed (X-MLX-Stack-Deadline, at most server.deadline_s)"

_Policy = Callable[[Situation], Decision | None]


def decide(situation: Situation) -> Decision:
    """Return what to do next. Total: the last policy always answers."""
    if not situation.attempts:
        return _stop_when_spent(situation) or Call(tier=situation.chain[0])
    decisions = (policy(situation) for policy in _POLICIES)
    return next(decision for decision in decisions if decision is not None)


def reason_of(attempt: Attempt) -> Reason:
    """Return the public reason for leaving a tier after `attempt`."""
    return traits_of(attempt).reason


def _accept_good(situation: Situation) -> Decision | None:
    return Accept() if situation.last.good else None


def _answer_load(situation: Situation) -> Decision | None:
    """Ask the same tier again with the definitions of the tools that it asked for. How often, the caller bounds."""
    if situation.last.loads is None or situation.remaining_ns <= 0 or situation.spent:
        return None
    return Call(tier=situation.last.tier)


def _go_on_with_text(situation: Situation) -> Decision | None:
    """Continue a text that broke off before the client, on the same tier where a second call may cure it, else on the
    next. An answer that broke off in a call has said its text: it stands, and the next attempt's calls are taken."""
    attempts, last = situation.attempts, situation.last
    told = [number for number, attempt in enumerate(attempts) if attempt.text_out]
    if not told or any(attempt.fault is None for attempt in attempts[told[-1] :]):
        return None
    resume = not attempts[told[-1]].calls_held
    call = _choose_continuation(situation, resume=resume)
    if call is not None:
        return replace(call, resume=resume, nudge=False)
    message = last.detail if last.text_out else describe_attempts(attempts)
    return _accept_doubted(situation) or Refuse(code=RefuseCode.BROKEN_STREAM, message=message)


def _choose_continuation(situation: Situation, *, resume: bool) -> Call | None:
    last = situation.last
    seams = sum(attempt.seam is not None for attempt in situation.attempts if attempt.text_out)
    if resume and seams >= situation.limits.continuations_max:
        return None
    if situation.remaining_ns <= 0 or situation.spent or last.hard_stop:
        return None
    again = Call(tier=last.tier) if last.text_out and traits_of(last).other_tier is not OtherTier.NEVER else None
    return _retry_transient(situation) or _climb_from(situation, nudge=False) or again


def _stop_after_text(situation: Situation) -> Decision | None:
    """Stop where text has left: what the client has seen can't be taken back."""
    last = situation.last
    if not last.text_out or last.calls_held:
        return None
    if last.flaw is Flaw.CIRCUIT_BREAK:
        return _accept_doubted(situation) or _refuse_exhausted(situation)
    # Only text that repeats itself: there is no call that could still be corrected.
    return Accept() if reason_of(last) is Reason.LOOP_DETECTED else None


def _take_looped_call(situation: Situation) -> Decision | None:
    """Deliver the looping call where text stands: a nudged model's words can't stand behind it, that call can."""
    looped, traits = _accept_looped_call(situation), traits_of(situation.last)
    if looped is None or not situation.text_out:
        return None
    wordy = traits.again is Again.REASK and not traits.tool_call
    return looped if wordy or _is_stuck(situation) else None


def _take_lesser_answer(situation: Situation) -> Decision | None:
    """Deliver the text whose form was only a wish, or the answer in doubt, where no other attempt can be made."""
    if not _is_stuck(situation):
        return None
    return _accept_loose_form(situation) or _accept_doubted(situation) or _accept_with_leeway(situation)


def _believe(situation: Situation) -> Decision | None:
    """Deliver what may be right all the same once it is said again: by any tier where it is only suspected, else by
    another."""
    last = situation.last
    if last.leeway is None:
        return None
    before = [one for one in situation.attempts[:-1] if one.leeway == last.leeway]
    believed = any(last.leeway.suspected or one.tier != last.tier for one in before)
    return _accept_with_leeway(situation) if believed else None


def _stop_for_all_tiers(situation: Situation) -> Decision | None:
    """Refuse what is so with every tier: a wrong request, a busy server, a budget that allows no tier (`hard_stop`)."""
    last = situation.last
    if traits_of(last).other_tier is OtherTier.NEVER:
        return Refuse(code=code_of(last), message=last.detail, param=last.param)
    if last.fault is Fault.BUDGET and last.hard_stop:
        return Refuse(code=code_of(last), message=last.detail, retry_after_s=last.retry_after_s)
    return None


def _stop_when_spent(situation: Situation) -> Decision | None:
    """Hold the request to its one deadline and its one cap of attempts."""
    if situation.remaining_ns <= 0:
        met = "; ".join(filter(None, (_DEADLINE_PASSED, describe_attempts(situation.attempts))))
        return Refuse(code=RefuseCode.DEADLINE, message=met)
    return _conclude_exhausted(situation) if situation.spent else None


def _go_on_cheaper(situation: Situation) -> Decision | None:
    """Call the cheap tier, wherever it stands, where a budget rejects a tier but not the session."""
    cheap = situation.limits.cheap
    if situation.last.fault is not Fault.BUDGET or cheap is None:
        return None
    tried = any(attempt.tier == cheap for attempt in situation.attempts)
    return None if tried else Call(tier=cheap, nudge=_has_loop(situation))


def _leave_loop(situation: Situation) -> Decision | None:
    """Nudge once, then ask the next tier; accept what two tiers say alike."""
    last = situation.last
    if not traits_of(last).nudge:
        return None
    up = _climb_from(situation, nudge=True)
    if last.flaw is Flaw.CIRCUIT_BREAK:
        return up or _accept_doubted(situation) or _refuse_exhausted(situation)
    looped = [a.tier for a in situation.attempts if a.flaw is Flaw.LOOP]
    if len(looped) == 1 and situation.limits.reasks_max > 0 and _may_repeat(situation):
        return Call(tier=last.tier, nudge=True, reask=Reask(RetryStep.RESAMPLE, constrained=False))
    if len(set(looped)) == 1 and up is not None:
        return up
    return Accept()


def _reask_flaw(situation: Situation) -> Decision | None:
    """Ask the same tier again after a flaw: same prompt or with feedback, by its strategy."""
    last = situation.last
    if traits_of(last).again is not Again.REASK:
        return None
    reasks = sum(1 for a in situation.attempts if a.tier == last.tier and traits_of(a).again is Again.REASK) - 1
    reasks_max = situation.limits.reasks_max
    if reasks >= (min(reasks_max, _CYCLE_REASKS_MAX) if last.flaw is Flaw.CYCLE else reasks_max):
        return None
    if not _may_repeat(situation) or _is_spared(situation, last):
        return None
    return _build_reask(situation, last, reasks)


def _build_reask(situation: Situation, last: Attempt, reasks: int) -> Call:
    strategy = situation.limits.strategies.get(last.tier, RETRY_STRATEGY)
    if not traits_of(last).correct:
        # There is nothing to correct in an empty or runaway answer; saying so would only lengthen the prompt.
        strategy = drop_correction(strategy)
    # A grammar demands a call, so it is for a model that tried to call.
    can_constrain = traits_of(last).tool_call and last.tier in situation.limits.grammars
    return Call(tier=last.tier, reask=next_reask(strategy, reasks, can_constrain=can_constrain))


def _retry_transient(situation: Situation) -> Call | None:
    """Call the same tier again after a fault that a second call may cure. The wait doubles, with jitter, so that a tier
    that is coming back isn't stormed; `Retry-After` is obeyed."""
    last = situation.last
    if traits_of(last).again is not Again.RETRY:
        return None
    retries = sum(1 for a in situation.attempts if a.tier == last.tier and a.fault is not None) - 1
    full = min(BACKOFF_MAX_NS, _BACKOFF_FIRST_NS << min(retries, 10))
    wait_ns = max(int(full * (0.5 + 0.5 * situation.jitter)), int((last.retry_after_s or 0.0) * 1e9))
    patient = wait_ns <= RETRY_AFTER_MAX_NS and wait_ns < situation.remaining_ns
    if retries >= situation.limits.retries_max or not patient or not _may_repeat(situation):
        return None
    return Call(tier=last.tier, wait_ns=wait_ns, nudge=_has_loop(situation))


def _climb(situation: Situation) -> Decision | None:
    return _climb_from(situation, nudge=_has_loop(situation))


def _conclude_exhausted(situation: Situation) -> Decision:
    """Conclude where no tier is left: a call that loops and a text that was cut are worth more than an error."""
    doubted = _ask_in_words(situation) or _accept_doubted(situation) or _come_back(situation)
    flawed = _accept_with_leeway(situation) or _accept_looped_call(situation) or _accept_loose_form(situation)
    cycle = None if situation.text_out else _accept_newest(situation, Flaw.CYCLE)
    return doubted or flawed or cycle or _refuse_exhausted(situation)


def _refuse_exhausted(situation: Situation) -> Refuse:
    """Refuse with the reason that helps the client most, and name every tier's."""
    most_helpful = min(find_last_attempts(situation.attempts), key=rank_attempt)
    loop = next((a for a in situation.attempts if a.flaw is Flaw.CIRCUIT_BREAK), None)
    if loop is not None:
        return Refuse(code=code_of(loop), message=loop.detail, retry_after_s=_LOOP_RETRY_AFTER_S)
    message = describe_attempts(situation.attempts)
    if situation.text_out:
        return Refuse(code=RefuseCode.BROKEN_STREAM, message=message)
    wait_s = retry_after_s(situation.attempts) if passes(most_helpful) else None
    return Refuse(code=code_of(most_helpful), message=message, param=most_helpful.param, retry_after_s=wait_s)


_POLICIES: tuple[_Policy, ...] = (
    _accept_good,
    _answer_load,
    _go_on_with_text,
    _stop_after_text,
    _take_looped_call,
    _take_lesser_answer,
    _stop_for_all_tiers,
    _believe,
    _stop_when_spent,
    _go_on_cheaper,
    _leave_loop,
    _reask_flaw,
    _retry_transient,
    _climb,
    _conclude_exhausted,
)


def _is_stuck(situation: Situation) -> bool:
    """Return whether no call may follow the last attempt: no time is left, or no tier may be called."""
    last = situation.last
    return situation.remaining_ns <= 0 or last.hard_stop or traits_of(last).other_tier is OtherTier.NEVER


def _has_loop(situation: Situation) -> bool:
    return any(traits_of(attempt).nudge for attempt in situation.attempts)


def _accept_looped_call(situation: Situation) -> Accept | None:
    """Accept the newest attempt whose calls were held as a loop's next repetition, where no circuit is broken."""
    if any(a.flaw is Flaw.CIRCUIT_BREAK for a in situation.attempts):
        return None
    return _accept_newest(situation, Flaw.LOOP, calls_held=True)


def _accept_loose_form(situation: Situation) -> Accept | None:
    """Accept the newest text of another form than the wanted one, where the client doesn't insist on it."""
    if not situation.limits.loose_form or situation.text_out:
        return None
    return _accept_newest(situation, Flaw.FORM_INVALID)


def _accept_newest(situation: Situation, flaw: Flaw, *, calls_held: bool = False) -> Accept | None:
    found = [i for i, a in enumerate(situation.attempts) if a.flaw is flaw and (a.calls_held or not calls_held)]
    return Accept(attempt=found[-1]) if found else None


def _accept_doubted(situation: Situation) -> Accept | None:
    """Accept the likeliest of the answers that were in doubt, of equally likely ones the last; None: there is none."""
    doubted = [(a.confidence.likely or 0.0, i) for i, a in enumerate(situation.attempts) if a.flaw is Flaw.DOUBT]
    return Accept(attempt=max(doubted)[1]) if doubted else None


def _accept_with_leeway(situation: Situation) -> Accept | None:
    """Accept the newest flawed answer that may be right all the same. One in words is none behind another's text."""
    told = [attempt for attempt in situation.attempts if attempt.text_out]
    for number, one in reversed(list(enumerate(situation.attempts))):
        if one.leeway is not None and (one.calls_held or all(attempt is one for attempt in told)):
            return Accept(attempt=number)
    return None


def _ask_in_words(situation: Situation) -> Call | None:
    """Ask the last tier in doubt once more, for words, where each in doubt has called a tool that probably nobody
    wanted."""
    doubted = [a for a in situation.attempts if a.flaw is Flaw.DOUBT]
    once = len({a.tier for a in doubted}) == len(doubted)
    if not doubted or not once or situation.text_out or situation.spent:
        return None
    behind = situation.attempts[situation.attempts.index(doubted[-1]) + 1 :]
    chances = [a.confidence.unwanted or 0.0 for a in doubted]
    unwanted = min(chances) >= UNWANTED_MIN or chances[-1] >= UNWANTED_ALONE_MIN
    return Call(tier=doubted[-1].tier, words=True) if unwanted and not any(a.ran for a in behind) else None


def _climb_from(situation: Situation, *, nudge: bool) -> Call | None:
    tier, chain = situation.last.tier, situation.chain
    if not _may_leave(situation, situation.last) or _has_come_back(situation):
        return None
    if tier not in chain[:-1]:
        return None  # the last one, or the cheap one: then those of the chain are what the budget has rejected
    return Call(tier=chain[chain.index(tier) + 1], nudge=nudge)


def _may_leave(situation: Situation, attempt: Attempt) -> bool:
    traits = traits_of(attempt)
    if traits.other_tier is OtherTier.IF_ON:
        return traits.reason in situation.limits.escalate_on
    return traits.other_tier is OtherTier.ALWAYS


def _is_spared(situation: Situation, attempt: Attempt) -> bool:
    """Return whether a valid call of this tier would be in doubt too, and another tier can be asked."""
    likely, least = attempt.confidence.likely, situation.limits.confidence_min
    doubtful = attempt.flaw is Flaw.TOOL_CALL_INVALID and likely is not None and likely < least
    return doubtful and _may_leave(situation, attempt) and attempt.tier in situation.chain[:-1]


def _has_come_back(situation: Situation) -> bool:
    """Return whether the last attempt was at a tier that had been spared, and left."""
    tier, attempts = situation.last.tier, situation.attempts
    first = next((at for at, one in enumerate(attempts) if one.tier == tier and _is_spared(situation, one)), None)
    return first is not None and any(one.tier != tier for one in attempts[first:])


def _come_back(situation: Situation) -> Call | None:
    """Ask a tier for the call that seemed in vain, once no other tier has answered."""
    spared = next((attempt for attempt in situation.attempts if _is_spared(situation, attempt)), None)
    if spared is None or situation.text_out or situation.spent or spared is situation.last:
        return None
    return None if _has_come_back(situation) else _build_reask(situation, spared, CONSTRAINED_FROM)


def _may_repeat(situation: Situation) -> bool:
    """Return whether one more call on the last tier leaves an attempt for each tier up the chain."""
    if _climb_from(situation, nudge=False) is None:
        return True
    behind = len(situation.chain) - 1 - situation.chain.index(situation.last.tier)
    return situation.limits.attempts_max - len(situation.attempts) > behind
