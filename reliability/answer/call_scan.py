"""Repetition in native tool calls, while they decode.

    CYCLE        arguments that repeat themselves, or open more than `DEPTH_MAX` brackets
    WHITESPACE   `WHITE_CHARS` of nothing but white space between the values
    ANSWER_CALLS the same call, to the letter, the third time, or once more than the user orders; not where calls come
                 in turns

Invariants: arguments are looked at in strides, at the same places however they were cut. At most `OPEN_MAX` open calls,
`TAIL_CHARS` of each, and the digests of `COUNTED_MAX` are kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reliability.loops.comparison.findings import Kind, Loop, build_answer_loop, digest
from reliability.loops.in_answer import WHITE_CHARS, Doubt
from reliability.loops.long_cycles import PERIOD_MAX, STRIDE, LongTail, extend, is_runaway_argument
from reliability.loops.written import Copies

TAIL_CHARS = 2 * PERIOD_MAX + 2 * STRIDE
DEPTH_MAX = 128
OPEN_MAX, COUNTED_MAX = 16, 64

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_WHITE = re.compile(rf"\s{{{WHITE_CHARS}}}")


class Shape(NamedTuple):
    """Where in the JSON the arguments are. `white` counts the white space that they end in, between two values."""

    quoted: bool = False
    escaped: bool = False
    depth: int = 0
    white: int = 0


class _OpenCall(NamedTuple):
    """One call so far; `read`: a digest of its arguments up to the last stride; `fill`: what stands behind that."""

    name: str = ""
    read: str = ""
    fill: str = ""
    tail: LongTail = LongTail()
    shape: Shape = Shape()
    doubt: Doubt = Doubt()

    @property
    def key(self) -> str:
        """What two calls share that are the same to the letter."""
        return digest(self.name, self.read, self.fill)

    @property
    def complete(self) -> bool:
        """Whether its arguments are there and all that they open is closed."""
        shape, _ = read_shape(self.shape, self.fill)
        return bool(self.read or self.fill) and not shape.quoted and shape.depth == 0


class CallScan(NamedTuple):
    """The state of one answer's calls. `newest`: the index of the last piece; `mixed`: calls came in turns; `patience`:
    the bytes for which arguments may repeat themselves (see `in_answer`); `copies`: how many equal calls are a loop."""

    calls: tuple[tuple[int, _OpenCall], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    newest: int | None = None
    mixed: bool = False
    loop: Loop | None = None
    patience: int = 0
    copies: Copies = Copies()

    @property
    def doubtful(self) -> Loop | None:
        """The repetition in a call that wasn't stopped for it."""
        return next((call.doubt.loop for _, call in self.calls if call.doubt.loop is not None), None)


def step_calls(scan: CallScan, index: int, name: str, arguments: str) -> tuple[CallScan, Loop | None]:
    """Read the next piece of a call; return the loop as soon as there is one, and from then on."""
    if scan.loop is not None:
        return scan, scan.loop
    calls = dict(scan.calls)
    if index != scan.newest:
        scan = _close_newest(scan, calls, index)
    if scan.loop is not None:
        return scan, scan.loop
    call = calls.get(index) or _OpenCall(doubt=Doubt(scan.patience))
    calls[index], loop = _read_on(call, name, arguments)
    while len(calls) > OPEN_MAX:
        del calls[next(iter(calls))]
    return scan._replace(calls=tuple(calls.items()), newest=index, loop=loop), loop


def _close_newest(scan: CallScan, calls: dict[int, _OpenCall], index: int) -> CallScan:
    """Count the call that was written until now, as another one begins."""
    newest = None if scan.newest is None else calls.get(scan.newest)
    if newest is None or scan.mixed or index in calls:
        return scan._replace(mixed=scan.mixed or index in calls)
    if not newest.complete:
        return scan
    counts = dict(scan.counts)
    times = counts[newest.key] = counts.get(newest.key, 0) + 1
    while len(counts) > COUNTED_MAX:
        del counts[next(iter(counts))]
    repeats = times >= scan.copies.limit(newest.name)
    loop = build_answer_loop(Kind.ANSWER_CALLS, times, 1, newest.name, tool=newest.name) if repeats else None
    return scan._replace(counts=tuple(counts.items()), loop=loop)


def _read_on(call: _OpenCall, name: str, arguments: str) -> tuple[_OpenCall, Loop | None]:
    text, read, tail, shape = call.fill + arguments, call.read, call.tail, call.shape
    doubt, at, named = call.doubt, 0, call.name + name
    while len(text) - at >= STRIDE and not doubt.over:
        chunk, at = text[at : at + STRIDE], at + STRIDE
        read, tail = digest(read, chunk), extend(tail, chunk, TAIL_CHARS)
        shape, white = read_shape(shape, chunk)
        loop = _find_runaway(tail, shape, white, named)
        doubt = doubt if loop is None else doubt.add(loop, tail.length, chunk)
    return _OpenCall(named, read, text[at:], tail, shape, doubt), doubt.loop if at and doubt.over else None


def _find_runaway(tail: LongTail, shape: Shape, white: bool, tool: str) -> Loop | None:
    if white:
        return build_answer_loop(Kind.WHITESPACE, max(shape.white, WHITE_CHARS), 1, "", tool=tool)
    if is_runaway_argument(tail):
        return build_answer_loop(Kind.CYCLE, tail.repetitions, tail.period, tail.unit, tool=tool)
    if shape.depth > DEPTH_MAX:
        return build_answer_loop(Kind.CYCLE, shape.depth, 1, tail.text[-1:], tool=tool)
    return None


def read_shape(shape: Shape, chunk: str) -> tuple[Shape, bool]:
    """Read on in some JSON; also return whether white space between its values has run for too long."""
    text = "\\" + chunk if shape.escaped else chunk
    plain = _ESCAPE.sub("", text)
    escaped = plain.endswith("\\")
    depth, white, ran = shape.depth, shape.white, False
    pieces = (plain[:-1] if escaped else plain).split('"')
    for at, piece in enumerate(pieces):
        if shape.quoted is not bool(at % 2):
            white = 0
            continue
        opened = piece.count("{") + piece.count("[")
        depth = max(0, depth + opened - piece.count("}") - piece.count("]"))
        blank = white if at == 0 else 0
        ran = ran or _WHITE.search(" " * blank + piece) is not None
        white = blank + len(piece) if not piece.strip() else len(piece) - len(piece.rstrip())
    return Shape(shape.quoted ^ bool(len(pieces) % 2 == 0), escaped, depth, min(white, WHITE_CHARS)), ran
