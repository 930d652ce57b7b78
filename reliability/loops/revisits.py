"""The revisit: an agent looks again at what it has looked at, and gets nothing new, in whatever order.

    read a   read b   read c   read b   read a   -> read c: the third look in a row that brings nothing

CALLS wants laps of one order. Who has lost its thread reads the same few files as they come to mind, and behind each
summary of its conversation once more (Qwen2.5-Coder 1.5B under Claude Code: nine files, for as long as it was let).

Invariants: a streak is made of turns that only look; a call that does anything else makes all that was seen news again,
and so does a wait. A look whose result has changed ends the streak. No recorded run of the 316 has two in a row.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliability.loops.comparison.findings import Kind, Loop, SeenCall, Stage, digest, summary
from reliability.loops.comparison.shell_commands import Deed, read_deed
from reliability.loops.comparison.volatile_fields import word_set, words_of
from reliability.loops.repeatable_calls import is_generic_tool, list_commands
from reliability.loops.turn_sequence import TurnSequence

_LOOKS = word_set("get read list ls search find fetch show view query cat grep glob inspect describe lookup retrieve")
_DOES = word_set(
    "set put update reset change edit replace write patch save apply create make new add insert append delete remove "
    "clear move rename copy send submit post reply notify book order buy pay purchase cancel approve merge publish "
    "upload deploy start stop restart run execute trigger open close assign mark toggle enable disable next wait poll"
)


def find_revisits(row: TurnSequence) -> Loop | None:
    """Find the streak of revisits at the tail that the candidate goes on with; None where a person orders repetition.
    Each `duplicate_threshold`-th is nudged. It breaks where one look comes for the `break_threshold`-th time: what is
    looked at once more may have left the conversation."""
    newest = row.turns[-1] if row.candidate is None and row.turns else row.candidate
    if newest is None or not newest.calls or row.is_ordered(1) or row.order.again:
        return None
    first = row.size
    while first > 0 and _only_looks(row, first - 1):
        first -= 1
    count, visits = sum(1 for _ in _walk_revisits(row, first)), 0
    if row.candidate is not None:
        if not all(map(looks, newest.calls)):
            return None
        visits = 1 + sum(map(row.asks_again, range(first, row.size)))
        count += visits > 1
    warn, limit = row.config.duplicate_threshold, row.config.break_threshold
    breaks = 0 < limit <= visits and count >= 2 * limit
    if visits == 1 or not (breaks or (warn > 0 and count >= warn and count % warn == 0)):
        return None
    results = [result for result in row.turns[-1].results if result is not None]
    return Loop(
        kind=Kind.REVISITS,
        stage=Stage.BREAK if breaks else Stage.WARN,
        repetitions=count,
        tool=newest.calls[0].name,
        evidence=summary(results[-1]) if results else "",
        key=digest(Kind.REVISITS, *sorted({call.name for call in newest.calls})),
    )


def looks(call: SeenCall) -> bool:
    """Return whether the call only looks, by its name or its command."""
    if is_generic_tool(call.name):
        commands = list_commands(call)
        return any(commands) and all(read_deed(command) is Deed.LOOKS for command in commands)
    return names_look(call.name)


def names_look(name: str) -> bool:
    """Return whether the name of a tool says that it only looks."""
    words = words_of(name)
    return not _LOOKS.isdisjoint(words) and _DOES.isdisjoint(words)


def _only_looks(row: TurnSequence, index: int) -> bool:
    turn = row.turns[index]
    return None not in turn.results and all(map(looks, turn.calls)) and not row.is_patient_at(index)


def _walk_revisits(row: TurnSequence, first: int) -> Iterator[int]:
    """Walk from the newest turn to the oldest of those that got what the same look before them got."""
    for index in range(row.size - 1, first, -1):
        before = next((at for at in range(index - 1, first - 1, -1) if row.asks_the_same(at, index)), None)
        if before is None or not row.has_same_results(before, index):
            return
        yield index
