"""The turns that act, in order, and how they compare: each is read once, and only where it is asked for.

A turn's key is what its calls mean, without the thoughts beside them, as a set. Two turns with the same key are
compared by their results, call by call:

    has_same_results   the same but for volatile fields; where the calls aren't spelled alike, the results must also
                       say something, or the calls ask for places where there is nothing (`is_beyond`)
    has_near_results   nearly the same, and the calls are spelled alike
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import takewhile
from typing import TypeVar

from reliability.loops import repeatable_calls as repeatable
from reliability.loops.comparison import call_normalization as normalization
from reliability.loops.comparison.call_normalization import HOLE, PLACE, REFERENCE, mask_echoes, spell_aim
from reliability.loops.comparison.findings import Memo, SeenCall, Turn, has_failed, read_fields
from reliability.loops.comparison.near import is_near_result, mask_times
from reliability.loops.comparison.same_result import is_same_result
from reliability.loops.comparison.shell_commands import Deed, read_deed
from reliability.loops.comparison.tool_verbs import takes_notes
from reliability.loops.content import PersonsOrder, read_order
from reliability.loops.repeatable_calls import acts, leads_on
from reliability.loops.thresholds import LoopConfig

_Key = frozenset[str]
Pairwise = Callable[[int, int], bool]
T = TypeVar("T")
#: In what a shell or a query is told: it only looks, or tests what there is.
_CHECKS = re.compile(
    r"tests?\b|spec\b|lint|check(?!out)|verif|valid|build|compile|mypy|ruff|\btsc\b|\btox\b|\bmake\b"
    r"|--(?:help|version|dry-run|list|show)\b|\"\s*(?:select|show|explain|describe)\b",
    re.IGNORECASE,
)
_SLEEPS, _SECONDS, _LONG_REST_S = re.compile(r"\bsleep\s+(\d+[mh]?)"), re.compile(r"\d{1,9}"), 30
_COMPARED = ("has_same_results", "has_near_results")


def once(find: Callable[..., T]) -> Callable[..., T]:
    """Let the memo keep what a method finds about these places."""

    @wraps(find)
    def recall(row: TurnSequence, *places: int) -> T:
        return row.memo.once((find.__name__, *places), lambda: find(row, *places))

    return recall


class TurnSequence:
    """The turns that act, oldest first, and the answer that may be next (`candidate`). `memo` belongs to these turns,
    or to longer ones that begin with them."""

    def __init__(
        self, turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None, memo: Memo | None = None
    ) -> None:
        self.turns, self.config, self.candidate, self.size = turns, config, candidate, len(turns)
        self.memo = Memo() if memo is None else memo
        self.order_text = turns[-1].request if turns else ""

    @property
    def order(self) -> PersonsOrder:
        """What the user's last message orders."""
        return self.memo.once("order", lambda: read_order(self.order_text))

    def is_ordered(self, period: int) -> bool:
        """Return whether the user orders repetition without a number, or says the same again behind each answer."""
        return self.order.endless or any(turn.asked for turn in self.turns[-period:])

    @property
    def holds_many(self) -> bool:
        """Whether an answer holds more than one of the turns."""
        return any(turn.folded for turn in self.turns)

    def count_judged(self, count: int, period: int) -> int:
        """Return how many of `count` repetitions were judged before the newest answer's, as many as the user orders."""
        size = 1 + sum(1 for _ in takewhile(lambda turn: turn.folded, reversed(self.turns)))
        return count - min(-(-size // period), max(1, self.order.times))

    def key(self, index: int) -> _Key:
        """Return what the turn's calls mean, with their figures masked."""
        return self._keys(index)[1]

    @once
    def _keys(self, index: int) -> tuple[_Key, _Key]:
        return self._keys_of(self.turns[index].calls)

    def _keys_of(self, calls: tuple[SeenCall, ...]) -> tuple[_Key, _Key]:
        """Return what the calls mean, spelled and masked. A thought counts only where there is nothing else."""
        blurred = list(map(self._blur, [call for call in calls if not takes_notes(call.name)] or calls))
        return frozenset(spelled for spelled, _ in blurred), frozenset(masked for _, masked in blurred)

    def _blur(self, call: SeenCall) -> tuple[str, str]:
        return self.memo.once(("blurred", call), lambda: normalization.blur_call(call, self.config.ignored_arguments))

    def asks_the_same(self, older: int, newer: int) -> bool:
        """Return whether the calls of the two turns are spelled alike."""
        return self.turns[older].calls == self.turns[newer].calls or self._keys(older)[0] == self._keys(newer)[0]

    @property
    def repeats_newest(self) -> bool:
        """Return whether the candidate repeats the newest turn, which isn't one that brought another page of a list."""
        newest = (self.size - 2, self.size - 1)
        pages = self.size > 1 and self.asks_the_same(*newest) and not self.has_same_results(*newest)
        return self.size > 0 and not pages and self.starts_again(1)

    def asks_again(self, index: int) -> bool:
        asked = self.candidate.calls if self.candidate is not None else ()
        return asked == self.turns[index].calls or self._keys_of(asked)[0] == self._keys(index)[0]

    def count_repetitions(self, period: int, pairwise: Pairwise, enough: int = 0) -> int:
        """Count the repetitions at the tail whose turns are pairs; past `enough` only while that is cheap; 0: all."""
        if self.size < period or not self.starts_again(period):
            return 0
        paired = 0
        for index in range(self.size - 1, period - 1, -1):
            older = index - period
            dear = 0 < enough * period <= paired and not self._is_cheap(older, index)
            if dear or self.key(index) != self.key(older):
                break
            same = pairwise(older, index)
            if not same and paired >= period and self.memo.blind and not self.polls_at(index):
                same = self.has_near_results(older, index)  # no more can be masked to see that they are the same
            if not same:
                break
            paired += 1
        return (paired + period) // period + (self.candidate is not None)

    def _is_cheap(self, older: int, newer: int) -> bool:
        """Return whether these two may still be compared, past a verdict."""
        if any((kind, older, newer) in self.memo for kind in _COMPARED):
            return True
        a, b = ([result for result in self.turns[i].results if result is not None] for i in (older, newer))
        return a == b or self.memo.affords(sum(map(len, a)) + sum(map(len, b)))

    def starts_again(self, period: int) -> bool:
        """Return whether the candidate begins the next repetition. One that isn't equal to the letter does so only
        where the turns before it weren't either: who corrects a figure begins something new."""
        if self.candidate is None:
            return True
        first = self.size - period
        asked, before = self.candidate.calls, self.turns[first].calls
        if asked == before:
            return True
        if _name_tools(asked) != _name_tools(before):
            return False
        spelled, key = self._keys_of(asked)
        if key != self.key(first):
            return False
        if not _has_holes(key) or spelled == self._keys(first)[0]:
            return True
        if first < period or self.asks_the_same(first - period, first):
            return False
        return self._say_enough(first) or self._finds_nothing(first)

    def _say_enough(self, index: int) -> bool:
        return all(result is not None and normalization.says_enough(result) for result in self.results(index).values())

    def _finds_nothing(self, index: int) -> bool:
        """Return whether the turn asks for places only, and its results don't say that something was done."""
        key = self.key(index)
        if not (_has_holes(key) and all(map(_holds_places_only, key))):
            return False
        results = self.results(index).values()
        return all(result is not None and not normalization.says_done(result) for result in results)

    def is_beyond(self, period: int) -> bool:
        """Return whether the newest repetition asks for other places than the one before, equally empty."""
        newest = range(max(period, self.size - period), self.size)
        others = (index for index in newest if not self.asks_the_same(index - period, index))
        return any(self._finds_nothing(index) and not self._say_enough(index) for index in others)

    @once
    def counts_on(self, older: int, newer: int) -> bool:
        """Return whether the newer turn does to others, which its figures name, what the older one did, and works."""
        if self.asks_the_same(older, newer) or self.fails_at(newer) or self.key(older) != self.key(newer):
            return False
        pairs, others = self._pairs(newer), self._pairs(older)
        return any(
            _names_thing(key) and spell_aim(call) != spell_aim(others[key][0]) for key, (call, _) in pairs.items()
        )

    @once
    def has_repeated(self, older: int, newer: int) -> bool:
        """Return whether the newer turn does the same to the same as the older one, with the same results."""
        return self.has_same_results(older, newer) and not self.counts_on(older, newer)

    def count_things(self, period: int, laps: int) -> int:
        """Count the different things that so many repetitions at the tail are about, the candidate's among them."""
        asked = self.candidate.calls if self.candidate is not None else ()
        known, first = laps - bool(asked), self.size - period
        most = 1
        for place in range(first, self.size):
            called = [self.turns[at].calls for at in range(place, -1, -period)[:known]]
            called += [asked] * (bool(asked) and place == first)
            most = max(most, laps - len(called) + len({tuple(map(spell_aim, calls)) for calls in called}))
        return most

    @once
    def steps_in(self, index: int) -> frozenset[str]:
        """Name the calls of the turn that lead on, as `results` names them."""
        pairs = self._pairs(index).items()
        return frozenset(k for k, (c, r) in pairs if acts(c) and leads_on(r) and not self._is_poll(c, None))

    def _is_poll(self, call: SeenCall, result: str | None) -> bool:
        return repeatable.is_poll(call, result, self.config.pollers)

    @once
    def makings_in(self, index: int) -> frozenset[str]:
        """Name the steps of the turn and the commands that neither look nor test, as `results` names them."""
        commands = {k for k, (c, _) in self._pairs(index).items() if repeatable.list_commands(c) and _makes(c)}
        return self.steps_in(index) | commands

    @once
    def leads_at(self, index: int) -> bool:
        """Return whether a call of the turn leads on: a step, a deed, or a command that neither looks nor tests."""
        pairs = self._pairs(index).values()
        return bool(self.steps_in(index)) or any(leads_on(result) and _makes(call) for call, result in pairs)

    @once
    def fails_at(self, index: int) -> bool:
        return any(map(has_failed, self.turns[index].results))

    def makes_new(self, period: int) -> bool:
        """Return whether the steps of the newest repetition have made something else than those of the one before."""
        for index in range(max(self.size - period, period), self.size):
            for key in self.steps_in(index) & self.steps_in(index - period):
                older, newer = (self.results(i)[key] for i in (index - period, index))
                made = repeatable.find_entities(newer) if newer is not None else frozenset()
                if made and older is not None and made.isdisjoint(repeatable.find_entities(older)):
                    return True
        return False

    @once
    def polls_at(self, index: int) -> bool:
        """Return whether every call of the turn waits or pages."""
        return all(self._is_poll(call, result) for call, result in self._distinct_pairs(index))

    @once
    def is_patient_at(self, index: int) -> bool:
        """Return whether every call of the turn waits, pages, or is a step whose result only says it was done."""
        return self.polls_at(index) or all(
            self._is_poll(call, result)
            or (repeatable.walks(call) and leads_on(result))
            or (result is not None and not takes_notes(call.name) and repeatable.acknowledges(call, result))
            for call, result in self._distinct_pairs(index)
        )

    def polls_in(self, period: int) -> bool:
        """Return whether a turn of the newest repetition polls."""
        return any(map(self.polls_at, range(self.size - period, self.size)))

    def waits_in(self, period: int) -> bool:
        """Return whether the newest repetition waits and then looks, and does nothing else."""
        pairs = {pair for index in range(self.size - period, self.size) for pair in self._distinct_pairs(index)}
        acted = [(call, result) for call, result in pairs if not takes_notes(call.name)]
        if not any(repeatable.rests(call) for call, _ in acted):
            return False
        return all(self._is_poll(call, result) or repeatable.looks(call, result) for call, result in acted)

    def _distinct_pairs(self, index: int) -> Iterable[tuple[SeenCall, str | None]]:
        return dict.fromkeys(zip(self.turns[index].calls, self.turns[index].results, strict=False))

    def results(self, index: int) -> dict[str, str | None]:
        """Return the turn's results by what was asked."""
        return {key: result for key, (_, result) in self._pairs(index).items()}

    @once
    def _pairs(self, index: int) -> dict[str, tuple[SeenCall, str | None]]:
        pairs = list(zip(self.turns[index].calls, self.turns[index].results, strict=False))
        acted = [pair for pair in pairs if not takes_notes(pair[0].name)] or pairs
        return {self._blur(call)[1]: (call, result) for call, result in acted}

    def _results_pass(self, older: int, newer: int, test: Callable[[str, str], bool]) -> bool:
        """Return whether each call of the two turns has two known results that pass the test."""
        a, b = self._pairs(older), self._pairs(newer)
        for key, (call, result) in a.items():
            asked, other = b.get(key, (call, None))
            if result is None or other is None:
                return False
            if test(result, other):
                continue
            echoes = call != asked and _holds_places_only(key)
            if not (echoes and test(mask_echoes(call, result), mask_echoes(asked, other))):
                return False
        return True

    @once
    def has_same_results(self, older: int, newer: int) -> bool:
        """Return whether the two turns have the same results; those of polls are compared as they are."""
        exact = self.polls_at(older) and self.polls_at(newer)
        if not self._results_pass(older, newer, (lambda a, b: a.strip() == b.strip()) if exact else self.is_equal):
            return False
        if not _has_holes(self.key(newer)) or self.asks_the_same(older, newer):
            return True
        refers = any(REFERENCE in call for call in self.key(newer))
        if refers and self.turns[older].results == self.turns[newer].results:
            return False  # another part of the same page
        return self._say_enough(newer) or self._finds_nothing(newer)

    def is_equal(self, older: str, newer: str) -> bool:
        """Return whether two results say the same."""
        return older == newer or self.memo.once((older, newer), lambda: is_same_result(older, newer, self.memo))

    @once
    def has_near_results(self, older: int, newer: int) -> bool:
        """Return whether the two turns have nearly the same results; those of polls differ in passing time only."""
        if not self.asks_the_same(older, newer):
            return False
        threshold, memo = self.config.near_threshold, self.memo
        if self.polls_at(older) or self.polls_at(newer):
            # A person may order a wait without an end, and a long one has one that nobody counts.
            if self.is_ordered(self.size - newer) or any(map(_rests_long, self.turns[newer].calls)):
                return False
            return self._results_pass(older, newer, lambda *two: self.is_equal(*(mask_times(one, memo) for one in two)))
        return self._results_pass(
            older, newer, lambda a, b: self.is_equal(a, b) or is_near_result(a, b, threshold, memo)
        )


def _name_tools(calls: Iterable[SeenCall]) -> frozenset[str]:
    """Name the tools that are called, without those that only take notes, unless there are no others."""
    names = frozenset(call.name for call in calls)
    return frozenset(name for name in names if not takes_notes(name)) or names


def _rests_long(call: SeenCall) -> bool:
    """Return whether the call lets half a minute pass, or more."""
    times = (_SLEEPS.findall(call.arguments) or _SECONDS.findall(call.arguments)) if repeatable.rests(call) else []
    return any(not time.isdecimal() or int(time) >= _LONG_REST_S for time in times)


def _has_holes(key: _Key) -> bool:
    return any(HOLE in call for call in key)


def _names_thing(call: str) -> bool:
    """Return whether a call's key holds figures that are neither places nor references."""
    return call.count(HOLE) > call.count(PLACE) + call.count(REFERENCE)


def _holds_places_only(call: str) -> bool:
    return call.count(HOLE) == call.count(PLACE)


def _makes(call: SeenCall) -> bool:
    """Return whether the call does something, of which a person may order many, be it by a command."""
    fields = read_fields(call)
    if not repeatable.is_generic_tool(call):
        return acts(call) or (repeatable.changes(call) and not any(map(normalization.names_place, fields)))
    deeds = {read_deed(text) for text in fields.values() if isinstance(text, str)}
    return not deeds.isdisjoint((Deed.ACTS, Deed.UNKNOWN)) and not _CHECKS.search(call.arguments)
