"""Streaks that no comparison of calls and results finds: the same error, the same text, nothing but thoughts.

- ERRORS: one tool that fails with the same words, whatever its arguments. What an error only repeats of its call counts
  as nothing; such errors are about unlike things, and so is "not found": they break at twice the limit. A shell or a
  browser does something else with every argument, so its failures are left to the judge.
- TEXTS: the same text, or two or three texts in turn, with no call between. Thoughts are the text of an answer that
  holds nothing else. Every user message but a bare "go on" re-arms it, and so does a call with a result.
- Thoughts alone: notes, however they differ, whose results only repeat, count or confirm them. A chain of thoughts may
  be long and right, so it has the limits of a poll, and is nudged once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from rapidfuzz import fuzz

from reliability.loops.comparison.call_normalization import mask_echoes
from reliability.loops.comparison.findings import Turn, error_text, has_failed, summary
from reliability.loops.comparison.near import mask_figures
from reliability.loops.leading_steps import is_generic_tool
from reliability.loops.polling import is_thought
from reliability.loops.turn_sequence import TurnSequence

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


TEXT_CHARS = 4_000
PERIOD_MAX = 3
#: So many texts are looked at for each repetition that is asked about.
TEXTS_MAX = 64


def count_same_texts(turns: Sequence[Turn], similarity: float, period: int) -> tuple[int, str]:
    """Count the repetitions of the newest `period` texts, back to the first that differs or to a call. Returns (how
    many, the newest text); a repetition that has begun counts, as one of calls does."""
    texts = list(islice(_walk_back(turns), TEXTS_MAX))
    paired = 0
    while paired + period < len(texts) and _is_alike(texts[paired], texts[paired + period], similarity):
        paired += 1
    if period > 1 and (len(texts) < period or _is_alike(texts[0], texts[1], similarity)):
        return 0, ""
    count = -(-(paired + period) // period) if paired else 1
    return (count, texts[0]) if texts else (0, "")


def _walk_back(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in reversed(turns):
        if turn.calls and not (turn.written and all(result is None for result in turn.results)):
            return
        if turn.text.strip():
            yield " ".join(turn.text[:TEXT_CHARS].split())


def _is_alike(a: str, b: str, similarity: float) -> bool:
    return a == b or fuzz.ratio(a, b, score_cutoff=100 * similarity) > 0


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
