"""ERRORS: one tool that fails with the same words again and again, whatever its arguments.

It is for tools with one meaning. A shell or a browser does something else with every argument, so its failures are left
to the judge; and an exit code without a word is no error text: twelve greps that find nothing are a search. "Not found"
is an answer as much as an error, since one may look for many things: it breaks at twice the limit.
"""

from __future__ import annotations

import re

from reliability.loops.comparison.canonical import summary
from reliability.loops.comparison.errors import error_text, has_failed
from reliability.loops.comparison.same_result import is_same_result
from reliability.loops.findings import Turn
from reliability.loops.polling import is_generic_tool
from reliability.loops.turn_row import TurnRow

__all__ = ["count_same_errors"]

ERROR_CHARS = 2_000
#: An error shorter than this ("error") says too little to be the same error.
ERROR_CHARS_MIN = 8
_LOOKUP = re.compile(r"\bnot (?:be )?found\b|\bno (?:such|match|results?)\b|\bdoes(?:n't| not) exist\b", re.IGNORECASE)


def count_same_errors(row: TurnRow) -> tuple[int, int, int, str, str] | None:
    """Count the failures of one tool in a row that say the same, where the candidate calls that tool again. Returns
    (how many, warn at, break at, the error, the tool)."""
    newest = _read_error_at(row, row.size - 1) if row.turns else None
    if newest is None or row.polls_at(row.size - 1):
        return None
    tool, text = newest
    if row.candidate is not None and {call.name for call in row.candidate.calls} != {tool}:
        return None
    warn, limit = row.config.duplicate_threshold, row.config.break_threshold
    limit = 2 * limit if _LOOKUP.search(text) else limit
    count = 0
    for index in range(row.size - 1, max(row.size - max(warn, limit, 1) - 2, -1), -1):
        error = _read_error_at(row, index)
        if error is None or error[0] != tool or not is_same_result(error[1], text):
            break
        count += 1
    return count, warn, limit, summary(text), tool


def _read_error_at(row: TurnRow, index: int) -> tuple[str, str] | None:
    return row.memo.once(("error", index), lambda: _read_error(row.turns[index]))


def _read_error(turn: Turn) -> tuple[str, str] | None:
    """Return (tool, its error) where all calls of the turn are of one tool and all failed with the same words."""
    names = {call.name for call in turn.calls}
    if len(names) != 1 or is_generic_tool(turn.calls[0].name):
        return None
    texts = {error_text(result)[:ERROR_CHARS] for result in turn.results if result is not None and has_failed(result)}
    if len(texts) != 1 or not all(has_failed(result) for result in turn.results):
        return None
    text = texts.pop()
    return (names.pop(), text) if len(text) >= ERROR_CHARS_MIN else None
