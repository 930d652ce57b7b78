"""The history rules: whether the model repeats itself.

Everything is read from the tail. For each period the rule counts how many repetitions at the tail have the same calls
with the same results. The answer about to leave (`candidate`) counts as the newest repetition when it would start it.

    rule    repeats                                       warns at              breaks at
    CALLS   same calls, same results, period 1..max       duplicate_threshold   break_threshold
            (polls, also laps that wait and look; steps)  poller_duplicate_...  poller_break_...
            (other things, named by figures, and no failure)  later by their number, at most 3 times these
            (thoughts alone, which lead to nothing)       poller_duplicate_...  poller_break_...
    NEAR    same calls, results nearly the same           break_threshold - 1   break_threshold
            (drifting figures, see `near`; steps)         poller_duplicate_...  poller_break_...
            (polls that only tell the time)               3 times these         3 times these
            (other places, where there is nothing)        break_threshold - 1   poller_break_...
    ERRORS  same error of one tool, any arguments         duplicate_threshold   break_threshold
    TEXTS   same text, or texts in turn, no call between  duplicate_threshold   break_threshold
    REVISITS  looks at what was seen, in any order        duplicate_threshold   2 * break_threshold

ERRORS: what an error only repeats of its call counts as nothing; such errors are about unlike things, and so is "not
found": they break at twice the limit. Failures about one named thing after another don't count (`ordered_items`); where
the user orders each of many, new ones have the limits of a poll. Those of shells and browsers are left to the judge,
but for unlike commands refused in the same words (`are_unlike`) and commands that only count on, which break at
twice the limit. Between errors of a deed, what brings nothing new (`repeats`) or fails and changes nothing is skipped.

A user message re-arms every rule; where such messages say the same again between the laps, breaking takes
`_PUSHED_LAPS` more. Steps are nudged once. Where the user orders so many things, calls that make them and lead on
(`leads_at`) are neither nudged nor broken before; nor is any call that is to be repeated so often. An order of
repetition without a number gives the limits of a poll, and so does a user who says the same again behind each answer.

Invariants: keys are computed from the tail backwards, only as far as a cycle holds, and each question is asked once of
a request (`Memo`). Each limit is reached within what is read. A nudge comes before a break. The strictest verdict wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, filterfalse, islice, pairwise, takewhile

from reliability.loops.comparison import findings, near
from reliability.loops.comparison.call_normalization import mask_echoes
from reliability.loops.comparison.error_reading import LOOKUP, Failure, are_unlike, is_edit, read_failure, says_refusal
from reliability.loops.comparison.findings import Kind, Loop, Memo, Stage, Turn, has_failed
from reliability.loops.comparison.near import Movement
from reliability.loops.comparison.ordered_items import ITEMS_MAX, count_items
from reliability.loops.comparison.tool_verbs import takes_notes
from reliability.loops.repeatable_calls import is_generic_tool, list_shell_commands
from reliability.loops.revisits import find_last_deed, find_revisits, may_change, repeats, shows
from reliability.loops.text_calls import read_as_written
from reliability.loops.thresholds import LoopConfig, LoopLimits
from reliability.loops.transcript import is_folded
from reliability.loops.turn_sequence import Pairwise, TurnSequence

_CHANGES_MIN = 2  # a result that changed once and no more is news
_PUSHED_LAPS, _WAITED = 2, 3
_TEXT_CHARS, TEXT_PERIOD_MAX = 4_000, 3
_THRESHOLDS = ("duplicate_threshold", "break_threshold", "poller_duplicate_threshold", "poller_break_threshold")
TEXTS_MAX = 64  # so many texts are looked at for each repetition that is asked about


def find_loop(
    turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None = None, memo: Memo | None = None
) -> Loop | None:
    """Find the loop that the turns are in, or that the candidate would continue. `memo`: what was found out about these
    very turns, under this very configuration, before."""
    if not config.enabled:
        return None
    candidate = _read_candidate(turns, candidate)
    found: list[Loop | None] = []
    if candidate is None or candidate.calls:
        found += _find_acting_loops(TurnSequence(_select_acting(turns, candidate), config, candidate, memo))
    if candidate is None or candidate.written or not candidate.calls:
        found += [_find_same_text(turns, config, candidate, period) for period in range(1, TEXT_PERIOD_MAX + 1)]
    return findings.choose_loop(found)


def repeats_already(turns: Sequence[Turn], config: LoopConfig, memo: Memo | None = None) -> bool:
    """Return whether the next answer may be one repetition too many: the rules are asked for one less than they act on.
    A yes where the answer is another one costs the client its stream, and no more. `memo`: see `find_loop`."""
    if any(getattr(config, name) == 1 for name in _THRESHOLDS):
        return config.enabled  # every answer is
    lowered = config.model_copy(update={name: getattr(config, name) - 1 for name in _THRESHOLDS})
    return find_loop(turns, lowered, memo=memo) is not None


def find_repetition(turns: Sequence[Turn], config: LoopConfig, candidate: Turn) -> Loop | None:
    """Find the newest calls in the candidate: a model that is unsure of them is nudged at once, not at the third."""
    earlier = config.model_copy(update={"duplicate_threshold": 2})
    row, counts = TurnSequence(_select_acting(turns, candidate), earlier, candidate), config.duplicate_threshold > 2
    return _find_same_calls(row, 1)[0] if config.enabled and counts and row.repeats_newest else None


def _read_candidate(turns: Sequence[Turn], candidate: Turn | None) -> Turn | None:
    """Read the candidate as the agent writes its answers down; of calls that are a turn each, the first."""
    if candidate is not None and is_folded(candidate):
        return replace(candidate, calls=candidate.calls[:1], results=candidate.results[:1])
    return candidate and read_as_written(candidate, turns)


def _select_acting(turns: Sequence[Turn], candidate: Turn | None) -> list[Turn]:
    """Select the turns with calls since the user last spoke, without thoughts, unless these are all there is."""
    last = max((i for i, turn in enumerate(turns) if turn.continued), default=-1)
    acting = [turn for turn in turns[last + 1 :] if turn.calls]
    # Within an order that the user says again, what was done for those before it is no lap.
    ordered = 1 + max((i for i, turn in enumerate(acting) if turn.asked), default=-1)
    acting = acting[ordered:] or acting
    if candidate is not None and _only_thinks(candidate):
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
    streaks = [*found, _find_same_errors(row), _find_refusals(row), _find_counted(row), _find_thoughts(row)]
    known = findings.choose_loop(streaks)
    if known is not None and known.stage is Stage.BREAK:
        return [known]
    revisits = find_revisits(row)
    return [revisits] if known is None or (revisits is not None and revisits.stage is Stage.BREAK) else [known]


def _find_same_calls(row: TurnSequence, period: int) -> tuple[Loop | None, bool]:
    config, newest = row.config, range(row.size - period, row.size)
    limits = config.limits
    counts = any(row.counts_on(index - period, index) for index in newest if index >= period)
    same, most = (row.has_same_results, config.poll_limits.times(_WAITED)) if counts else (row.has_repeated, limits)
    count = row.count_repetitions(period, same, max(*limits, *most))
    if limits.stage(count) is None:
        return None, False
    patient = all(map(row.is_patient_at, newest)) or row.waits_in(period) or row.makes_new(period)
    if counts:
        limits = limits.behind(row.count_things(period, count), most)
    elif patient:
        limits = config.poll_limits
    elif row.is_beyond(period):
        limits = LoopLimits(config.near_limits.warn, config.poll_limits.end)
    stage, count, nudged = _judge_laps(row, period, same, limits, patient or counts)
    again = nudged and stage is Stage.WARN and not (patient or counts)
    seen = again and all(shows(turn) for turn in row.turns[row.size - period :])
    return _build_calls_loop(row, period, count, stage, Kind.REVISITS if seen else Kind.CALLS), True


def _judge_laps(
    row: TurnSequence, period: int, pairwise: Pairwise, limits: LoopLimits, patient: bool
) -> tuple[Stage | None, int, bool]:
    """Judge a streak of such pairs by its limits, later ones where the user asked for so many; return its laps, and
    whether it was nudged before. `patient`: they are those of polls; what doesn't poll is nudged once then."""
    newest = range(row.size - period, row.size)
    if row.is_ordered(period):
        patient, limits = True, row.config.poll_limits
    leads = (patient or any(map(row.leads_at, newest))) and not any(map(row.fails_at, newest))
    asked = max(row.order.again, max(row.order.number, row.order.times) if leads else 0)
    limits = _give_laps(limits.after(asked), row.turns, period)
    limits = row.config.fit_laps(period, limits)
    count = row.count_repetitions(period, pairwise, max(limits))
    nudged = row.count_judged(count, period) >= limits.warn
    stage = limits.stage(count, ends=nudged or not row.holds_many)
    once = patient and not all(map(row.polls_at, newest))
    if stage is Stage.WARN and once and nudged:
        stage = None
    return stage, count, nudged


def _give_laps(limits: LoopLimits, turns: Sequence[Turn], period: int) -> LoopLimits:
    """Return the limits of a streak: it ends later where users' messages push it on."""
    pushed = limits.end > 0 and any(turn.pushed for turn in turns[-period * limits.end :])
    return limits._replace(end=limits.end + _PUSHED_LAPS) if pushed else limits


def _find_near_calls(row: TurnSequence, period: int) -> tuple[Loop | None, bool]:
    limits = row.config.near_limits
    count = row.count_repetitions(period, row.has_near_results, limits.end) if limits.end > 0 else 0
    if limits.stage(count) is None:
        return None, False
    movement = _judge_streak(row, period, count)
    if movement is Movement.PROGRESS:
        return None, True
    if movement is Movement.DRIFT or row.is_ordered(period):
        limits = row.config.poll_limits.times(_WAITED if row.polls_in(period) else 1)
    stage, count, _ = _judge_laps(row, period, row.has_near_results, limits, movement is Movement.DRIFT)
    before = TurnSequence(row.turns[: row.size - period], row.config, None, row.memo)
    if stage is Stage.BREAK and _judge_streak(before, period, count - 1) is not movement:
        stage = Stage.WARN
    return _build_calls_loop(row, period, count, stage, Kind.NEAR), True


def _judge_streak(row: TurnSequence, period: int, count: int) -> Movement:
    """Judge where the results of a near streak go; one that changed too seldom is progress. Polls tell the time."""
    told, changes = (Movement.DRIFT, _CHANGES_MIN) if row.polls_in(period) else (Movement.NOTHING, 0)
    known = min(count - (row.candidate is not None), near.LAPS_MAX)
    for place in filterfalse(row.polls_at, range(row.size - period, row.size)):
        laps = [row.results(index) for index in range(place, max(-1, place - period * known), -period)][::-1]
        for key, newest in laps[-1].items():
            texts = [text for lap in laps if (text := lap.get(key)) is not None]
            changes = max(changes, _count_changes(texts, row))
            step, makes = key in row.steps_in(place), key in row.makings_in(place)
            told = max(told, near.find_movement(texts, has_failed(newest), step, makes))
    return told if changes >= _CHANGES_MIN else Movement.PROGRESS


def _count_changes(texts: Sequence[str], row: TurnSequence) -> int:
    """Count the laps whose result differs from the one before. Figures may stand still for a lap."""
    changed = [near.find_difference(a.strip(), b.strip()) for a, b in pairwise(texts) if not row.is_equal(a, b)]
    worded = any(near.mask_once(a, row.memo) != near.mask_once(b, row.memo) for a, b in changed)
    return 0 if worded and len(changed) < len(texts) - 1 else len(changed)


def _build_calls_loop(row: TurnSequence, period: int, count: int, stage: Stage | None, kind: Kind) -> Loop | None:
    if stage is None:
        return None
    newest = row.turns[row.size - period :]
    keys = {row.key(index) for index in range(row.size - period, row.size)}
    tool = findings.join_names(call for turn in newest for call in turn.calls)
    key = findings.digest(*sorted(call for key in keys for call in key))
    evidence = findings.show_last(newest)
    return Loop(kind=kind, stage=stage, repetitions=count, period=period, tool=tool, evidence=evidence, key=key)


def _find_same_errors(row: TurnSequence) -> Loop | None:
    """Find the failures of one tool in a row that say the same, where the candidate calls that tool again."""
    before = find_last_deed(row)
    retried = "" if before is None or _read_failure(before) is None else before.calls[0].name
    # Between errors of a deed, what brings nothing new is skipped, and so is what fails otherwise and changes nothing.
    errors = (
        (at, error)
        for at in range(row.size - 1, -1, -1)
        if ((error := _read_error_at(row, at)) is not None and error.tool == retried)
        or not (retried and (repeats(row, at) or (row.fails_at(at) and not may_change(row, at))))
    )
    place, newest = next(errors, (0, None))
    if newest is None:
        return None
    tool, text, masked = newest
    if row.candidate is not None and {call.name for call in row.candidate.calls} != {tool}:
        return None
    ordered, again = row.is_ordered(1), row.order.again
    limits = row.config.poll_limits if ordered else row.config.limits
    places, echoes = [place], bool(LOOKUP.search(text))
    most = max(2 * max(*limits, 1), again, row.order.number, ITEMS_MAX)
    for at, error in islice(errors, most + 1):
        if error is None or error.tool != tool or not any(map(row.is_equal, error[1:], (text, masked))):
            break
        echoes = echoes or not row.is_equal(error.text, text)
        places.append(at)
    count = len(places)
    loops: list[Loop | None] = []
    if ordered:
        count += row.candidate is not None  # as in CALLS, so that both nudge at once
    else:
        limits = limits.after(again - 1)  # here the candidate isn't counted
        if echoes and limits.end > 0:
            limits = limits._replace(end=max(limits.end, 2 * row.config.break_threshold, row.order.number))
        if limits.stage(count) is not None and not is_edit(row.turns[place].calls[0]):
            count, loops = _leave_out_items(row, places, text)
    nudged = row.count_judged(count, 1) >= limits.warn
    if ordered and nudged and count < limits.end:
        return None
    stage = limits.stage(count, ends=nudged or not row.holds_many)
    return findings.choose_loop([*loops, _build_streak_loop(Kind.ERRORS, count, stage, text, tool)])


def _leave_out_items(row: TurnSequence, places: Sequence[int], text: str) -> tuple[int, list[Loop | None]]:
    """Return how many of these failures count, without those about another thing that was named, or of which the user
    orders each, and the loop of such things where the end of their list isn't known: it has the limits of a poll."""
    turns = [row.turns[at] for at in reversed(places)] + ([row.candidate] if row.candidate is not None else [])
    named, new = count_items(turns, row.order_text, row.turns[: places[-1]])
    count = len(places) - max(0, named - 1)
    if not row.order.each:
        return count, []
    limits = row.config.poll_limits.after(row.order.each)
    stage = limits.stage(count)
    if stage is Stage.WARN and row.count_judged(count, 1) >= limits.warn:
        stage = None
    tool = row.turns[places[0]].calls[0].name
    return len(places) - max(0, new - 1), [_build_streak_loop(Kind.ERRORS, count, stage, text, tool)]


def _read_error_at(row: TurnSequence, index: int) -> Failure | None:
    found = row.memo.once(("error", index), lambda: _read_failure(row.turns[index]))
    return None if found is None or row.polls_at(index) else found


def _read_failure(turn: Turn) -> Failure | None:
    return None if any(map(is_generic_tool, turn.calls[:1])) else read_failure(turn)


def _find_refusals(row: TurnSequence) -> Loop | None:
    """Find the unlike commands at the tail that a shell has refused in the same words, where the candidate is one."""
    told = row.turns[-1].results[0] if row.turns and row.turns[-1].results else None
    newest = row.turns[-1] if row.candidate is None and row.turns else row.candidate
    if told is None or newest is None or row.is_ordered(1) or not (list_shell_commands(newest) and says_refusal(told)):
        return None
    alike = takewhile(lambda turn: set(turn.results) == {told} and list_shell_commands(turn), reversed(row.turns))
    commands = [list_shell_commands(turn) for turn in alike]
    if row.candidate is not None:
        commands.insert(0, list_shell_commands(row.candidate))
    limits = LoopLimits(row.config.near_limits.warn, 2 * row.config.break_threshold)
    if not are_unlike(list(chain(*commands)), limits.warn):
        return None
    stage = limits.stage(len(commands), ends=are_unlike(list(chain(*commands[1:])), limits.warn))
    return _build_streak_loop(Kind.ERRORS, len(commands), stage, told, newest.calls[0].name)


def _find_counted(row: TurnSequence) -> Loop | None:
    """Find the commands at the tail that differ in their figures only, and fail each with its own, where the candidate
    is one."""
    last = [result for result in row.turns[-1].results if result] if row.turns else []
    newest = row.candidate or (row.turns[-1] if last else None)
    masked = list(map(near.mask_figures, list_shell_commands(newest))) if newest is not None else []
    if newest is None or not (masked and last) or row.is_ordered(1):
        return None

    def fails_so(turn: Turn) -> bool:
        told, is_near = turn.results, partial(near.is_near_result, threshold=row.config.near_threshold, memo=row.memo)
        alike = list(map(near.mask_figures, list_shell_commands(turn))) == masked and len(told) == len(last)
        return alike and any(map(has_failed, told)) and all(map(is_near, map(str, told), last))

    failed = list(takewhile(fails_so, reversed(row.turns[-ITEMS_MAX:])))
    if min(len({turn.calls for turn in failed}), len({turn.results for turn in failed})) < max(2, len(failed) // 2):
        return None  # the same command again, or the same words, have rules of their own
    places = range(row.size - 1, row.size - 1 - len(failed), -1)
    count, loops = _leave_out_items(row, places, last[-1])
    limits = LoopLimits(row.config.near_limits.warn, 2 * row.config.break_threshold)
    stage = limits.stage(count, ends=row.count_judged(count, 1) >= limits.warn or not row.holds_many)
    return findings.choose_loop([*loops, _build_streak_loop(Kind.ERRORS, count, stage, last[-1], newest.calls[0].name)])


def _find_thoughts(row: TurnSequence) -> Loop | None:
    """Find the turns at the tail that only think, and are answered alike: they are nudged once."""
    newest = row.candidate or (row.turns[-1] if row.turns else None)
    if newest is None or not newest.calls or not _only_thinks(newest):
        return None
    limits = row.config.poll_limits.after(row.order.again)
    answered = map(_read_answers, reversed(row.turns))
    first = next(answered, None)
    alike = 0 if first is None else 1 + sum(1 for _ in takewhile(lambda answers: answers == first, answered))
    count = alike + (row.candidate is not None)
    if limits.warn < count < limits.end:
        return None
    return _build_streak_loop(Kind.CALLS, count, limits.stage(count), "", newest.calls[0].name)


def _read_answers(turn: Turn) -> frozenset[str] | None:
    """Return what a turn that only thinks was answered, without what repeats or counts the thoughts; None: unknown."""
    if not _only_thinks(turn) or None in turn.results:
        return None
    pairs = zip(turn.calls, turn.results, strict=False)
    told = (mask_echoes(call, result.strip()) for call, result in pairs if result is not None)
    return frozenset(map(near.mask_figures, told))


def _find_same_text(turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None, period: int) -> Loop | None:
    """Find the repetitions of the newest `period` texts, back to the first that differs or to a call."""
    texts = list(islice(_walk_back([*turns, candidate] if candidate is not None else turns), TEXTS_MAX))
    alike = partial(findings.is_alike, similarity=config.similarity_threshold)
    if len(texts) < period or (period > 1 and alike(texts[0], texts[1])):
        return None
    count, limits = findings.count_rounds(texts, period, alike), _give_laps(config.limits, turns, period)
    return _build_streak_loop(Kind.TEXTS, count, limits.stage(count), texts[0], period=period)


def _walk_back(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in reversed(turns):
        if turn.asked:
            return  # what was asked again may be answered alike
        if turn.calls and not (turn.written and all(result is None for result in turn.results)):
            return
        if turn.text.strip():
            yield " ".join(turn.text[:_TEXT_CHARS].split())


def _build_streak_loop(
    kind: Kind, count: int, stage: Stage | None, text: str, tool: str = "", period: int = 1
) -> Loop | None:
    if stage is None:
        return None
    evidence = findings.summary(text)
    key = findings.digest(kind, tool or evidence)
    return Loop(kind=kind, stage=stage, repetitions=count, period=period, tool=tool, evidence=evidence, key=key)
