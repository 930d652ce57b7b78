"""The two rules that look at what was said, not at what was asked: the same error, the same text, in a row.

ERRORS is for tools with one meaning. A shell or a browser does something else with every argument, so its
failures are left to the judge; and an exit code without a word is no error text: twelve greps that find
nothing are a search. "Not found" is an answer as much as an error, since one may look for many things: it
breaks at twice the limit.

TEXTS looks through user messages that only say "go on" (see `content`); every other user message re-arms it,
and so does a call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rapidfuzz import fuzz

from reliability.loops.canonical import digest, summary
from reliability.loops.errors import error_text, failed
from reliability.loops.findings import Kind, Loop, Turn
from reliability.loops.laps import Laps, stage_of
from reliability.loops.polling import generic
from reliability.loops.same_result import same
from reliability.loops.thresholds import LoopConfig

__all__ = ["same_error", "same_text"]

TEXT_CHARS = 4_000
ERROR_CHARS = 2_000
#: An error shorter than this ("error") says too little to be the same error.
ERROR_CHARS_MIN = 8
_LOOKUP = re.compile(r"\bnot (?:be )?found\b|\bno (?:such|match|results?)\b|\bdoes(?:n't| not) exist\b", re.IGNORECASE)


def same_error(laps: Laps) -> Loop | None:
    """ERRORS: failures of one tool in a row that say the same; the candidate must call that tool again."""
    newest = _error_at(laps, laps.size - 1) if laps.turns else None
    if newest is None or laps.polled(laps.size - 1):
        return None
    tool, text = newest
    if laps.candidate is not None and {call.name for call in laps.candidate.calls} != {tool}:
        return None
    warn, limit = laps.config.duplicate_threshold, laps.config.break_threshold
    limit = 2 * limit if _LOOKUP.search(text) else limit
    count = 0
    for index in range(laps.size - 1, max(laps.size - max(warn, limit, 1) - 2, -1), -1):
        said = _error_at(laps, index)
        if said is None or said[0] != tool or not same(said[1], text):
            break
        count += 1
    return _streak(Kind.ERRORS, count, warn, limit, summary(text), tool)


def _error_at(laps: Laps, index: int) -> tuple[str, str] | None:
    return laps.memo.once(("error", index), lambda: _error_of(laps.turns[index]))


def _error_of(turn: Turn) -> tuple[str, str] | None:
    """(tool, what it said) where all calls of the turn are of one tool and all failed with the same words."""
    names = {call.name for call in turn.calls}
    if len(names) != 1 or generic(turn.calls[0].name):
        return None
    texts = {error_text(result)[:ERROR_CHARS] for result in turn.results if result is not None and failed(result)}
    if len(texts) != 1 or not all(failed(result) for result in turn.results):
        return None
    text = texts.pop()
    return (names.pop(), text) if len(text) >= ERROR_CHARS_MIN else None


def same_text(turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None) -> Loop | None:
    """TEXTS: the newest text against the ones before it, back to the first that differs or to a call."""
    spoken = [*turns, candidate] if candidate is not None else list(turns)
    texts: list[str] = []
    for turn in reversed(spoken):
        if turn.calls:
            break
        if turn.text.strip():
            texts.append(" ".join(turn.text[:TEXT_CHARS].split()))
    count = 0
    for text in texts:
        if fuzz.ratio(texts[0], text, score_cutoff=100 * config.similarity_threshold) == 0:
            break
        count += 1
    evidence = summary(texts[0]) if texts else ""
    return _streak(Kind.TEXTS, count, config.duplicate_threshold, config.break_threshold, evidence)


def _streak(kind: Kind, count: int, warn: int, limit: int, evidence: str, tool: str = "") -> Loop | None:
    stage = stage_of(count, warn, limit)
    if stage is None:
        return None
    return Loop(
        kind=kind,
        stage=stage,
        laps=count,
        tool=tool,
        evidence=evidence,
        key=digest(kind, tool or evidence),
    )
