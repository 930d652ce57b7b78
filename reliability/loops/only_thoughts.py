"""Thoughts alone: an agent that notes one thought after the other, and does nothing.

Thoughts between two equal calls are looked through (see `history`). Where there is nothing but thoughts they count,
however they differ, as long as their results say nothing new: they repeat the thought, count it, or only say that it
was noted. A chain of thoughts may be long and right, so it has the limits of a poll, and is nudged once.
"""

from __future__ import annotations

from itertools import takewhile

from reliability.loops.comparison.echoes import mask_echoes
from reliability.loops.comparison.findings import Turn
from reliability.loops.comparison.near import mask_figures
from reliability.loops.polling import is_thought
from reliability.loops.turn_sequence import TurnSequence

__all__ = ["count_thoughts"]


def count_thoughts(row: TurnSequence) -> tuple[int, int, int, str, str] | None:
    """Count the turns at the tail that only think, and are answered alike. Returns (how many, warn at, break at, no
    evidence, the tool); None where there is nothing to judge."""
    newest = row.candidate or (row.turns[-1] if row.turns else None)
    if newest is None or not newest.calls or not all(map(is_thought, newest.calls)):
        return None
    config = row.config
    warn, limit = config.poller_duplicate_threshold, config.poller_break_threshold
    answered = map(_read_answers, reversed(row.turns))
    first = next(answered, None)
    alike = 0 if first is None else 1 + sum(1 for _ in takewhile(lambda answers: answers == first, answered))
    count = alike + (row.candidate is not None)
    return None if warn < count < limit else (count, max(warn, row.times + 1), limit, "", newest.calls[0].name)


def _read_answers(turn: Turn) -> frozenset[str] | None:
    """Return what a turn that only thinks was answered, without what only repeats or counts the thoughts; None: it does
    more, or its results aren't known."""
    if not all(map(is_thought, turn.calls)) or None in turn.results:
        return None
    pairs = zip(turn.calls, turn.results, strict=False)
    return frozenset(
        mask_figures(mask_echoes(call, result.text.strip())) for call, result in pairs if result is not None
    )
