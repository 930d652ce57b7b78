"""From the text of an answer to the calls in it.

One walk from left to right. `delimiter_search.py` finds the places where a call may begin, by the table of call
formats; the readers (`payloads`, `markup`, `pythonic`) say what stands there; everything else is prose. There are two
ways to be a call:

    by its delimiter       an opener (`<tool_call>`, `[TOOL_REQUEST]`) is there, or a closer right behind it
    by its declared name   bare JSON, `name{json}`, `[f(a=1)]`, tags: if the request has a tool of that name

What has a delimiter, or a declared name with a call's keys, and can't be read without loss is `Malformed`, with
its raw text up to where it may end. What has neither stays prose, to the letter. Reasoning that was left in the text
(`format_reasoning.py`) is prose too, and what is called in it is no call; the answer begins anew behind it. Delimiters
in quotes are talked about, not used.

Time is linear. Each reader works forward from its place, and reading goes on behind what it read. Readings
in the open that fail give nothing back, so they are paid from `FUEL_FACTOR` times the length of the text;
when that is spent, bare JSON is no longer tried, and a declared name in the rest is reported as malformed.
"""

from __future__ import annotations

import re

from reliability.tool_calls import Extraction, Malformed, RawCall
from reliability.tools.delimiters import (
    REASONING_CLOSE,
    SPEECH_END,
    begins_sentence,
    is_quoted,
    is_reasoning_end,
)
from reliability.tools.extract import harmony
from reliability.tools.extract.announced import read_announced
from reliability.tools.extract.broken_json import looks_like_a_call, names_a_tool
from reliability.tools.extract.delimiter_search import SPOT, Delimiter, find_delimiter_at, find_delimiter_in_line
from reliability.tools.extract.envelope import (
    FENCE_LINE,
    Nothing,
    find_region_end,
    read_envelope,
    skip_closers,
)
from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.mentions import is_closer_meant, is_opener_meant, is_tag_meant
from reliability.tools.extract.notations import OPEN_READERS
from reliability.tools.extract.payloads import record_repairs, skip_space
from reliability.tools.extract.prose import Prose
from reliability.tools.extract.pythonic import is_one_call, read_python
from reliability.tools.extract.rows import Row
from reliability.tools.extract.shapes import CALLS_MAX, HalfCall, Setting
from reliability.tools.extract.text import read_arguments
from reliability.tools.format_row import Reader
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["extract_calls", "is_prose"]

FUEL_FACTOR = 4
FUEL_SPARE = 100_000
LOOK_CHARS = 400
FENCE_CHARS_MAX = 64
MALFORMED_MAX = 32
ATTEMPT_CHARS = 256

_QUOTABLE = frozenset({Reader.ENVELOPE, Reader.SECTIONS, Reader.FLOWERS, "close"})
_IN_CODE = frozenset({Reader.ELEMENTS, Reader.ATTRIBUTES, Reader.CHILDREN})
_FRAME = re.compile(r"\s{0,8};?[ \t\r\n`]*+")
_STATEMENT_END = re.compile(r"\s{0,8};")
_TOOL_CODE = re.compile(r"`{3,}tool_code\s*\Z")


def extract_calls(text: str, box: ToolBox, sent: int = 0) -> Extraction:
    """Extract all calls of a text, what looks like one and isn't readable, and the prose that is
    left. Total, and linear in the text. `sent`: so much of the text has left already, and is not
    given back as prose."""
    if not box.tools or not text:
        return Extraction(text=text[sent:])
    walk = _walk(text, box, sent)
    if not walk.found:
        return Extraction(text=text[sent:])
    return Extraction(
        text=walk.prose.text(),
        before=walk.prose.before(),
        reasoning="\n".join(walk.reasoning),
        calls=tuple(walk.calls),
        malformed=tuple(walk.malformed),
    )


def is_prose(text: str, box: ToolBox, begin: int = 0, *, complete: bool = True) -> bool:
    """Return whether everything in a text is delivered as it stands. What stands before `begin` is
    prose; it is seen, and not read again. Where the text isn't `complete`, it is none as long as a
    call that waits for the next one may get it."""
    walk = _walk(text, box, begin=begin)
    return not walk.found and (complete or not walk.row.may_go_on(walk.text, box))


def _walk(text: str, box: ToolBox, sent: int = 0, begin: int = 0) -> _Walk:
    walk = _Walk(text, box, sent)
    if harmony.is_harmony(text):
        walk.run_messages(text)
    else:
        walk.run(text, begin=begin)
    return walk


class _Walk:
    """One walk over one text. It owns what was found so far, and the fuel for readings that fail."""

    def __init__(self, text: str, box: ToolBox, sent: int) -> None:
        self.box = box
        self.calls: list[RawCall] = []
        self.malformed: list[Malformed] = []
        self.reasoning: list[str] = []
        self.prose = Prose(sent)
        self.row = Row()
        self.fuel = FUEL_FACTOR * len(text) + FUEL_SPARE
        self.text = ""
        self.base = 0  # the place of this text in the whole answer
        self.at = 0
        self.kept = 0  # up to here the text is settled
        self.rest_is_prose = False  # True where no declared name is left
        self.may_end_reasoning = True  # False where no reasoning ends any more
        self.has_thought = False
        self.begins = 0  # where the answer begins: behind its reasoning

    def run_messages(self, text: str) -> None:
        """Walk over a text in the Harmony format: calls by their header, the rest as text."""
        self.has_thought = True  # it has a channel of its own
        for message in harmony.split(text):
            if message.is_reasoning:
                self.reasoning.append(message.body)
            elif message.recipient is None:
                self.run(message.body, message.at)
            else:
                self.prose.add_call("", 0)
                self._read_body(message.recipient, message.body if message.complete else "", message.raw, "harmony")

    @property
    def found(self) -> bool:
        """True where something is no prose."""
        return bool(self.calls or self.malformed or self.reasoning)

    def run(self, text: str, base: int = 0, begin: int = 0) -> None:
        """Walk over one text. Each step moves forward."""
        self.text, self.base, self.at, self.kept = text, base, begin, 0
        self.may_end_reasoning, self.rest_is_prose, self.begins = True, False, 0
        self.row = Row()
        while True:
            at = self.at
            if at in (self.begins, self.kept) or text[at - 1] == "\n":
                self._look_at_line()
            if self.at == at:
                spot = SPOT.search(text, at)
                if spot is None:
                    break
                self.at = spot.end()
                if text[spot.start()] != "\n":
                    self._look_at_spot(spot.start())
        self.prose.add(text[self.kept :], base + self.kept)

    def _look_at_line(self) -> None:
        """Look at the beginning of a line."""
        delimiter = find_delimiter_in_line(self.text, self.at)
        if delimiter is not None:
            self._read_in_the_open(delimiter)

    def _look_at_spot(self, at: int) -> None:
        """Look at one place."""
        delimiter = find_delimiter_at(self.text, at, self.kept)
        if delimiter is None:
            return
        self.at = delimiter.end
        if delimiter.kind == "think":
            self._skip_reasoning(delimiter)
        elif delimiter.kind == "thought":
            self._end_reasoning(delimiter)
        elif self._is_mentioned(delimiter):
            return
        elif delimiter.kind is Reader.ENVELOPE:
            self._read_envelope(delimiter)
        elif delimiter.kind == "close":
            self._report_stray(delimiter)
        else:
            self._read_in_the_open(delimiter)

    def _skip_reasoning(self, delimiter: Delimiter) -> None:
        """Go on behind a section of reasoning; behind the text, where it isn't closed."""
        if is_quoted(self.text, delimiter.start, delimiter.end):
            return
        end = self._find_reasoning_end() if self.may_end_reasoning else None
        self.may_end_reasoning = end is not None
        if end is not None:
            self.has_thought, self.at, self.begins = True, end, end
        elif begins_sentence(self.text, delimiter.start):
            self.at = len(self.text)

    def _find_reasoning_end(self) -> int | None:
        """Find the place behind the reasoning that has begun here."""
        for closer in REASONING_CLOSE.finditer(self.text, self.at):
            if is_reasoning_end(self.text, *closer.span()):
                return closer.end()
        return None

    def _end_reasoning(self, delimiter: Delimiter) -> None:
        """Begin anew behind the end of reasoning. Where nothing has opened it the chat template has, in the prompt:
        what was found before was only thought."""
        if not is_reasoning_end(self.text, delimiter.start, delimiter.end):
            return
        if not self.has_thought:
            self.calls, self.malformed, self.kept = [], [], 0
            self.prose.forget()
        self.row = Row()
        self.has_thought, self.begins = True, delimiter.end

    def _is_mentioned(self, delimiter: Delimiter) -> bool:
        """Return whether a delimiter is only talked about."""
        if delimiter.kind in _IN_CODE:
            return self.text[max(0, delimiter.start - 1) : delimiter.start] == "`"
        return delimiter.kind in _QUOTABLE and is_quoted(self.text, delimiter.start, delimiter.end)

    # --- settling -------------------------------------------------------------------------------------------

    def _settle(self, start: int, end: int) -> None:
        """Add what stands before `start` to the prose, and go on at `end`; what waits there is a call like this."""
        for one in self.row.take(self.text, start):
            self._take_calls(one.start, one.end, list(one.calls))
        self.prose.add(self.text[self.kept : start], self.base + self.kept)
        self.at = self.kept = self.prose.add_call(self.text, end)

    def _take_calls(self, start: int, end: int, calls: list[RawCall]) -> None:
        self._settle(start, end)
        self._keep_calls(calls, self.text[start:end])

    def _keep_calls(self, calls: list[RawCall], raw: str) -> None:
        if len(self.calls) + len(calls) > CALLS_MAX:
            reason = f"more than {CALLS_MAX} calls in one answer"
            self.malformed.append(Malformed(raw=raw, reason=reason, format=calls[0].format))
        else:
            self.calls += calls

    def _report_malformed(self, start: int, end: int, reason: str, format: str) -> None:
        if len(self.malformed) >= MALFORMED_MAX - 1:
            end, reason = len(self.text), f"{MALFORMED_MAX} or more calls that can't be read"
        self._settle(start, end)
        self.malformed.append(Malformed(raw=self.text[start:end], reason=reason, format=format))

    def _read_body(self, name: str, body: str, raw: str, format: str) -> None:
        """Read a call whose name is known and whose arguments are all of this text."""
        value = read_arguments(body)
        if isinstance(value, str):
            self.malformed.append(Malformed(raw=raw, reason=value, format=format))
        else:
            call = RawCall(name=name, arguments=value.value, format=format)
            self._keep_calls([record_repairs(call, list(value.repair_kinds))], raw)

    # --- by a delimiter -------------------------------------------------------------------------------------

    def _read_envelope(self, delimiter: Delimiter) -> None:
        """Read everything from an opener to its closer as calls, or as malformed."""
        start, at = delimiter.start, delimiter.end
        setting = Setting(self.box, self.text[start:at].strip("<>[]|/").lower(), explicit=True)
        try:
            found = read_envelope(self.text, start, at, setting, inline=not self._begins_line(start))
        except Nothing as bad:
            if self._is_used_as_closer(start, at):
                self.kept = len(self.text)
            elif is_opener_meant(self.text, start, at, self.box, begins_line=self._begins_line(start)):
                self._report_malformed(start, find_region_end(self.text, at), bad.reason, setting.format)
            else:
                self.at = max(at, bad.at)  # a row of openers is looked at once
        except Unreadable as bad:
            self._report_malformed(start, find_region_end(self.text, at), bad.reason, setting.format)
        else:
            self._take_calls(delimiter.held, found.end, found.calls)

    def _is_used_as_closer(self, start: int, at: int) -> bool:
        """Return whether an opener was written instead of a closer: right behind a call, and the end
        of all."""
        return (
            bool(self.calls)
            and skip_space(self.text, self.kept) == start
            and skip_space(self.text, at) == len(self.text)
        )

    def _begins_line(self, start: int) -> bool:
        """Return whether nothing but white space, or a call, stands before this place in its line."""
        least = max(self.kept, self.row.end, start - LOOK_CHARS)
        line = max(self.text.rfind("\n", least, start) + 1, least)
        return not self.text[line:start].strip()

    def _report_stray(self, closer: Delimiter) -> None:
        """Report a closer that no call stands before: what stands there was meant to be one, unless it is prose that
        talks of closers."""
        if SPEECH_END.fullmatch(self.text, closer.start, closer.end):
            return
        blank = self.text.rfind("\n\n", self.kept, closer.start)
        start = min(max(self.kept, self.begins, blank + 2 if blank >= 0 else 0), closer.start)
        if is_closer_meant(self.text, start, closer.start, closer.end, self.box):
            self._report_malformed(start, closer.end, "a closing tag, and no call that can be read before it", "closer")

    # --- by a declared name ---------------------------------------------------------------------------------

    def _read_in_the_open(self, delimiter: Delimiter) -> None:
        """Read what is a call only if it names a declared tool."""
        start = skip_space(self.text, delimiter.start)
        match delimiter.kind:
            case Reader.REACT | Reader.CHANNEL | Reader.ANNOUNCED:
                self._read_announced(delimiter, start)
            case Reader.LINES:
                self._read_python_lines(start)
            case Reader.JSON if self.fuel < 0:
                self._report_rest(start)
            case _:
                self._read_notation(delimiter, start)

    def _read_notation(self, delimiter: Delimiter, start: int) -> None:
        """Read a call in a notation that has a reader of its own."""
        kind = delimiter.kind if isinstance(delimiter.kind, Reader) else Reader.JSON
        explicit = delimiter.row is not None and delimiter.row.explicit
        last = kind is Reader.JSON and self._begins_line(start)
        setting = Setting(self.box, kind.value, explicit=explicit, alone=self._leads(start), last=last)
        try:
            found = OPEN_READERS[kind](self.text, start, setting)
        except Unreadable as bad:
            self._give_up(kind, start, bad)
            return
        if found is not None and found.calls:
            self._take_calls(delimiter.held, skip_closers(self.text, found.end)[0], found.calls)
        elif found is not None:
            if found.waiting:
                self.row.add(self.text, start, found.end, found.waiting)
            if kind is Reader.JSON:
                self.at = found.end  # data, and no place to look for calls in
        elif kind is Reader.ELEMENTS and is_tag_meant(self.text, start, self.box):
            self._report_malformed(start, find_region_end(self.text, start), "a tag without an end", kind.value)

    def _give_up(self, kind: Reader, start: int, bad: Unreadable) -> None:
        """Settle a notation that can't be read to its end: a call that is broken, or no call."""
        self.fuel -= max(bad.at - start, ATTEMPT_CHARS)
        if kind is not Reader.JSON or isinstance(bad, HalfCall) or looks_like_a_call(self.text, start, self.box):
            self._report_malformed(start, find_region_end(self.text, start), bad.reason, kind.value)
        else:
            self.at = start + 1

    def _read_python_lines(self, start: int) -> None:
        """Read `f(a=1)` of declared tools, and nothing else up to the end of the answer, or of a fence
        for tool calls."""
        if self.fuel < 0:
            return
        fenced = _TOOL_CODE.search(self.text, max(0, start - FENCE_CHARS_MAX), start)
        try:
            found = read_python(self.text, start, Setting(self.box, "python", alone=True))
        except Unreadable as bad:
            self.fuel -= max(bad.at - start, ATTEMPT_CHARS)
            if self._leads(start) and is_one_call(self.text, start):
                self._report_malformed(start, len(self.text), bad.reason, "python")
            self.row.note_broken(start)
            return
        if found is None or (not fenced and self.text.startswith("print(", start)):
            return
        frame = _FRAME.match(self.text, found.end)
        rest = frame.end() if frame else found.end
        if rest == len(self.text) or (fenced and "`" in self.text[found.end : rest]):
            sign = _STATEMENT_END.match(self.text, found.end)
            self._take_calls(start, sign.end() if sign else found.end, found.calls)
        else:
            self.fuel -= found.end - start
            if fenced or self._begins_line(start):
                self.row.add(self.text, start, found.end, found.calls)

    def _report_rest(self, start: int) -> None:
        """Report the rest of the text, in which bare JSON is no longer read, if it names a tool where a
        call would."""
        if self.rest_is_prose:
            return
        self.rest_is_prose = not names_a_tool(self.text, start, self.box)
        if not self.rest_is_prose:
            self._report_malformed(start, len(self.text), "too much of the text before it can't be read", "bare")

    def _leads(self, start: int) -> bool:
        """Return whether nothing but reasoning and a fence stands before this place."""
        near = start - self.begins <= FENCE_CHARS_MAX
        return near and not FENCE_LINE.sub("", self.text[self.begins : start]).strip()

    def _read_announced(self, delimiter: Delimiter, start: int) -> None:
        """Read a call of a declared name behind words that announce it."""
        kind = delimiter.kind if isinstance(delimiter.kind, Reader) else Reader.REACT
        if self.fuel < 0:
            return
        try:
            found = read_announced(self.text, delimiter.end, kind, self.box)
        except Unreadable as bad:
            if kind is not Reader.ANNOUNCED or isinstance(bad, HalfCall):
                self._report_malformed(start, find_region_end(self.text, delimiter.end), bad.reason, kind.value)
            else:
                self.fuel -= max(bad.at - start, ATTEMPT_CHARS)  # data
            return
        if found is not None:
            self._take_calls(delimiter.held, skip_closers(self.text, found.end)[0], found.calls)
