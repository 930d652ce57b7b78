"""What a walk along the chain looks at (`Situation`) and what it says (`Call`, `Accept`, `Refuse`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from reliability.attempt import Attempt
from reliability.types import Reason, RefuseCode

CONSTRAINED_FROM = 1


class RetryStep(StrEnum):
    """One way to ask again."""

    CORRECT = "correct"
    RESAMPLE = "resample"
    CONSTRAIN = "constrain"


RETRY_STRATEGY: tuple[RetryStep, ...] = (RetryStep.CORRECT, RetryStep.RESAMPLE, RetryStep.CONSTRAIN)


def drop_correction(strategy: Sequence[RetryStep]) -> tuple[RetryStep, ...]:
    """Return the strategy for what can't be corrected, or must not be."""
    return tuple(step for step in strategy if step is not RetryStep.CORRECT) or (RetryStep.RESAMPLE,)


@dataclass(frozen=True, slots=True)
class Reask:
    """How the next re-ask is made. `constrained`: decode under the tools' grammar."""

    step: RetryStep
    constrained: bool


def next_reask(strategy: Sequence[RetryStep], reasks: int, *, can_constrain: bool) -> Reask:
    """Return the step after `reasks` re-asks were made on this tier."""
    steps = [step for step in strategy if can_constrain or step is not RetryStep.CONSTRAIN] or [RetryStep.CORRECT]
    step = steps[min(max(reasks, 0), len(steps) - 1)]
    grammar = can_constrain and RetryStep.CONSTRAIN in steps
    return Reask(step, step is RetryStep.CONSTRAIN or (grammar and reasks >= CONSTRAINED_FROM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds the attempt loop. `escalate_on`: the reasons that may move a request to another tier. `strategies`:
    the retry strategies of tiers that have their own; `grammars`: the tiers that can decode under a grammar. `cheap`:
    the tier of a session whose budget rejects the others. `loose_form`: the client only wishes for a form of the text.
    `shorten`: a prompt that no tier can hold may lose its oldest results. `confidence_min`: how likely a call has to be
    right; 0: it need not be."""

    retries_max: int
    attempts_max: int
    escalate_on: frozenset[Reason]
    reasks_max: int = 0
    strategies: Mapping[str, tuple[RetryStep, ...]] = field(default_factory=dict)
    grammars: frozenset[str] = frozenset()
    cheap: str | None = None
    continuations_max: int = 0
    loose_form: bool = False
    shorten: bool = False
    confidence_min: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that `decide` may look at. `chain` begins with the tier that the request starts at; `jitter` is in [0, 1).
    `last`: the newest attempt; `spent`: no further one is allowed; `text_out`: text has left for the client."""

    chain: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    remaining_ns: int
    limits: Limits
    jitter: float = 0.0

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def spent(self) -> bool:
        return len(self.attempts) >= self.limits.attempts_max

    @property
    def text_out(self) -> bool:
        return any(attempt.text_out for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call `tier` after `wait_ns`. `reask`: how the prompt differs because of a flaw. `nudge`: with a message about the
    loop. `resume`: it continues the text that stands before the client. `words`: without tools, since none was wanted.
    """

    tier: str
    wait_ns: int = 0
    reask: Reask | None = None
    nudge: bool = False
    resume: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True)
class Accept:
    """An attempt is the answer: the last one, unless `attempt` names another."""

    attempt: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """No answer. `message` and `param` are those of the attempt that explains the refusal best."""

    code: RefuseCode
    message: str
    param: str | None = None
    retry_after_s: float | None = None


Decision = Call | Accept | Refuse
