"""Which way to ask again: the steps of a tier's `retry_strategy`, one per re-ask.

    correct      the corrective message is added to the prompt: helps models that can read their own mistake
    resample     the same prompt again: small models copy their failed attempt when they see it
    constrain    the same prompt, decoded under the grammar of the tools: can't fail

After the last step the last one is repeated. Only a tier that holds a grammar can constrain;
elsewhere that step is left out. Where it is part of the strategy, every re-ask from the second on
is decoded under the grammar as well, whatever else is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CONSTRAINED_FROM = 1


class RetryStep(StrEnum):
    """One way to ask again."""

    CORRECT = "correct"
    RESAMPLE = "resample"
    CONSTRAIN = "constrain"


RETRY_STRATEGY: tuple[RetryStep, ...] = (RetryStep.CORRECT, RetryStep.RESAMPLE, RetryStep.CONSTRAIN)


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
