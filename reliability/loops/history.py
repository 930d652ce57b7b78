"""The history rules: is the model going round in circles?

Everything is read from the tail: a loop that was left is no loop. For each period the rule counts how many
repetitions at the tail have the same calls **with the same results**; a repeated call whose result has changed
is progress. The answer that is about to leave (`candidate`) counts as the newest repetition: its result can't
be known, so it counts as begun when its calls are those that would start the repetition. At three, the history
holds two full repetitions and the answer starts the third.

    rule    repeats                                   warns at              breaks at
    CALLS   same calls, same results, period 1..max   duplicate_threshold   break_threshold
            (every call of it is a poll)              poller_duplicate_...  poller_break_...
    NEAR    same calls, results nearly the same       -                     break_threshold
    ERRORS  same error of one tool, any arguments     duplicate_threshold   break_threshold
    TEXTS   same text, no call between                duplicate_threshold   break_threshold

A user message re-arms every rule, and so does any answer of another kind. The strictest verdict wins, then the
one with the most repetitions.

CALLS and NEAR are lazy by design (`History`): keys are computed from the tail backwards and only as far as a cycle
holds, and results are compared only where calls repeat; an ordinary history costs a handful of comparisons.
Whatever was asked once of a request's turns stands in its `Memo`: neither another period nor another tier's
attempt asks again.

ERRORS is for tools with one meaning. A shell or a browser does something else with every argument, so its
failures are left to the judge; and an exit code without a word is no error text: twelve greps that find
nothing are a search. "Not found" is an answer as much as an error, since one may look for many things: it
breaks at twice the limit.

TEXTS looks through user messages that only say "go on" (see `content`); every other user message re-arms it,
and so does a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rapidfuzz import fuzz

from reliability.loops.canonical import call_key, digest, summary
from reliability.loops.errors import error_text, has_failed
from reliability.loops.findings import Call, Kind, Loop, Result, Stage, Turn
from reliability.loops.memo import Memo
from reliability.loops.near import is_near_result
from reliability.loops.polling import is_generic_tool, is_poll
from reliability.loops.same_result import is_same_result
from reliability.loops.thresholds import LoopConfig

__all__ = ["find_loop", "stage_of"]

TEXT_CHARS = 4_000
ERROR_CHARS = 2_000
#: An error shorter than this ("error") says too little to be the same error.
ERROR_CHARS_MIN = 8
_LOOKUP = re.compile(r"\bnot (?:be )?found\b|\bno (?:such|match|results?)\b|\bdoes(?:n't| not) exist\b", re.IGNORECASE)

Key = frozenset[str]
Pairwise = Callable[[int, int], bool]
SAME, NEAR = "same", "near"


def find_loop(
    turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None = None, memo: Memo | None = None
) -> Loop | None:
    """Find the loop that the turns are in, or that the candidate would continue; None where there is none. `memo`: what
    was found out about these very turns, under this very configuration, before."""
    if not config.enabled:
        return None
    acting = candidate is None or bool(candidate.calls)
    found: list[Loop | None] = []
    if acting:
        history = History(_select_acting(turns), config, candidate, memo)
        for period in range(1, config.max_period + 1):
            found.append(loop := _find_repetition(history, period))
            if loop is not None and loop.stage is Stage.BREAK and history.memo.spent:
                break  # so much is compared already that a verdict is enough
        found.append(_find_same_error(history))
    if candidate is None or not candidate.calls:
        found.append(_find_same_text(turns, config, candidate))
    detected = [loop for loop in found if loop is not None]
    return max(detected, key=lambda loop: (loop.stage is Stage.BREAK, loop.repetitions), default=None)


def _select_acting(turns: Sequence[Turn]) -> list[Turn]:
    """Select the turns with calls since the user last spoke: texts between calls don't interrupt a loop."""
    last = max((i for i, turn in enumerate(turns) if turn.continued), default=-1)
    return [turn for turn in turns[last + 1 :] if turn.calls]


def _find_repetition(history: History, period: int) -> Loop | None:
    """Find CALLS, else NEAR, for one period."""
    config, size = history.config, history.size
    count = history.count_repetitions(
        period, history.has_same_results, max(config.duplicate_threshold, config.break_threshold)
    )
    polls = count > 1 and all(history.polls_at(i) for i in range(size - period, size))
    warn = config.poller_duplicate_threshold if polls else config.duplicate_threshold
    limit = config.poller_break_threshold if polls else config.break_threshold
    stage = stage_of(count, warn, limit)
    if stage is not None:
        return _build_calls_loop(history, period, count, stage, Kind.CALLS)
    if polls or count == 0 or config.break_threshold <= 0:
        return None
    count = history.count_repetitions(period, history.has_near_results, config.break_threshold)
    if count < config.break_threshold:
        return None
    return _build_calls_loop(history, period, count, Stage.BREAK, Kind.NEAR)


def _build_calls_loop(history: History, period: int, count: int, stage: Stage, kind: Kind) -> Loop:
    newest = history.turns[history.size - period :]
    names = list(dict.fromkeys(call.name for turn in newest for call in turn.calls))
    results = [result.text for turn in newest for result in turn.results if result is not None]
    return Loop(
        kind=kind,
        stage=stage,
        repetitions=count,
        period=period,
        tool=" → ".join(names[:4]),
        evidence=summary(results[-1]) if results else "",
        key=digest(*sorted(key for keys in history.cycle_key(period) for key in keys)),
        strike=2 if _has_recurred(history, period, count) else 1,
    )


def _has_recurred(history: History, period: int, count: int) -> bool:
    """Return whether the model was in this very loop before, since the user last spoke, and had left it. Where the
    streak was not counted to its end nobody knows where it began."""
    if history.memo.spent:
        return False
    enough = max(history.config.duplicate_threshold, 2)
    begin = history.size - period * (count - (history.candidate is not None))
    for end in range(begin, period, -1):
        earlier = history.cut_at(end)
        again = earlier.cycle_key(period) == history.cycle_key(period)
        if again and earlier.count_repetitions(period, earlier.has_same_results, enough) >= enough:
            return True
    return False


def _find_same_error(history: History) -> Loop | None:
    """Find ERRORS: failures of one tool in a row that say the same; the candidate must call that tool again."""
    newest = _read_error_at(history, history.size - 1) if history.turns else None
    if newest is None or history.polls_at(history.size - 1):
        return None
    tool, text = newest
    if history.candidate is not None and {call.name for call in history.candidate.calls} != {tool}:
        return None
    warn, limit = history.config.duplicate_threshold, history.config.break_threshold
    limit = 2 * limit if _LOOKUP.search(text) else limit
    count = 0
    for index in range(history.size - 1, max(history.size - max(warn, limit, 1) - 2, -1), -1):
        error = _read_error_at(history, index)
        if error is None or error[0] != tool or not is_same_result(error[1], text):
            break
        count += 1
    return _build_streak_loop(Kind.ERRORS, count, warn, limit, summary(text), tool)


def _read_error_at(history: History, index: int) -> tuple[str, str] | None:
    return history.memo.once(("error", index), lambda: _read_error(history.turns[index]))


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


def _find_same_text(turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None) -> Loop | None:
    """Find TEXTS: compare the newest text with the ones before it, back to the first that differs or to a call."""
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
    return _build_streak_loop(Kind.TEXTS, count, config.duplicate_threshold, config.break_threshold, evidence)


def _build_streak_loop(kind: Kind, count: int, warn: int, limit: int, evidence: str, tool: str = "") -> Loop | None:
    stage = stage_of(count, warn, limit)
    if stage is None:
        return None
    return Loop(
        kind=kind,
        stage=stage,
        repetitions=count,
        tool=tool,
        evidence=evidence,
        key=digest(kind, tool or evidence),
    )


def stage_of(count: int, warn: int, limit: int) -> Stage | None:
    """Return the stage that so many repetitions have reached; a threshold of 0 or less is off."""
    if 0 < limit <= count:
        return Stage.BREAK
    return Stage.WARN if 0 < warn <= count else None


class History:
    """The turns that act, and how they compare: each is read once, and only where it is asked for. `memo` belongs to
    these turns, or to longer ones that begin with them."""

    def __init__(self, turns: list[Turn], config: LoopConfig, candidate: Turn | None, memo: Memo | None = None) -> None:
        self.turns, self.config, self.candidate = turns, config, candidate
        self.memo = Memo() if memo is None else memo

    @property
    def size(self) -> int:
        """The number of turns."""
        return len(self.turns)

    def cut_at(self, end: int) -> History:
        """Return the history as it stood before the turn `end`."""
        return History(self.turns[:end], self.config, None, self.memo)

    def cycle_key(self, period: int) -> frozenset[Key]:
        """Return what the newest repetition does, wherever in it one starts to count."""
        return frozenset(self.key(index) for index in range(self.size - period, self.size))

    def key(self, index: int) -> Key:
        """Return what the turn asks for, its parallel calls as a set."""
        return self.memo.once(("key", index), lambda: self.key_of(self.turns[index].calls))

    def key_of(self, calls: Iterable[Call]) -> Key:
        """Return a parallel batch as a set: its order doesn't count, and equal calls in it count once."""
        return frozenset(map(self._call_key, calls))

    def _call_key(self, call: Call) -> str:
        return self.memo.once(call, lambda: call_key(call, self.config.ignored_arguments))

    def count_repetitions(self, period: int, pairwise: Pairwise, enough: int = 0) -> int:
        """Count the repetitions at the tail in which turn and turn a period later are a pair. Past `enough` they are
        counted only as long as that is cheap (see `Memo`); 0: all of them."""
        if self.size < period or not self._starts_again(period):
            return 0
        paired = 0
        for index in range(self.size - 1, period - 1, -1):
            if 0 < enough * period <= paired and not self._is_cheap(index - period, index):
                break
            if self.key(index) != self.key(index - period) or not pairwise(index - period, index):
                break
            paired += 1
        return (paired + period) // period + (self.candidate is not None)

    def _is_cheap(self, older: int, newer: int) -> bool:
        """Return whether these two may still be compared, past a verdict. Polls are compared as they are: cheaply."""
        if self.polls_at(newer) or any((kind, older, newer) in self.memo for kind in (SAME, NEAR)):
            return True
        a, b = ([result.text for result in self.turns[i].results if result is not None] for i in (older, newer))
        return a == b or self.memo.affords(sum(map(len, a)) + sum(map(len, b)))

    def _starts_again(self, period: int) -> bool:
        if self.candidate is None:
            return True
        return self.key_of(self.candidate.calls) == self.key(self.size - period)

    def polls_at(self, index: int) -> bool:
        """Return whether every call of the turn waits or pages."""
        return self.memo.once(("polled", index), lambda: self._is_poll_turn(self.turns[index]))

    def _is_poll_turn(self, turn: Turn) -> bool:
        pairs = dict.fromkeys(zip(turn.calls, turn.results, strict=False))
        return all(is_poll(call, result, self.config.pollers) for call, result in pairs)

    def results(self, index: int) -> dict[str, Result | None]:
        """Return the turn's results by call."""
        return self.memo.once(("results", index), lambda: self._map_results(self.turns[index]))

    def _map_results(self, turn: Turn) -> dict[str, Result | None]:
        return {self._call_key(call): result for call, result in zip(turn.calls, turn.results, strict=False)}

    def _results_pass(self, older: int, newer: int, test: Callable[[str, str], bool]) -> bool:
        """Return whether each call of the two turns has two known results that pass the test."""
        a, b = self.results(older), self.results(newer)
        for key, result in a.items():
            other = b.get(key)
            if result is None or other is None or not test(result.text, other.text):
                return False
        return True

    def has_same_results(self, older: int, newer: int) -> bool:
        """Return whether the two turns have the same results; those of polls are compared as they are."""
        return self.memo.once((SAME, older, newer), lambda: self._compare(older, newer))

    def _compare(self, older: int, newer: int) -> bool:
        exact = self.polls_at(older) and self.polls_at(newer)
        return self._results_pass(older, newer, _is_literally_equal if exact else self._is_equal)

    def _is_equal(self, older: str, newer: str) -> bool:
        return self.memo.once((older, newer), lambda: is_same_result(older, newer, self.memo.parse))

    def has_near_results(self, older: int, newer: int) -> bool:
        """Return whether the two turns have nearly the same results, and neither polls."""
        return self.memo.once((NEAR, older, newer), lambda: self._compare_nearly(older, newer))

    def _compare_nearly(self, older: int, newer: int) -> bool:
        if self.polls_at(older) or self.polls_at(newer):
            return False
        threshold, parse = self.config.near_threshold, self.memo.parse
        return self._results_pass(older, newer, lambda a, b: is_near_result(a, b, threshold, parse, self._is_equal))


def _is_literally_equal(older: str, newer: str) -> bool:
    return older.strip() == newer.strip()
