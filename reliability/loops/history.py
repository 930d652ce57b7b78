"""The history rules: whether the model repeats itself.

Everything is read from the tail. For each period the rule counts how many repetitions at the tail have the same calls
with the same results. The answer about to leave (`candidate`) counts as the newest repetition when it would start it.

    rule    repeats                                       warns at              breaks at
    CALLS   same calls, same results, period 1..max       duplicate_threshold   break_threshold
            (polls, also laps that wait and look; steps)  poller_duplicate_...  poller_break_...
            (thoughts alone, which lead to nothing)       poller_duplicate_...  poller_break_...
    NEAR    same calls, results nearly the same           break_threshold - 1   break_threshold
            (drifting figures, see `near`; steps)         poller_duplicate_...  poller_break_...
            (polls that only tell the time)               3 times these         3 times these
            (other places, where there is nothing)        break_threshold - 1   poller_break_...
    ERRORS  same error of one tool, any arguments         duplicate_threshold   break_threshold
    TEXTS   same text, or texts in turn, no call between  duplicate_threshold   break_threshold
    REVISITS  looks at what was seen, in any order        duplicate_threshold   2 * break_threshold

ERRORS: what an error only repeats of its call counts as nothing; such errors are about unlike things, and so is "not
found": they break at twice the limit, or behind as many as the user named. A shell does something else with every
argument, and so does a browser that opens an address: their failures are left to the judge. What brings nothing new
between errors of a deed (`repeats`) is skipped. TEXTS: thoughts are the text of an answer that holds nothing else. A
user message re-arms it, also one that asks the same again, unless it only urges the model on or counts; so does a call
with a result. Thoughts alone are notes, however they differ, whose results only repeat, count or confirm them.

A user message re-arms every rule; where such messages say the same again between the laps, breaking takes
`_PUSHED_LAPS` more. Steps are nudged once. An answer that holds one call many times counts as that many repetitions;
there, too, a nudge comes before a break. Where the user orders so many things, calls that make them and lead on
(`leads_at`) are neither nudged nor broken before; nor is any call that is to be repeated so often. An order of
repetition without a number gives the limits of a poll, and so does a user who says the same again behind each answer
("run the tests again"). Each limit is reached within what is read (`LoopConfig.fit_laps`). The results of a NEAR streak
must change more than once, and the circuit doesn't break before the streak without its newest lap told the same. The
strictest verdict wins, then the one with the most repetitions.

Invariant: keys are computed from the tail backwards, only as far as a cycle holds, and each question is asked once of a
request (`Memo`): an ordinary history costs a handful of comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import filterfalse, islice, pairwise, takewhile

from rapidfuzz import fuzz

from reliability.loops.comparison.call_normalization import mask_echoes
from reliability.loops.comparison.findings import (
    Kind,
    Loop,
    Memo,
    Stage,
    Turn,
    choose_loop,
    digest,
    error_text,
    has_failed,
    summary,
)
from reliability.loops.comparison.near import (
    LAPS_MAX,
    Movement,
    find_difference,
    find_movement,
    mask_figures,
    mask_once,
)
from reliability.loops.comparison.tool_verbs import takes_notes
from reliability.loops.repeatable_calls import is_generic_tool
from reliability.loops.revisits import find_last_deed, find_revisits, repeats
from reliability.loops.text_calls import read_text_calls
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import is_folded
from reliability.loops.turn_sequence import Pairwise, TurnSequence

#: A result that changed once and no more is news.
_CHANGES_MIN = 2
_PUSHED_LAPS, _WAITED = 2, 3
_ERROR_CHARS = 2_000
#: An error shorter than this ("error") says too little to be the same error.
_ERROR_CHARS_MIN = 8
_LOOKUP = re.compile(
    r"\bnot (?:be )?found\b|\bno (?:such|match|results?)\b|\bdoes(?:n't| not) exist\b|\b(?:404|410)\b"
    r"|\bnot[ _]resolved?\b|\benotfound\b",
    re.IGNORECASE,
)
_TEXT_CHARS, TEXT_PERIOD_MAX = 4_000, 3
#: So many texts are looked at for each repetition that is asked about.
TEXTS_MAX = 64


def find_loop(
    turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None = None, memo: Memo | None = None
) -> Loop | None:
    """Find the loop that the turns are in, or that the candidate would continue; None where there is none. `memo`: what
    was found out about these very turns, under this very configuration, before."""
    if not config.enabled:
        return None
    candidate = _read_candidate(turns, candidate)
    found: list[Loop | None] = []
    if candidate is None or candidate.calls:
        found += _find_acting_loops(TurnSequence(_select_acting(turns, candidate), config, candidate, memo))
    if candidate is None or candidate.written or not candidate.calls:
        found += [_find_same_text(turns, config, candidate, period) for period in range(1, TEXT_PERIOD_MAX + 1)]
    return choose_loop(found)


def _read_candidate(turns: Sequence[Turn], candidate: Turn | None) -> Turn | None:
    """Read the calls in the candidate's text, where the agent is one that writes them; of calls that are read as a turn
    each, the first."""
    if candidate is not None and is_folded(candidate):
        return replace(candidate, calls=candidate.calls[:1], results=candidate.results[:1])
    if candidate is None or candidate.calls or not any(turn.written for turn in turns):
        return candidate
    calls = read_text_calls(candidate.text)
    return replace(candidate, calls=calls, results=(None,) * len(calls), written=bool(calls))


def _select_acting(turns: Sequence[Turn], candidate: Turn | None) -> list[Turn]:
    """Select the turns with calls since the user last spoke: texts between calls don't interrupt a loop, nor do
    thoughts, unless thoughts are all there is."""
    last = max((i for i, turn in enumerate(turns) if turn.continued), default=-1)
    acting = [turn for turn in turns[last + 1 :] if turn.calls]
    # Within an order that the user says again, what was done for those before it is no lap.
    ordered = 1 + max((i for i, turn in enumerate(acting) if turn.asked), default=-1)
    acting = acting[ordered:] or acting
    if candidate is not None and _only_thinks(candidate):
        return acting
    if not any(map(takes_notes, {call.name for turn in acting for call in turn.calls})):
        return acting
    return [turn for turn in acting if not _only_thinks(turn)] or acting


def _only_thinks(turn: Turn) -> bool:
    return all(takes_notes(call.name) for call in turn.calls)


def _find_acting_loops(row: TurnSequence) -> list[Loop | None]:
    """Find the loops of calls: for every period, and the errors of one tool."""
    found: list[Loop] = []
    same: list[int] = []  # the periods of streaks that are the same
    near: list[int] = []  # and of those that are nearly the same, whatever that tells
    for period in filter(row.starts_again, range(1, min(row.config.max_period, row.size) + 1)):
        if any(period % known == 0 for known in same):
            continue  # the same streak, with fewer rounds
        loop, is_same = _find_same_calls(row, period)
        if not is_same and not any(period % known == 0 for known in near):
            loop, is_near = _find_near_calls(row, period)
            near += [period] * is_near
        same += [period] * (is_same or (loop is not None and loop.stage is Stage.BREAK))
        if loop is None:
            continue
        found.append(loop)
        if loop.stage is Stage.BREAK and row.memo.spent:
            break  # so much is compared already that a verdict is enough
    streaks = [*found, _find_same_errors(row), _find_thoughts(row)]
    known = choose_loop(streaks)
    if known is not None and known.stage is Stage.BREAK:
        return [known]
    revisits = find_revisits(row)
    return [revisits] if known is None or (revisits is not None and revisits.stage is Stage.BREAK) else [known]


def _find_same_calls(row: TurnSequence, period: int) -> tuple[Loop | None, bool]:
    config, newest = row.config, range(row.size - period, row.size)
    count = row.count_repetitions(period, row.has_same_results, max(config.duplicate_threshold, config.break_threshold))
    warn, limit = config.duplicate_threshold, config.break_threshold
    if stage_of(count, warn, limit) is None:
        return None, False
    patient = all(map(row.is_patient_at, newest)) or row.waits_in(period) or row.makes_new(period)
    if patient:
        warn, limit = _poll_thresholds(config)
    elif row.is_beyond(period):
        warn, limit = _near_thresholds(config)[0], config.poller_break_threshold
    stage, count = _judge_laps(row, period, row.has_same_results, (warn, limit), patient)
    return None if stage is None else _build_calls_loop(row, period, count, stage, Kind.CALLS), True


def _judge_laps(
    row: TurnSequence, period: int, pairwise: Pairwise, limits: tuple[int, int], patient: bool
) -> tuple[Stage | None, int]:
    """Judge a streak of such pairs by its limits, later ones where the user asked for so many; return its laps, too.
    `patient`: they are those of polls; what doesn't poll is nudged once then."""
    newest = range(row.size - period, row.size)
    if row.is_ordered(period):
        patient, limits = True, _poll_thresholds(row.config)
    leads = (patient or any(map(row.leads_at, newest))) and not any(map(row.fails_at, newest))
    warn, limit = limits
    asked = max(row.order.again, max(row.order.number, row.order.times) if leads else 0)
    if asked:
        warn, limit = max(warn, asked + 1) if warn > 0 else warn, max(limit, asked + 2) if limit > 0 else limit
    limit = _give_laps(limit, row.turns, period * limit)
    warn, limit = row.config.fit_laps(period, warn, limit)
    count = row.count_repetitions(period, pairwise, max(warn, limit))
    nudged = row.count_judged(count, period) >= warn
    stage = stage_of(count, warn, limit if nudged or not row.holds_many else 0)
    once = patient and not all(map(row.polls_at, newest))
    if stage is Stage.WARN and once and nudged:
        stage = None
    return stage, count


def _give_laps(limit: int, turns: Sequence[Turn], size: int) -> int:
    """Return the limit of a streak over the newest `size` turns: a later one where users' messages push them on."""
    return limit + _PUSHED_LAPS if limit > 0 and any(turn.pushed for turn in turns[-size:]) else limit


def _find_near_calls(row: TurnSequence, period: int) -> tuple[Loop | None, bool]:
    warn, limit = _near_thresholds(row.config)
    count = row.count_repetitions(period, row.has_near_results, limit) if limit > 0 else 0
    if stage_of(count, warn, limit) is None:
        return None, False
    movement = _judge_streak(row, period, count)
    if movement is Movement.PROGRESS:
        return None, True
    if movement is Movement.DRIFT or row.is_ordered(period):
        warn, limit = (laps * (_WAITED if row.polls_in(period) else 1) for laps in _poll_thresholds(row.config))
    stage, count = _judge_laps(row, period, row.has_near_results, (warn, limit), movement is Movement.DRIFT)
    before = TurnSequence(row.turns[: row.size - period], row.config, None, row.memo)
    if stage is Stage.BREAK and _judge_streak(before, period, count - 1) is not movement:
        stage = Stage.WARN
    return None if stage is None else _build_calls_loop(row, period, count, stage, Kind.NEAR), True


def _near_thresholds(config: LoopConfig) -> tuple[int, int]:
    """Return at which near repetition the model is nudged, and at which the circuit breaks."""
    limit = config.break_threshold
    return (max(config.duplicate_threshold, limit - 1) if config.duplicate_threshold > 0 else 0), limit


def _poll_thresholds(config: LoopConfig) -> tuple[int, int]:
    """Return at which repetition of what may take long the model is nudged, and at which the circuit breaks."""
    return config.poller_duplicate_threshold, config.poller_break_threshold


def _judge_streak(row: TurnSequence, period: int, count: int) -> Movement:
    """Judge where the results of a near streak go; one that changed too seldom is progress. Polls tell the time."""
    told, changes = (Movement.DRIFT, _CHANGES_MIN) if row.polls_in(period) else (Movement.NOTHING, 0)
    known = min(count - (row.candidate is not None), LAPS_MAX)
    for place in filterfalse(row.polls_at, range(row.size - period, row.size)):
        laps = [row.results(index) for index in range(place, max(-1, place - period * known), -period)][::-1]
        for key, newest in laps[-1].items():
            texts = [text for lap in laps if (text := lap.get(key)) is not None]
            changes = max(changes, _count_changes(texts, row))
            step, makes = key in row.steps_in(place), key in row.makings_in(place)
            told = max(told, find_movement(texts, has_failed(newest), step, makes))
    return told if changes >= _CHANGES_MIN else Movement.PROGRESS


def _count_changes(texts: Sequence[str], row: TurnSequence) -> int:
    """Count the laps whose result differs from the one before. Figures may stand still for a lap."""
    changed = [find_difference(a.strip(), b.strip()) for a, b in pairwise(texts) if not row.is_equal(a, b)]
    worded = any(mask_once(a, row.memo) != mask_once(b, row.memo) for a, b in changed)
    return 0 if worded and len(changed) < len(texts) - 1 else len(changed)


def _build_calls_loop(row: TurnSequence, period: int, count: int, stage: Stage, kind: Kind) -> Loop:
    newest = row.turns[row.size - period :]
    keys = {row.key(index) for index in range(row.size - period, row.size)}
    names = list(dict.fromkeys(call.name for turn in newest for call in turn.calls))
    results = [result for turn in newest for result in turn.results if result is not None]
    return Loop(
        kind=kind,
        stage=stage,
        repetitions=count,
        period=period,
        tool=" → ".join(names[:4]),
        evidence=summary(results[-1]) if results else "",
        key=digest(*sorted(call for key in keys for call in key)),
    )


def _find_same_errors(row: TurnSequence) -> Loop | None:
    """Find the failures of one tool in a row that say the same, where the candidate calls that tool again."""
    before = find_last_deed(row)
    retried = before is not None and _read_error(before) is not None
    errors = (_read_error_at(row, at) for at in range(row.size - 1, -1, -1) if not (retried and _skips_at(row, at)))
    newest = next(errors, None)
    if newest is None:
        return None
    tool, text, masked = newest
    if row.candidate is not None and {call.name for call in row.candidate.calls} != {tool}:
        return None
    config, ordered = row.config, row.is_ordered(1)
    warn, limit = _poll_thresholds(config) if ordered else (config.duplicate_threshold, config.break_threshold)
    count, echoes = 1, bool(_LOOKUP.search(text))
    most = max(2 * max(warn, limit, 1), row.order.again, row.order.number)
    for error in islice(errors, most + 1):
        if error is None or error[0] != tool or not any(map(row.is_equal, error[1:], (text, masked))):
            break
        echoes = echoes or not row.is_equal(error[1], text)
        count += 1
    if ordered:
        count += row.candidate is not None  # as in CALLS, so that both nudge at once
    else:
        again = row.order.again
        warn = max(warn, again) if warn > 0 else warn
        later = max(2 * limit if echoes else limit, again + (again > 0), row.order.number if echoes else 0)
        limit = later if limit > 0 else limit
    nudged = row.count_judged(count, 1) >= warn
    if ordered and nudged and count < limit:
        return None
    return _build_streak_loop(Kind.ERRORS, count, warn, limit if nudged or not row.holds_many else 0, text, tool)


def _skips_at(row: TurnSequence, index: int) -> bool:
    """Return whether a turn between equal errors is none of them, and brings nothing new."""
    return _read_error_at(row, index) is None and repeats(row, index)


def _read_error_at(row: TurnSequence, index: int) -> tuple[str, str, str] | None:
    found = row.memo.once(("error", index), lambda: _read_error(row.turns[index]))
    return None if found is None or row.polls_at(index) else found


def _read_error(turn: Turn) -> tuple[str, str, str] | None:
    """Return (tool, its error, the error without what it repeats of the call) where all calls of the turn are of one
    tool and all failed with the same words."""
    names = {call.name for call in turn.calls}
    if len(names) != 1 or is_generic_tool(turn.calls[0]):
        return None
    texts = {error_text(result)[:_ERROR_CHARS] for result in turn.results if result is not None and has_failed(result)}
    if len(texts) != 1 or not all(has_failed(result) for result in turn.results):
        return None
    text = texts.pop()
    return (names.pop(), text, mask_echoes(turn.calls[0], text)) if len(text) >= _ERROR_CHARS_MIN else None


def _find_thoughts(row: TurnSequence) -> Loop | None:
    """Find the turns at the tail that only think, and are answered alike. A chain of thoughts may be long and right: it
    has the limits of a poll, and is nudged once."""
    newest = row.candidate or (row.turns[-1] if row.turns else None)
    if newest is None or not newest.calls or not _only_thinks(newest):
        return None
    warn, limit = _poll_thresholds(row.config)
    answered = map(_read_answers, reversed(row.turns))
    first = next(answered, None)
    alike = 0 if first is None else 1 + sum(1 for _ in takewhile(lambda answers: answers == first, answered))
    count = alike + (row.candidate is not None)
    again = row.order.again
    if again:
        warn, limit = max(warn, again + 1) if warn > 0 else warn, max(limit, again + 2) if limit > 0 else limit
    if warn < count < limit:
        return None
    return _build_streak_loop(Kind.CALLS, count, warn, limit, "", newest.calls[0].name)


def _read_answers(turn: Turn) -> frozenset[str] | None:
    """Return what a turn that only thinks was answered, without what only repeats or counts the thoughts; None: it does
    more, or its results aren't known."""
    if not _only_thinks(turn) or None in turn.results:
        return None
    pairs = zip(turn.calls, turn.results, strict=False)
    return frozenset(mask_figures(mask_echoes(call, result.strip())) for call, result in pairs if result is not None)


def _find_same_text(turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None, period: int) -> Loop | None:
    """Find the repetitions of the newest `period` texts, back to the first that differs or to a call. A repetition that
    has begun counts, as one of calls does."""
    texts = list(islice(_walk_back([*turns, candidate] if candidate is not None else turns), TEXTS_MAX))
    paired, similarity = 0, config.similarity_threshold
    while paired + period < len(texts) and _is_alike(texts[paired], texts[paired + period], similarity):
        paired += 1
    if len(texts) < period or (period > 1 and _is_alike(texts[0], texts[1], similarity)):
        return None
    count = -(-(paired + period) // period) if paired else 1
    limit = _give_laps(config.break_threshold, turns, period * config.break_threshold)
    return _build_streak_loop(Kind.TEXTS, count, config.duplicate_threshold, limit, texts[0], period=period)


def _walk_back(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in reversed(turns):
        if turn.asked:
            return  # what was asked again may be answered alike
        if turn.calls and not (turn.written and all(result is None for result in turn.results)):
            return
        if turn.text.strip():
            yield " ".join(turn.text[:_TEXT_CHARS].split())


def _is_alike(a: str, b: str, similarity: float) -> bool:
    return a == b or fuzz.ratio(a, b, score_cutoff=100 * similarity) > 0


def _build_streak_loop(
    kind: Kind, count: int, warn: int, limit: int, text: str, tool: str = "", period: int = 1
) -> Loop | None:
    stage = stage_of(count, warn, limit)
    if stage is None:
        return None
    evidence = summary(text)
    key = digest(kind, tool or evidence)
    return Loop(kind=kind, stage=stage, repetitions=count, period=period, tool=tool, evidence=evidence, key=key)


def stage_of(count: int, warn: int, limit: int) -> Stage | None:
    """Return the stage that so many repetitions have reached; a threshold of 0 or less is off."""
    if 0 < limit <= count:
        return Stage.BREAK
    return Stage.WARN if 0 < warn <= count else None
