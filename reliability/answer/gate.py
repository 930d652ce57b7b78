"""What may leave now. Between a tier and the client stands one gate per attempt.

    PASS     text leaves at once
    PARTIAL  the text ends in what may become the beginning of a call: that tail waits (`call_starts.py` bounds it)
    BODY     a candidate has begun, and waits until `settle_text` says what it is
    HELD     a call has been seen, or everything is to be held (`Hold.ALL`): nothing leaves any more

Where reasoning begins in the text the gate stops (`Stopped`), and `thoughts.py` reads on. `settle_text` (pure and
total) is asked where a candidate's brackets close, then at the ends of lines, sentences, tags and brackets, each time
only when the candidate has doubled: all questions together cost linear time. At `HOLD_CHARS` an undecided candidate of
bare brackets that names no declared tool leaves; so bare JSON whose name comes later can leak its beginning.

Law: what left as text plus what is held is what came in, in that order, and the cut between them doesn't depend on how
the text was cut into chunks. Gates are values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from reliability.answer import call_starts
from reliability.answer.call_starts import CallStart, DeclaredNames, Mark
from reliability.tools.format_reasoning import Thought
from reliability.tools.format_row import Place, Until
from reliability.tools.formats import FRAME_FENCE
from reliability.types import CallDelta, Event, Hold, Reasoning, Refusal, Text

HOLD_CHARS = 65_536  # of one undecided candidate
_AGAIN_CHARS = 256  # at the end of a candidate that was prose, which are looked through for another one
_BEFORE_CHARS = 160  # of what has left, to tell what a candidate stands behind

_JSON_SPOT = re.compile(r"[\"'\\{}\[\]]")
_CALL_SPOT = re.compile(r"[\"'\\{}\[\]()]")
_SETTLE_SPOT = re.compile(r"[\n>\]}).]")
_FENCE_OPENED = re.compile(rf"{FRAME_FENCE}\s*")  # in which a call begins
_BEFORE_STRING = "{[(,:="  # a quote behind anything else is an apostrophe, or stands unescaped in a string


class TextKind(StrEnum):
    """What the text of a candidate is."""

    CALL = "call"
    PROSE = "prose"
    OPEN = "open"


class _Mode(StrEnum):
    PASS = "pass"
    PARTIAL = "partial"
    BODY = "body"
    HELD = "held"


_SettleText = Callable[[str, str], TextKind]


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """A sequence that grows at its end without copying: a list shared with older versions, and a length."""

    items: list[Event] = field(default_factory=list)
    count: int = 0

    def plus(self, piece: Event) -> _Pieces:
        items = self.items if 0 < self.count == len(self.items) else self.items[: self.count]
        items.append(piece)
        return _Pieces(items, self.count + 1)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.items[: self.count])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pieces) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


NOTHING = _Pieces()  # shared by all gates, since what is added to it goes into a list of its own


@dataclass(frozen=True, slots=True)
class _Rules:
    hold: Hold
    names: DeclaredNames
    settle_text: _SettleText


@dataclass(frozen=True, slots=True)
class _Body:
    """A candidate that has begun. `chars` counts from where the call begins, `skip` stands before that."""

    until: Until
    strong: bool
    skip: int
    chars: int
    ask_at: int = 0
    round: bool = False
    depth: int = 0
    quote: str = ""
    escaped: bool = False
    last: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """The state of one attempt's gate. `tail` waits in PARTIAL, `held` in BODY and HELD; `before` is the end of what
    has left, and `place` what kind of place that is; `fenced`: it stands in a code block; `told`: openers of these
    rows were only talked about, and their closers haven't come. `wary`: in so many characters from here on a candidate
    is settled only when it is as long as what is read with it, since another one was prose."""

    rules: _Rules
    mode: _Mode = _Mode.PASS
    place: Place = Place.LINE
    before: str = ""
    tail: str = ""
    body: _Body | None = None
    held: _Pieces = NOTHING
    fenced: bool = False
    told: tuple[Thought, ...] = ()
    wary: int = 0

    @property
    def open_chars(self) -> int:
        """How much text is held that may have to be looked at again to settle what it is."""
        return self.body.chars if self.body is not None else len(self.tail)


@dataclass(frozen=True, slots=True)
class Stopped(Gate):
    """A gate that has stopped at a mark of so many `chars`: reasoning of this row begins there, or the answer anew."""

    row: Thought | None = None
    chars: int = 0
    rest: str = ""


def open_gate(tools: Iterable[str], settle_text: _SettleText, hold: Hold = Hold.TOOL_CALLS) -> Gate:
    """Build the gate of a new attempt; `tools` are the declared names."""
    mode = _Mode.HELD if hold is Hold.ALL else _Mode.PASS
    return Gate(_Rules(hold, call_starts.prepare_names(tools), settle_text), mode)


def reopen_gate(gate: Stopped) -> Gate:
    """Build the gate of what stands behind the mark. A call that came next to the mark is held already."""
    return Gate(gate.rules, gate.mode, held=gate.held)


def step(gate: Gate, event: Event) -> tuple[Gate, tuple[Event, ...]]:
    """Take one event; return what may leave now."""
    if isinstance(event, Text):
        text = event.text
        if gate.mode is _Mode.HELD:
            return _hold_event(gate, event), ()
        passes = gate.mode is _Mode.PASS and gate.place is Place.ANYWHERE
        if passes and text and call_starts.is_plain(text):  # nearly always
            before = (gate.before + text)[-_BEFORE_CHARS:]
            fenced, told, wary = gate.fenced, gate.told, max(0, gate.wary - len(text))
            return Gate(gate.rules, _Mode.PASS, Place.ANYWHERE, before, fenced=fenced, told=told, wary=wary), (event,)
        return _take_text(gate, text)
    thinks = isinstance(event, Reasoning) and gate.rules.hold is Hold.ALL
    if not thinks and not isinstance(event, CallDelta | Refusal):
        return gate, (event,)
    if gate.mode is _Mode.HELD:
        return _hold_event(gate, event), ()
    if gate.mode is _Mode.PARTIAL and isinstance(event, CallDelta) and _FENCE_OPENED.fullmatch(gate.tail):
        return Gate(gate.rules, _Mode.HELD, held=NOTHING.plus(Text(gate.tail)).plus(event)), ()
    settled, out = _settle_open_text(gate)
    return replace(settled, mode=_Mode.HELD, held=settled.held.plus(event)), out


def _hold_event(gate: Gate, event: Event) -> Gate:
    """Hold one event. `replace`, written out: it runs for each event where all of them are held."""
    held = gate.held.plus(event)
    return Gate(gate.rules, gate.mode, gate.place, gate.before, gate.tail, gate.body, held, gate.fenced, gate.told)


def holds_call(gate: Gate) -> bool:
    """Return whether what is held of an answer that broke off is the beginning of a call."""
    kinds = {type(event) for event in gate.held}
    if gate.mode is _Mode.BODY and gate.body is not None:
        waiting, skip = _text_of(gate.held), gate.body.skip
        return gate.rules.settle_text(waiting[skip:], gate.before + waiting[:skip]) is TextKind.CALL
    return gate.mode is _Mode.HELD and (CallDelta in kinds or kinds == {Text})


def finish(gate: Gate) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return what may still leave, and what is held for whoever parses it: the answer is over."""
    settled, out = _settle_open_text(gate)
    return out, _join_texts(settled.held)


def _settle_open_text(gate: Gate) -> tuple[Gate, tuple[Event, ...]]:
    if gate.mode is _Mode.PARTIAL:
        waiting, skip = gate.tail, 0
        at, place, found = call_starts.find_call_start(
            gate.rules.names, f"{waiting}\n ", 0, gate.place, gate.before, fenced=gate.fenced, told=gate.told
        )
        if isinstance(found, Mark) and not found.told and at == 0 and (found.row is None or place is Place.LINE):
            rest = waiting[found.end :].lstrip()
            return Stopped(gate.rules, row=found.row), (Text(rest),) if rest else ()
    elif gate.mode is _Mode.BODY and gate.body is not None:
        waiting, skip = _text_of(gate.held), gate.body.skip
    else:
        return gate, ()
    passed = Gate(gate.rules)
    if gate.rules.settle_text(waiting[skip:], gate.before + waiting[:skip]) is TextKind.PROSE:
        return passed, (Text(waiting),)
    return replace(passed, mode=_Mode.HELD, held=NOTHING.plus(Text(waiting))), ()


def _take_text(gate: Gate, text: str) -> tuple[Gate, tuple[Event, ...]]:
    at, out = 0, []
    while at < len(text):
        if gate.mode is _Mode.PARTIAL:
            text, at = gate.tail + text[at:], 0
            gate = replace(gate, mode=_Mode.PASS, tail="")
        if gate.mode is _Mode.PASS:
            gate, end, piece = _pass_text(gate, text, at)
        elif gate.mode is _Mode.BODY and gate.body is not None:
            gate, end, piece = _follow_candidate(gate, gate.body, text, at)
        else:
            gate, end, piece = replace(gate, held=gate.held.plus(Text(text[at:]))), len(text), ""
        out.append(piece)
        at = end
    passed = "".join(out)
    return gate, (Text(passed),) if passed else ()


def _pass_text(gate: Gate, text: str, at: int) -> tuple[Gate, int, str]:
    rules = gate.rules
    start, place, found = call_starts.find_call_start(
        rules.names, text, at, gate.place, gate.before, fenced=gate.fenced, told=gate.told
    )
    passed = text[at:start]
    if isinstance(found, Mark) and not found.told:
        return Stopped(rules, row=found.row, chars=found.end - start, rest=text[found.end :]), len(text), passed
    if isinstance(found, Mark):
        passed, start, place = text[at : found.end], found.end, call_starts.place_behind(text[found.end - 1])
        assert found.row is not None  # only reasoning is told of
        others = tuple(one for one in gate.told if one is not found.row)
        gate = replace(gate, told=others if len(others) < len(gate.told) else (*others, found.row))
    fenced = gate.fenced ^ (call_starts.count_fences(gate.before, passed) % 2 == 1)
    before, wary = (gate.before + passed)[-_BEFORE_CHARS:], max(0, gate.wary - len(passed))
    gate = replace(gate, place=place, before=before, fenced=fenced, wary=wary)
    if isinstance(found, CallStart):
        is_round = text[found.scan : found.scan + 1] == "("
        ask_at = _BEFORE_CHARS if wary else 0
        body = _Body(found.until, found.strong, found.call - start, found.scan - found.call, ask_at, round=is_round)
        held = NOTHING.plus(Text(text[start : found.scan])) if found.scan > start else NOTHING
        return replace(gate, mode=_Mode.BODY, body=body, held=held), found.scan, passed
    if found is None:
        return gate, len(text), passed
    if isinstance(found, Mark):
        return gate, start, passed
    return replace(gate, mode=_Mode.PARTIAL, tail=text[start:]), len(text), passed


def _follow_candidate(gate: Gate, body: _Body, text: str, at: int) -> tuple[Gate, int, str]:
    limit = min(len(text), at + HOLD_CHARS - body.chars)
    scan = _read_to_settle_spot if body.until is Until.ASKED else _read_to_bracket
    body, end = scan(body, text, at, limit)
    stop = limit if end is None else end
    gate = replace(gate, body=body, held=gate.held.plus(Text(text[at:stop]))) if stop > at else gate
    if end is None and body.chars < HOLD_CHARS:
        return gate, stop, ""
    if body.until is not Until.ASKED and body.chars < body.ask_at:
        return replace(gate, body=replace(body, until=Until.ASKED)), stop, ""
    waiting = _text_of(gate.held)
    kind = gate.rules.settle_text(waiting[body.skip :], gate.before + waiting[: body.skip])
    if kind is TextKind.OPEN and body.chars < HOLD_CHARS:
        asked = replace(body, until=Until.ASKED, ask_at=2 * body.chars)
        return replace(gate, body=asked), stop, ""
    named = body.strong or any(name in call_starts.fold_text(waiting) for name in gate.rules.names.names)
    if kind is TextKind.PROSE or (kind is TextKind.OPEN and not named):
        gate, passed = _let_go(gate, body, waiting)
        return gate, stop, passed
    return replace(gate, mode=_Mode.HELD, body=None), stop, ""


def _let_go(gate: Gate, body: _Body, waiting: str) -> tuple[Gate, str]:
    """Let a candidate pass that is prose. Another one may have begun in it, where its brackets didn't find its end."""
    end, place, found = len(waiting), call_starts.place_behind(waiting[-1]), None
    if body.until is Until.ASKED:
        at = max(body.skip + 1, end - _AGAIN_CHARS)
        end, place, found = call_starts.find_call_start(
            gate.rules.names, waiting, at, call_starts.place_behind(waiting[at - 1]), waiting[:at]
        )
    passed, rest = waiting[:end], waiting[end:]
    fenced = gate.fenced ^ (call_starts.count_fences(gate.before, passed) % 2 == 1)
    before = (gate.before + passed)[-_BEFORE_CHARS:]
    gate = replace(gate, place=place, before=before, body=None, held=NOTHING, fenced=fenced, wary=_BEFORE_CHARS)
    if not isinstance(found, CallStart):
        return replace(gate, mode=_Mode.PARTIAL if rest else _Mode.PASS, tail=rest), passed
    skip = found.call - end
    chars = len(rest) - skip
    again = _Body(until=Until.ASKED, strong=found.strong, skip=skip, chars=chars, ask_at=max(2 * chars, _BEFORE_CHARS))
    return replace(gate, mode=_Mode.BODY, body=again, held=NOTHING.plus(Text(rest))), passed


def _read_to_bracket(body: _Body, text: str, at: int, limit: int) -> tuple[_Body, int | None]:
    depth, quote, pos = body.depth, body.quote, at + body.escaped
    escaped = at + body.escaped > limit
    spots = _CALL_SPOT if body.round else _JSON_SPOT
    end = None
    while end is None and (spot := spots.search(text, pos, limit)):
        char, pos = text[spot.start()], spot.start() + 1
        if quote:
            if char == "\\":
                escaped, pos = pos == limit, pos + 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            if _find_char_before(text, at, spot.start(), body.last) in _BEFORE_STRING:
                quote = char
        elif char in "{[(":
            depth += 1
        elif char != "\\":
            depth -= 1
            end = pos if depth <= 0 else None
    stop = limit if end is None else end
    last = _find_char_before(text, at, stop, body.last)
    chars = body.chars + stop - at
    return replace(body, chars=chars, depth=depth, quote=quote, escaped=escaped, last=last), end


def _read_to_settle_spot(body: _Body, text: str, at: int, limit: int) -> tuple[_Body, int | None]:
    first = min(max(at, at + body.ask_at - body.chars - 1), limit)
    spot = _SETTLE_SPOT.search(text, first, limit)
    stop = limit if spot is None else spot.end()
    return replace(body, chars=body.chars + stop - at), None if spot is None else stop


def _find_char_before(text: str, start: int, at: int, before: str) -> str:
    """Find the last character before `at` that isn't white space; `before` is that of the earlier text."""
    while at > start and text[at - 1].isspace():
        at -= 1
    return text[at - 1] if at > start else before


def _text_of(held: Iterable[Event]) -> str:
    return "".join(piece.text for piece in held if isinstance(piece, Text))


def _join_texts(held: _Pieces) -> tuple[Event, ...]:
    joined: list[Event] = []
    for kind, pieces in groupby(held, type):
        if kind is Text:
            joined.append(Text(_text_of(pieces)))
        else:
            joined.extend(pieces)
    return tuple(joined)
