"""The revisit: an agent looks again at what it has looked at, and gets nothing new, in whatever order.

    read a   read b   read c   read b   read a   -> read c: the third look in a row that brings nothing

The same file with other bounds (`offset`, `limit`) is nothing new if each of its lines was seen, whatever its number
and what the reader says of the bounds. Nor is a file that a reader says is unchanged, and doesn't show. Nor is what is
told of things that nobody has named, a guess each, where the same was told of something else.

An edit that fails changes nothing, and what was done before with the same result changes nothing either: neither makes
what was seen news, and neither counts.

Invariants: only looks count; a call that does anything new makes all that was seen news again, and so does a wait. A
look whose result has changed ends the streak.
"""

from __future__ import annotations

import re
from itertools import takewhile

from reliability.loops.comparison import findings
from reliability.loops.comparison.call_normalization import says_enough, spell_aim
from reliability.loops.comparison.findings import Kind, Loop, SeenCall, Stage, Turn
from reliability.loops.comparison.ordered_items import count_items
from reliability.loops.comparison.shell_commands import Deed, read_deed
from reliability.loops.comparison.tool_verbs import LEADS, names_look
from reliability.loops.comparison.volatile_fields import word_set, words_of
from reliability.loops.repeatable_calls import is_generic_tool, list_commands
from reliability.loops.turn_sequence import TurnSequence, once

#: Arguments of one tool for many deeds that name the deed, and one that names how an address is asked.
_ACTIONS, _METHODS = ("command", "action", "operation"), word_set("POST PUT PATCH DELETE")
#: In what a tool that looks is told: SQL or GraphQL that writes, an address that switches something.
_WRITES = re.compile(
    r"(?:^|;)\s*(?:(?:insert|replace|merge)\s.{0,40}?\binto\b|update\s.{1,200}?\sset\s|delete\s+from\b|with\b[^;]{1,2000}?"
    r"\b(?:insert\s+into|update\s+\S{1,80}\s+set|delete\s+from)\b|(?:create|alter|drop|truncate)\s(?:\w+\s+){0,3}?"
    r"(?:table|view|index|database|schema|user|role|type|function|trigger|sequence)\b)"
    r"|(?:^|\})\s*mutation\b\s*\w*\s*[({@]|[?&][\w.]{1,40}=(?:on|off|toggle)\b",
    re.IGNORECASE | re.DOTALL,
)

#: Between the commands of a line.
_JOINT = re.compile(r"&&|\|\||[;\n]")
#: `cat -n`, `grep -n`, the readers of Claude Code, OpenHands and others.
_LINE_NUMBER = re.compile(r"^[ \t]*\d+(?:\t|\u2192|: ?| ?\| ?)", re.MULTILINE)
_LINES_MIN, _LINES_CHARS = 3, 64_000
#: What a reader says of what it shows ("Showing lines 1-10 of 26 total lines.", "---"), or instead of it.
_BOUNDS = re.compile(r"\W*(?:(?:\w+ ){0,3}lines? \d+(?:\W+\d+)?\b.{0,80})?", re.IGNORECASE)
_UNCHANGED = re.compile(r"\W*(?:the )?file\b[^\n]{0,300}?(?:\bunchanged|(?:n't|\bnot) changed) since\b", re.IGNORECASE)


def find_revisits(row: TurnSequence) -> Loop | None:
    """Find the streak of revisits at the tail that the candidate goes on with; None where a person orders repetition.
    Each `duplicate_threshold`-th is nudged. It breaks where one look comes for the `break_threshold`-th time, and at
    the `poller_break_threshold`-th guess."""
    newest = row.turns[-1] if row.candidate is None and row.turns else row.candidate
    if newest is None or not newest.calls or row.is_ordered(1) or row.order.again:
        return None
    if row.candidate is not None and not all(map(looks, newest.calls)):
        return None
    first = row.size
    while first > 0 and not may_change(row, first - 1):
        first -= 1
    looked = [index for index in range(first, row.size) if _only_looks(row, index)]
    count, visits = sum(1 for _ in takewhile(lambda index: repeats(row, index), reversed(looked))), 0
    if row.candidate is not None:
        aim = _spell_aims(newest)
        visits = 1 + sum(row.asks_again(index) or (aim != "" and aim == _find_aim(row, index)) for index in looked)
        count += visits > 1
    warn, limit = row.config.duplicate_threshold, row.config.break_threshold
    breaks = 0 < limit <= visits and count >= 2 * limit
    if visits < 2 and (guesses := _count_guesses(row, looked)) > 1:
        count, visits, breaks = guesses, guesses, 0 < row.config.poll_limits.end <= guesses
    if visits < 2 or not (breaks or (warn > 0 and count >= warn and count % warn == 0)):
        return None
    stage, tool = Stage.BREAK if breaks else Stage.WARN, newest.calls[0].name
    key = findings.digest(Kind.REVISITS, *sorted({call.name for call in newest.calls}))
    evidence = findings.show_last(row.turns[-1:])
    return Loop(kind=Kind.REVISITS, stage=stage, repetitions=count, tool=tool, evidence=evidence, key=key)


def _count_guesses(row: TurnSequence, looked: list[int]) -> int:
    """Count the things that nobody has named, and for which one tool was asked in the looks at the tail and is asked by
    the candidate, with one result."""
    newest = row.turns[looked[-1]] if looked else Turn()
    told = (newest.results, _name_tools(newest))
    alike = [at for at in looked if (row.turns[at].results, _name_tools(row.turns[at])) == told]
    alike = [at for at in alike if not row.counts_on(at, looked[-1])]  # by figures: that is work
    if row.candidate is None or _name_tools(row.candidate) != told[1] or row.order.each:
        return 0
    if any(map(is_generic_tool, newest.calls)) or not all(says_enough(result or "") for result in newest.results):
        return 0
    asked = [*(row.turns[at] for at in alike), row.candidate]
    named, new = count_items(asked, row.order_text, row.turns[: alike[0]])
    return new - max(0, named - 1)


def _name_tools(turn: Turn) -> list[str]:
    return [call.name for call in turn.calls]


def looks(call: SeenCall) -> bool:
    """Return whether the call only looks, by its name, the action or the command that it is told, and what it sends."""
    if is_generic_tool(call):
        commands = list_commands(call)
        return any(commands) and all(read_deed(command) is Deed.LOOKS for command in commands)
    texts = {key: text for key, text in findings.read_fields(call).items() if isinstance(text, str)}
    action = next((texts[key] for key in _ACTIONS if key in texts), "")
    told = action.isidentifier() and names_look(action)
    named = told or (names_look(call.name) and LEADS.isdisjoint(words_of(action)))
    return named and texts.get("method", "").upper() not in _METHODS and not any(map(_WRITES.search, texts.values()))


def shows(turn: Turn) -> bool:
    """Return whether the turn ends with a look, and has seen something: an answer in words can rest on it."""
    return all(map(_looks_at_last, turn.calls)) and not any(map(findings.has_failed, turn.results))


def _looks_at_last(call: SeenCall) -> bool:
    ends = (_JOINT.split(command)[-1] for command in list_commands(call))
    return looks(call) or any(read_deed(end) is Deed.LOOKS for end in ends)


def find_last_deed(row: TurnSequence) -> Turn | None:
    """Return the newest turn that calls what the candidate calls, where neither only looks."""
    asked = row.candidate.calls if row.candidate is not None else ()
    names = {call.name for call in asked}
    called = (turn for turn in reversed(row.turns) if {call.name for call in turn.calls} == names)
    return None if all(map(looks, asked)) else next((t for t in called if not all(map(looks, t.calls))), None)


@once
def repeats(row: TurnSequence, index: int) -> bool:
    """Return whether the turn looks at what was seen, and nothing has changed between, or does again what was done."""
    turns, looked = row.turns, _only_looks(row, index)
    for at in range(index - 1, -1, -1):
        if looked and _only_looks(row, at) and row.asks_the_same(at, index):
            return row.has_same_results(at, index) or _is_unchanged(row, index)
        if looked and _only_looks(row, at) and _shows_no_more(row, at, index):
            return True
        if looked and may_change(row, at):
            return False
        # What isn't equal to the letter in either is another deed: no more is read of it.
        alike = not looked and (turns[at].calls == turns[index].calls or turns[at].results == turns[index].results)
        if alike and row.asks_the_same(at, index) and row.has_same_results(at, index):
            return not row.is_patient_at(index)
    return False


def _shows_no_more(row: TurnSequence, older: int, newer: int) -> bool:
    """Return whether the newer turn looks at what the older one did, with other bounds, and shows no other line."""
    aim = _find_aim(row, newer)
    if not aim or aim != _find_aim(row, older):
        return False
    lines = _find_lines(row, newer)
    return _is_unchanged(row, newer) or (len(lines) >= _LINES_MIN and lines <= _find_lines(row, older))


@once
def _find_aim(row: TurnSequence, index: int) -> str:
    return _spell_aims(row.turns[index])


def _spell_aims(turn: Turn) -> str:
    aims = sorted(map(spell_aim, turn.calls))
    return "\n".join(aims) if all(aims) else ""


@once
def _find_lines(row: TurnSequence, index: int) -> frozenset[str]:
    """Find the lines of a turn's results, without the numbers that a reader puts before them."""
    text = "\n".join(result for result in row.turns[index].results if result is not None)
    lines = map(str.strip, _LINE_NUMBER.sub("", text[:_LINES_CHARS]).splitlines())
    return frozenset(line for line in lines if not _BOUNDS.fullmatch(line))


def _is_unchanged(row: TurnSequence, index: int) -> bool:
    return all(_UNCHANGED.match(result or "") for result in row.turns[index].results)


@once
def _only_looks(row: TurnSequence, index: int) -> bool:
    turn = row.turns[index]
    return None not in turn.results and all(map(looks, turn.calls)) and not row.is_patient_at(index)


@once
def may_change(row: TurnSequence, index: int) -> bool:
    """Return whether the turn may have changed what a look shows, or let time pass."""
    turn = row.turns[index]
    pairs = list(zip(turn.calls, turn.results, strict=False))
    idle = all(looks(call) or (findings.has_failed(result) and not is_generic_tool(call)) for call, result in pairs)
    return None in turn.results or not ((idle and not row.is_patient_at(index)) or repeats(row, index))
