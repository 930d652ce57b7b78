"""What follows from each fault and each flaw: one table, a row for each, that everybody else reads.

A *fault* says that the tier is unwell, a *flaw* that its answer is not good enough (`reliability.types`). A column that
is missing is added here; a rule for a single one stays with the policy that it belongs to. Where an attempt has a time
to come back (`Attempt.retry_after_s`), `verdict_with_time` and `code_with_time` replace `verdict` and `code`.

Invariants: each fault and flaw has a row, and no second place sorts them; no flaw, and no fault of the request's own,
opens a breaker; nothing is charged that did not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reliability.admission.request import RejectedBy
from reliability.attempt import Attempt
from reliability.types import Fault, Flaw, Reason, RefuseCode, Verdict


class Again(StrEnum):
    """Whether the same tier may be asked once more, and how."""

    NO = "no"
    RETRY = "retry"  # the same call: a second one may go well
    REASK = "reask"  # another try at the answer, by the steps of the tier's retry strategy
    NUDGE = "nudge"  # once, with a word about the loop


class OtherTier(StrEnum):
    """Whether another tier may be asked in its place."""

    NEVER = "never"  # the request is wrong in itself, or this server is busy: it would be so with every tier
    IF_ON = "if_on"  # where `escalate_on` has the reason
    ALWAYS = "always"  # it is no candidate, or was rejected: to move on is no escalation that could be switched off


class Ran(StrEnum):
    """Whether the tier did any work, which may have cost something."""

    NOTHING = "nothing"  # nobody took the call
    IF_STARTED = "if_started"  # it fails at once; after a `Started` a replica has worked to find out
    RAN = "ran"


@dataclass(frozen=True, slots=True)
class Traits:
    """What follows from one fault or flaw. The columns without a default are those of the table's lines. `rejected_by`:
    what of admission is this fault. `upstream_words`: what follows the name of an upstream in the error text, where its
    own error is this fault. `tool_call`: the answer is an attempt at a tool call, so that a grammar may help. `nudge`:
    it is a loop of the conversation, and the next call carries a nudge about it. `correct`: the model can be told what
    was wrong."""

    again: Again
    other_tier: OtherTier
    verdict: Verdict
    ran: Ran
    reason: Reason
    code: RefuseCode
    verdict_with_time: Verdict | None = None
    code_with_time: RefuseCode | None = None
    rejected_by: tuple[RejectedBy, ...] = ()
    upstream_words: str = "failed"
    tool_call: bool = False
    nudge: bool = False
    correct: bool = False


# Short names, so that each row of the table is one line.
Code = RefuseCode
NO, RETRY, REASK, NUDGE = Again.NO, Again.RETRY, Again.REASK, Again.NUDGE
NEVER, IF_ON, ALWAYS = OtherTier.NEVER, OtherTier.IF_ON, OtherTier.ALWAYS
SUCCESS, FAILURE, IGNORED = Verdict.SUCCESS, Verdict.FAILURE, Verdict.IGNORED
NOTHING, IF_STARTED, RAN = Ran.NOTHING, Ran.IF_STARTED, Ran.RAN

# fmt: off
TRAITS: Mapping[Fault | Flaw, Traits] = {
    #                                 again  other   breaker  ran         reason                  error code
    # The tier is unwell.
    Fault.SERVER_ERROR:        Traits(RETRY, IF_ON,  FAILURE, RAN,        Reason.SERVER_ERROR,    Code.UPSTREAM),
    Fault.CRASHED:             Traits(RETRY, IF_ON,  FAILURE, RAN,        Reason.SERVER_ERROR,    Code.UPSTREAM),
    Fault.PROTOCOL:            Traits(RETRY, IF_ON,  FAILURE, RAN,        Reason.SERVER_ERROR,    Code.UPSTREAM),
    Fault.CONNECT_TIMEOUT:     Traits(NO,    IF_ON,  FAILURE, NOTHING,    Reason.TIMEOUT,         Code.TIMEOUT),
    Fault.FIRST_TOKEN_TIMEOUT: Traits(NO,    IF_ON,  FAILURE, RAN,        Reason.TIMEOUT,         Code.TIMEOUT,
                                      upstream_words="ran out of time"),
    Fault.IDLE_TIMEOUT:        Traits(NO,    IF_ON,  FAILURE, RAN,        Reason.TIMEOUT,         Code.TIMEOUT),
    Fault.TOTAL_TIMEOUT:       Traits(NO,    IF_ON,  FAILURE, RAN,        Reason.TIMEOUT,         Code.TIMEOUT),
    Fault.AUTH:                Traits(NO,    IF_ON,  FAILURE, RAN,        Reason.SERVER_ERROR,    Code.NO_TIER_EVER,
                                      upstream_words="refused our credentials"),
    # The tier is well, as far as it is there. A full one is left alone as long as it asks for.
    Fault.OVERLOADED:          Traits(NO,    IF_ON,  IGNORED, RAN,        Reason.SERVER_ERROR,    Code.OVERLOADED,
                                      verdict_with_time=FAILURE, rejected_by=(RejectedBy.FULL,),
                                      upstream_words="is overloaded"),
    Fault.LOADING:             Traits(NO,    ALWAYS, IGNORED, IF_STARTED, Reason.SERVER_ERROR,    Code.LOADING),
    Fault.UNAVAILABLE:         Traits(NO,    ALWAYS, IGNORED, IF_STARTED, Reason.SERVER_ERROR,    Code.NO_TIER_EVER,
                                      code_with_time=Code.NO_TIER, upstream_words="doesn't have this model or route"),
    Fault.SEAM:                Traits(NO,    IF_ON,  IGNORED, RAN,        Reason.SERVER_ERROR,    Code.UPSTREAM),
    # The request's own.
    Fault.CONTEXT_LENGTH:      Traits(NO,    ALWAYS, IGNORED, IF_STARTED, Reason.CONTEXT_LENGTH,  Code.CONTEXT_LENGTH,
                                      upstream_words="can't hold a prompt of this length"),
    Fault.UNSUPPORTED:         Traits(NO,    ALWAYS, IGNORED, IF_STARTED, Reason.SERVER_ERROR,    Code.UNSUPPORTED,
                                      upstream_words="can't do what this request asks"),
    Fault.REFUSED:             Traits(NO,    ALWAYS, IGNORED, IF_STARTED, Reason.SERVER_ERROR,    Code.BAD_REQUEST,
                                      upstream_words="refused the request"),
    Fault.DEADLINE:            Traits(NO,    IF_ON,  IGNORED, RAN,        Reason.TIMEOUT,         Code.TIMEOUT),
    Fault.BAD_REQUEST:         Traits(NO,    NEVER,  IGNORED, RAN,        Reason.SERVER_ERROR,    Code.BAD_REQUEST,
                                      upstream_words="refused the request"),
    # This server's own: another tier's answer would wait for the same workers.
    Fault.UNJUDGED:            Traits(NO,    NEVER,  IGNORED, RAN,        Reason.SERVER_ERROR,    Code.OVERLOADED),
    # Not the tier's answer: the call was rejected.
    Fault.BREAKER_OPEN:        Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.SERVER_ERROR,    Code.NO_TIER_EVER,
                                      code_with_time=Code.NO_TIER,
                                      rejected_by=(RejectedBy.OPEN, RejectedBy.PROBING, RejectedBy.ISOLATED)),
    Fault.RETRY_BUDGET:        Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.SERVER_ERROR,    Code.NO_TIER_EVER,
                                      code_with_time=Code.NO_TIER, rejected_by=(RejectedBy.RETRY_BUDGET,)),
    Fault.BUDGET:              Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.BUDGET,          Code.BUDGET,
                                      code_with_time=Code.RATE, rejected_by=(RejectedBy.BUDGET,)),
    Fault.MEMORY_PRESSURE:     Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.MEMORY_PRESSURE, Code.MEMORY_PRESSURE,
                                      rejected_by=(RejectedBy.MEMORY_PRESSURE,)),
    Fault.STATE_SILENT:        Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.SERVER_ERROR,    Code.NO_TIER_EVER,
                                      code_with_time=Code.NO_TIER),
    Fault.CLOUD_BARRED:        Traits(NO,    ALWAYS, IGNORED, NOTHING,    Reason.SERVER_ERROR,    Code.CLOUD_BARRED),
    # An answer came, so the tier is well.
    Flaw.TOOL_CALL_INVALID:    Traits(REASK, IF_ON,  SUCCESS, RAN, Reason.TOOL_VALIDATION_FAILURE, Code.INVALID_ANSWER,
                                      tool_call=True, correct=True),
    Flaw.TRUNCATED:            Traits(REASK, IF_ON,  SUCCESS, RAN, Reason.TOOL_VALIDATION_FAILURE, Code.INVALID_ANSWER,
                                      tool_call=True),
    Flaw.FORM_INVALID:         Traits(REASK, IF_ON,  SUCCESS, RAN, Reason.TOOL_VALIDATION_FAILURE, Code.INVALID_ANSWER,
                                      correct=True),
    Flaw.EMPTY:                Traits(REASK, IF_ON,  SUCCESS, RAN, Reason.TOOL_VALIDATION_FAILURE, Code.INVALID_ANSWER),
    # Good enough to be delivered where nobody gives a likelier one.
    Flaw.DOUBT:                Traits(NO,    ALWAYS, SUCCESS, RAN, Reason.LOW_CONFIDENCE,          Code.INVALID_ANSWER),
    Flaw.CYCLE:                Traits(REASK, IF_ON,  SUCCESS, RAN, Reason.LOOP_DETECTED,           Code.INVALID_ANSWER),
    Flaw.LOOP:                 Traits(NUDGE, IF_ON,  SUCCESS, RAN, Reason.LOOP_DETECTED,           Code.INVALID_ANSWER,
                                      nudge=True),
    Flaw.CIRCUIT_BREAK:        Traits(NO,    IF_ON,  SUCCESS, RAN, Reason.LOOP_DETECTED,           Code.LOOP,
                                      nudge=True),
}
# With neither the answer is good, or the client left while it came.
_NEITHER = Traits(NO, IF_ON, SUCCESS, RAN, Reason.SERVER_ERROR, Code.INVALID_ANSWER)
# fmt: on


def traits_of(attempt: Attempt) -> Traits:
    """Return the row of the fault or the flaw of `attempt`; `_NEITHER` where it has none."""
    met = attempt.fault or attempt.flaw
    return _NEITHER if met is None else TRAITS[met]
