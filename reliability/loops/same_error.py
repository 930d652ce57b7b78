"""ERRORS: one tool that fails with the same words again and again, whatever its arguments.

What an error only repeats of its call counts as nothing: "no offset 900" and "no offset 950" are the same. Such errors
are about unlike things, and so is "not found", an answer as much as an error: they break at twice the limit.

It is for tools with one meaning. A shell or a browser does something else with every argument, so its failures are left
to the judge; and an exit code without a word is no error text: twelve greps that find nothing are a search.
"""

from __future__ import annotations

import re

from reliability.loops.comparison.canonical import summary
from reliability.loops.comparison.echoes import mask_echoes
from reliability.loops.comparison.errors import error_text, has_failed
from reliability.loops.comparison.findings import Turn
from reliability.loops.leading_steps import is_generic_tool
from reliability.loops.turn_sequence import TurnSequence

__all__ = ["count_same_errors"]

ERROR_CHARS = 2_000
#: An error shorter than this ("error") says too little to be the same error.
ERROR_CHARS_MIN = 8
_LOOKUP = re.compile(r"\bnot (?:be )?found\b|\bno (?:such|match|results?)\b|\bdoes(?:n't| not) exist\b", re.IGNORECASE)


def count_same_errors(row: TurnSequence) -> tuple[int, int, int, str, str] | None:
    """Count the failures of one tool in a row that say the same, where the candidate calls that tool again. Returns
    (how many, warn at, break at, the error, the tool)."""
    newest = _read_error_at(row, row.size - 1) if row.turns else None
    if newest is None or row.polls_at(row.size - 1):
        return None
    tool, text, masked = newest
    if row.candidate is not None and {call.name for call in row.candidate.calls} != {tool}:
        return None
    config = row.config
    warn, limit = config.duplicate_threshold, config.break_threshold
    if row.endless:
        warn, limit = config.poller_duplicate_threshold, config.poller_break_threshold
    count, echoes = 0, bool(_LOOKUP.search(text))
    for index in range(row.size - 1, max(row.size - 2 * max(warn, limit, 1) - 2, -1), -1):
        error = _read_error_at(row, index)
        if error is None or error[0] != tool:
            break
        if not row.is_equal(error[1], text):
            if not row.is_equal(error[2], masked):
                break
            echoes = True
        count += 1
    if row.endless:
        count += row.candidate is not None  # as in CALLS, so that both nudge at once
        return None if warn < count < limit else (count, warn, limit, summary(text), tool)
    limit = 2 * limit if echoes else limit
    return count, warn, limit, summary(text), tool


def _read_error_at(row: TurnSequence, index: int) -> tuple[str, str, str] | None:
    return row.memo.once(("error", index), lambda: _read_error(row.turns[index]))


def _read_error(turn: Turn) -> tuple[str, str, str] | None:
    """Return (tool, its error, the error without what it repeats of the call) where all calls of the turn are of one
    tool and all failed with the same words."""
    names = {call.name for call in turn.calls}
    if len(names) != 1 or is_generic_tool(turn.calls[0].name):
        return None
    texts = {error_text(result)[:ERROR_CHARS] for result in turn.results if result is not None and has_failed(result)}
    if len(texts) != 1 or not all(has_failed(result) for result in turn.results):
        return None
    text = texts.pop()
    return (names.pop(), text, mask_echoes(turn.calls[0], text)) if len(text) >= ERROR_CHARS_MIN else None
