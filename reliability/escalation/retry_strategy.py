"""Which way to ask again: the rungs of a tier's `retry_strategy`, one per re-ask.

    correct      the corrective message is added to the prompt: helps models that can read their own mistake
    resample     the same prompt again: small models copy their failed attempt when they see it
    constrain    the same prompt, decoded under the grammar of the tools: can't fail

After the last rung the last one is repeated. Only a tier that holds a grammar can constrain; elsewhere
that rung is left out. Where it is part of the strategy, every re-ask from the second on is decoded under
the grammar as well, whatever else is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RETRY_STRATEGY", "Reask", "Rung", "next_reask"]

CONSTRAINED_FROM = 1


class Rung(StrEnum):
    """One way to ask again."""

    CORRECT = "correct"
    RESAMPLE = "resample"
    CONSTRAIN = "constrain"


RETRY_STRATEGY: tuple[Rung, ...] = (Rung.CORRECT, Rung.RESAMPLE, Rung.CONSTRAIN)


@dataclass(frozen=True, slots=True)
class Reask:
    """How the next re-ask is made. `constrained`: decode under the tools' grammar."""

    rung: Rung
    constrained: bool


def next_reask(strategy: Sequence[Rung], reasks: int, *, can_constrain: bool) -> Reask:
    """The rung after `reasks` re-asks were made on this tier."""
    rungs = [rung for rung in strategy if can_constrain or rung is not Rung.CONSTRAIN] or [Rung.CORRECT]
    rung = rungs[min(max(reasks, 0), len(rungs) - 1)]
    grammar = can_constrain and Rung.CONSTRAIN in rungs
    return Reask(rung, rung is Rung.CONSTRAIN or (grammar and reasks >= CONSTRAINED_FROM))
