"""Reasoning apart from the answer, for every family and every tier, as it comes.

    tier ─▶ Thoughts ─▶ Reasoning | Text ─▶ gate ─▶ client
               ▲                             │
               └── a mark stands in the text ┘   the gate knows what is a call, and that no mark in one is used

What opens the turn of the answer, which is open already, is dropped. Where a chat template has opened the reasoning in
the prompt, a tier that rendered it says so (`inside`); for a hosted tier only the closer tells, and what has left as
text by then stays.

Law: what comes out doesn't depend on how the text was cut. At most the beginning of a mark and white space wait.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import cache

from reliability.answer.answer_head import PARTIAL, Starts
from reliability.answer.gate import Gate, Stopped, finish, reopen_gate, step
from reliability.tools.format_reasoning import MESSAGES, REASONING, Thought, ends_reasoning, is_said_of, is_unsettled
from reliability.tools.formats import BLANK, INDENT_MAX, QUOTES
from reliability.tools.turns import OWN_TURN, OWN_TURN_BEGUN
from reliability.types import CallDelta, Event, Reasoning, Refusal, Text

Passed = tuple[Event, Gate, tuple[Event, ...]]
"""A part of an event, the gate behind it, and what may leave."""

_PIECE_CHARS = 65_536
_HELD_CHARS_MAX = 512  # of a head, and of white space in reasoning

# What an upstream that skips special tokens leaves of Harmony; its opener counts where a sentence is glued to it.
_UNMARKED = Thought(
    "Harmony without its marks",
    ("analysis",),
    until=("assistantfinal", "assistantcommentary", "assistantanalysis to="),
    says=("assistantfinal", "assistantcommentary"),
)
_ROWS = (*REASONING, *MESSAGES, _UNMARKED)
_CLOSES = [mark for row in _ROWS for mark in (*row.closes, *row.says, *row.ends)]
_TURN = re.compile(rf"(?:(?!{OWN_TURN_BEGUN})(?:\s|{OWN_TURN}))*+")
_TURN_BEGUN = re.compile(OWN_TURN_BEGUN)
_GOES_ON = re.compile(r"[:,;.)]|[ \t]{1,4}[^\W_A-Z\d]|[ \t]{1,4}[—–→=:-]")  # a sentence that began with the mark
_GLUED = ("analysis", "assistantcommentary")
_HEADERS = ("assistantc", "assistanta")  # of a message that may be a call
_SPEAKS = re.compile(  # `analysisThe user`, and no name in code
    r"assistantcommentary[A-Z]|analysis(?:The|We|Users?|Need|I|Let|This|That|So|Okay|It|They|You|Now|Just|First|There|Must"
    r"|Simple|Likely|Maybe|Check|Use|Given|Got)(?:['’][a-z]{1,2})?,? [a-z\d\"]"
)
_SPEAKS_BEGUN = re.compile(r"[a-z]+(?:[A-Z][a-z'’]{0,8},? ?)?\Z")
_SPOT = re.compile(r"[<\[◁]|a(?=ss|s?\Z)")
_BESIDE_MENTIONS = frozenset((*QUOTES, " ", "\t"))


@cache
def _compile_head(own: Thought | None) -> tuple[Starts, list[Thought]]:
    opens = [(opener, row) for row in ((own,) if own else ()) + _ROWS for opener in row.opens]
    starts = Starts((*_CLOSES, *(opener for opener, _ in opens)))
    return starts, [row for _, row in opens]


@cache
def _compile_ends(row: Thought) -> Starts:
    return Starts((*row.closes, *row.until))


class Thoughts:
    """The reasoning of one answer. `own`: marks of the model's; `inside`: the prompt ends in reasoning of this row."""

    __slots__ = ("_before", "_behind", "_held", "_own", "_row", "_spoken", "_trim", "speaking")

    def __init__(self, *, own: Thought | None = None, inside: Thought | None = None, begun: bool = False) -> None:
        self._own = own
        self.speaking = self._spoken = begun  # the answer has begun: text passes
        self._row = inside
        self._trim = True  # white space that comes next in the reasoning is markup
        self._behind = False  # a mark stands before what comes next
        self._held = ""
        self._before = ""  # the end of the reasoning that has left

    @property
    def thinking(self) -> bool:
        return self._row is not None

    def passes(self, event: Event) -> bool:
        return self.speaking or not (self._held or isinstance(event, Text))

    def split(self, event: Event) -> Sequence[Event]:
        """Return an event with the reasoning in its text apart; before a call or a refusal, what waits."""
        if isinstance(event, Text):
            return (event,) if self.speaking else self.feed(event.text)
        if isinstance(event, CallDelta | Refusal) and not self.speaking:
            return (*self.feed("", last=True), event)
        return (event,)

    def feed(self, text: str, *, last: bool = False) -> list[Event]:
        """Return what the next piece of text is. `last`: no more text follows directly."""
        text, self._held = self._held + text, ""
        out: list[Event] = []
        while text and not self.speaking:
            text = self._read_head(text, last) if self._row is None else self._read_thought(text, out, last)
        return [*out, Text(text)] if text else out

    def end(self) -> list[Event]:
        """Return what waits: no more text follows."""
        return [] if self.speaking else self.feed("", last=True)

    def begin_again(self, row: Thought | None) -> None:
        """Note a mark in the answer: reasoning of this row begins, or the answer does, behind its end."""
        self._spoken = self._spoken or self.speaking
        self.speaking, self._row, self._trim, self._behind = False, row, True, True

    def _read_head(self, text: str, last: bool) -> str:
        """Read the next mark of the head; return what stands behind it, or the text of the answer."""
        turn = (BLANK if self._spoken else _TURN).match(text)
        at = turn.end() if turn else 0
        opening = len(text[:at].rstrip())
        head, rows = _compile_head(self._own)
        begun = at == len(text) if self._spoken else _TURN_BEGUN.match(text, at) is not None
        found = PARTIAL if begun else head.find_at(text, at)
        glued = isinstance(found, re.Match) and found[0].lower() in _GLUED
        if glued and _SPEAKS.match(text, at) is None:
            glued, found = False, PARTIAL if not last and _SPEAKS_BEGUN.match(text, at) else None
        mark = opening if found is None else found.end() if isinstance(found, re.Match) else 0
        said = mark > 0 and self._own is None and not glued and is_said_of(text, mark)
        said = said or (found is None and mark > 0 and _GOES_ON.match(text, mark) is not None)
        if mark and not glued and self._own is None and not last and is_unsettled(text, mark):
            found = PARTIAL
        if isinstance(found, re.Match) and not said:
            place = (found.lastindex or 1) - 1 - len(_CLOSES)
            self.begin_again(rows[place] if place >= 0 else None)
            return text[found.end() :]
        if found is PARTIAL and not last and len(text) <= _HELD_CHARS_MAX:
            self._held = text
            return ""
        line = len(text[:at].rstrip(" \t")) if opening and not self._behind else at
        self._behind = self._behind or (opening > 0 and not said)
        self.speaking = not self._behind or at < len(text)
        return text[line if text[line - 1 : line] == "\n" else at :] if self._behind else text

    def _read_thought(self, text: str, out: list[Event], last: bool) -> str:
        """Read reasoning up to its end, as far as it is there; return what stands behind it."""
        assert self._row is not None
        ends, keep = _compile_ends(self._row), len(text)
        for spot in _SPOT.finditer(text):
            found = ends.find_at(text, spot.start())
            if isinstance(found, re.Match) and (last or not self._waits(text, found)):
                if self._ends(text, found):
                    self._think(text[: spot.start()].rstrip(), out)
                    self._row, self._behind = None, True
                    return text[spot.start() if found[0].startswith(_HEADERS) else found.end() :]
            elif found is not None and not last:
                keep = spot.start()
                break
        keep = len(text) if last else keep
        kept = len(text[:keep].rstrip())
        if keep - kept > _HELD_CHARS_MAX or last:
            kept = keep
        self._think(text[:kept], out)
        self._held = text[kept:]
        return ""

    def _waits(self, text: str, closer: re.Match[str]) -> bool:
        """Return whether only the next character can tell if a closer is used."""
        before = text[closer.start() - 1] if closer.start() else self._before[-1:]
        return closer.end() == len(text) and before in _BESIDE_MENTIONS

    def _ends(self, text: str, closer: re.Match[str]) -> bool:
        start = max(0, closer.start() - INDENT_MAX)
        lead = ("" if start else self._before) + text[start : closer.start()]
        end = len(lead) + len(closer[0])
        return ends_reasoning(lead + text[closer.start() : closer.end() + 1], len(lead), end)

    def _think(self, text: str, out: list[Event]) -> None:
        text = text.lstrip() if self._trim else text
        if text:
            self._trim = False
            self._before = (self._before + text)[-INDENT_MAX:]
            out.append(Reasoning(text))


def pass_on(thoughts: Thoughts, gate: Gate, event: Event) -> list[Passed]:
    """Pass an event on to the gate. Where that stops at a mark, the part ends before it."""
    passed: list[Passed] = []
    for piece in _cut(event):
        parts = deque(thoughts.split(piece))
        while parts:
            part = parts.popleft()
            gate, out = step(gate, part)
            if isinstance(part, Text) and isinstance(gate, Stopped):
                part = Text(part.text[: max(0, len(part.text) - len(gate.rest) - gate.chars)])
                thoughts.begin_again(gate.row)
                parts.extendleft(reversed(thoughts.feed(gate.rest)))
            passed.append((part, gate, out))
            gate = reopen_gate(gate) if isinstance(gate, Stopped) else gate
    return passed


def _cut(event: Event) -> Sequence[Event]:
    """Cut a very long text: what stands behind a mark is looked at anew."""
    if not isinstance(event, Text) or len(event.text) <= _PIECE_CHARS:
        return (event,)
    return [Text(event.text[at : at + _PIECE_CHARS]) for at in range(0, len(event.text), _PIECE_CHARS)]


def close(thoughts: Thoughts, gate: Gate) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return what may still leave, and what is held for whoever parses it: the answer is over."""
    out: tuple[Event, ...] = ()
    for event in thoughts.end():
        gate, left = step(gate, event)
        out += left
    left, held = finish(gate)
    return out + left, held
