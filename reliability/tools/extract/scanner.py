"""From the text of an answer to the calls in it, in one walk from left to right.

A call has a delimiter (`<tool_call>`), or the name of a declared tool (bare JSON, `name{json}`, `[f(a=1)]`, tags). One
that can't be read without loss is `Malformed`. What is called in reasoning is no call.

Invariant: time is linear. Readings in the open that fail are paid from `_FUEL_FACTOR` times the length of the text;
when that is spent, a declared name in the rest is reported as malformed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from reliability.tool_calls import Extraction
from reliability.tools import turns
from reliability.tools.extract import envelope, harmony
from reliability.tools.extract.delimiter_search import SPOT, Delimiter, find_delimiter_at, find_delimiter_in_line
from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.payloads import goes_on_behind, skip_space
from reliability.tools.extract.pythonic import is_one_call, read_python
from reliability.tools.extract.quoting import is_block_quoted, is_paragraph
from reliability.tools.extract.settling import EXAMPLE_BEFORE, FENCE_CHARS_MAX, SHOWN_BEFORE, Findings
from reliability.tools.extract.shapes import Begins, HalfCall, Setting, looks_like_a_call, names_a_tool
from reliability.tools.extract.text import find_object_end, read_arguments
from reliability.tools.extract.wrecks import find_names
from reliability.tools.format_reasoning import ANSWER_MARKS, REASONING_CLOSES, REASONING_OPENS
from reliability.tools.format_row import Reader
from reliability.tools.formats import INNER_CLOSERS, OPENER, QUOTES, SPEECH_END, compile_any, is_quoted
from reliability.tools.schema.toolbox import ToolBox

_FUEL_FACTOR = 4
_FUEL_SPARE = 100_000
_ATTEMPT_CHARS = 256

_MARKS = (*turns.MARKS, harmony.HEADER_MARKS, *REASONING_OPENS, *REASONING_CLOSES, *ANSWER_MARKS)
# By their signs, which are found fast: one with a word before its sign holds another one.
_MARKED = compile_any(mark for mark in _MARKS if not mark[0].isalpha())
_QUOTABLE = frozenset({Reader.ENVELOPE, Reader.SECTIONS, Reader.FLOWERS, "close"})
_IN_CODE = frozenset({Reader.ELEMENTS, Reader.ATTRIBUTES, Reader.CHILDREN})
_ANNOUNCED = frozenset({Reader.REACT, Reader.CHANNEL, Reader.ANNOUNCED})  # read behind their words
_FRAME = re.compile(r"\s{0,8}[;,\\]?[ \t\r\n`]*+")
_STATEMENT_END = re.compile(r"\s{0,8}[;,\\]")
_LIST_END = re.compile(r"\][ \t\r\n`]*+\Z")
_TOOL_CODE = re.compile(r"`{3,}tool_code\s*\Z")


def extract_calls(text: str, box: ToolBox, sent: int = 0, *, told: str | None = None) -> Extraction:
    """Extract all calls of a text, what looks like one and isn't readable, its reasoning, and the prose that is left.
    Total, and linear in the text. `sent`: so much of the text has left already. `told`: reasoning has come before it,
    and before that this text."""
    walk = _Walk(text, box, sent, told=told)
    return _build(walk, text, sent) if walk.ends is None else _read_turn(text, box, sent, *walk.ends, told=told)


def _build(walk: _Walk, text: str, sent: int) -> Extraction:
    if not walk.found:
        return Extraction(text=text[sent:])
    return Extraction(
        text=walk.prose.text(),
        before=walk.prose.before(),
        reasoning="\n".join(filter(None, walk.reasoning)),
        calls=tuple(walk.calls),
        malformed=tuple(walk.malformed),
        behind=walk.behind,
        dropped=walk.dropped,
        unended=walk.unended,
    )


def _read_turn(text: str, box: ToolBox, sent: int, start: int, end: int, *, told: str | None) -> Extraction:
    """Read an answer that ends at a mark, from `start` to `end`; count the calls behind it, which nobody asked for."""
    found = _build(_Walk(text[:start], box, sent, may_end=False, told=told), text[:start], sent)
    if found.malformed and SPEECH_END.match(text, start):  # the mark closes a call as well
        closed = _build(_Walk(text[:end], box, sent, may_end=False, told=told), text[:end], sent)
        found = closed if closed.calls and len(closed.malformed) < len(found.malformed) else found
    return replace(found, behind=len(_Walk(text[end:], box, 0, may_end=False).calls))


def is_prose(text: str, box: ToolBox, begin: int = 0, *, may_begin: Begins | None = None) -> bool:
    """Return whether everything in a text is delivered as it stands. What stands before `begin` is prose. Where
    the text goes on, `may_begin` says where a call may begin; none is prose while it waits for the next one."""
    walk = _Walk(text, box, begin=begin, whole=False)
    waits = may_begin is not None and walk.row.may_go_on(walk.text, box, may_begin)
    return not walk.found and walk.ends is None and not waits


def may_be_told(text: str, box: ToolBox, begin: int) -> bool:
    """Return whether a call in a text may turn out to be only told of, as its line goes on. `begin`: as above."""
    return _Walk(text, box, begin=begin, whole=False).undecided


class _Walk(Findings):
    """One walk over one text. `may_end`: at a mark of its turn; `whole`: its beginning is there."""

    def __init__(
        self,
        text: str,
        box: ToolBox,
        sent: int = 0,
        begin: int = 0,
        *,
        may_end: bool = True,
        whole: bool = True,
        told: str | None = None,
    ) -> None:
        super().__init__(box, sent, whole, told)
        self.fuel = _FUEL_FACTOR * len(text) + _FUEL_SPARE
        self.may_end = may_end
        self.behind = 0  # calls behind the end of the answer
        self.turn_opened = False  # True where the answer shows how a turn begins
        marked = _MARKED.search(text) is not None
        self.fences = turns.list_fences(text) if whole and marked and ("```" in text or "~~~" in text) else []
        if harmony.is_harmony(text, self.fences):
            self.run_messages(text)
        elif text and (box.tools or marked):
            self.run(text, begin=begin)
            if self.messages_at is not None:
                self.run_messages(text, self.messages_at)

    def run_messages(self, text: str, begin: int = 0) -> None:
        """Walk over messages in the Harmony format: calls by their header, the rest as text."""
        messages = harmony.split(text[begin:])
        self.has_thought, self.dropped = True, self.dropped or harmony.has_header(text)  # it has a channel of its own
        for place, message in enumerate(messages):
            if message.is_foreign:
                self.behind = sum(1 for later in messages[place:] if later.recipient is not None)
                return
            if message.is_reasoning:
                self.reasoning.append(message.body)
            elif message.recipient is None or OPENER.match(message.body, skip_space(message.body, 0)):
                self.run(message.body, begin + message.at)
            else:
                self.prose.add_call("", 0)
                self._read_message(message.recipient, message, begin + message.at)

    def _read_message(self, name: str, message: harmony.Message, at: int) -> None:
        """Read a call by its header, whose body begins `at` this place; if its end is missing, the calls behind it."""
        body, rest = message.body if message.complete else "", ""
        if message.complete and isinstance(read_arguments(body), str):
            end = find_object_end(body)
            more = _Walk(body[end:], self.box, may_end=False) if end else None
            if more is not None and more.calls and not more.malformed:
                body, rest, at = body[:end], body[end:], at + end
        self.read_body(name, body, message.raw, "harmony")
        if rest:
            self.run(rest, at)

    def run(self, text: str, base: int = 0, begin: int = 0) -> None:
        """Walk over one text. Each step moves forward."""
        self.begin_text(text, base, begin)
        self.named, line = find_names(text, self.box, begin), begin
        while True:
            at = self.at
            if at in (self.begins, self.kept) or text[at - 1] == "\n":
                self.look_for_wrecks(line)  # in the line before a name may stand that belongs to this one
                line = at
                self._look_at_line()
            if self.at == at:
                spot = SPOT.search(text, at)
                if spot is None:
                    self.look_for_wrecks(len(text) if self.messages_at is None else self.messages_at)
                    self.report_shown()
                    self.look_for_loose_call()
                    break
                self.at = spot.end()
                if text[spot.start()] != "\n":
                    self._look_at_spot(spot.start())
        self.prose.add(text[self.kept : self.messages_at], base + self.kept)

    def _look_at_line(self) -> None:
        if not self.box.tools:
            return
        given = turns.RESULT_LINE.match(self.text, self.at) if self.may_end else None
        if given and given["role"] and skip_space(self.text, self.kept) < self.at:
            given = None
        if given and (self.calls or (not given["sure"] and self.row.reaches(self.text, self.at))):
            self.end_answer(self.at, self.at)
            return
        if self.calls and self.given is None and self.may_end:
            self._note_given()
        lost = INNER_CLOSERS.match(self.text, self.at) if self.at == self.begins else None
        if lost is not None:
            self.drop(self.at, lost.end())
            return
        delimiter = find_delimiter_in_line(self.text, self.at)
        if delimiter is not None:
            self._read_in_the_open(delimiter)

    def _note_given(self) -> None:
        line = turns.GIVEN_LINE.match(self.text, self.at)
        if line is None or (line["tag"] and self.box.find(line["tag"].strip("<>")) is not None):
            return
        if line["tool"] or skip_space(self.text, self.kept) >= self.at:
            self.given = line

    def _look_at_spot(self, at: int) -> None:
        delimiter = find_delimiter_at(self.text, at, self.kept)
        if delimiter is None:
            return
        self.at = max(self.at, delimiter.end)  # forward, also where the sign belongs to what follows
        if delimiter.kind == "think":
            self.skip_reasoning(delimiter)
        elif delimiter.kind == "thought":
            self.end_reasoning(delimiter)
        elif delimiter.kind == "says":
            if self.is_used(delimiter):
                self.take_apart(delimiter.start, delimiter.end)
        elif delimiter.kind == "turn":
            self._look_at_turn(delimiter)
        elif not self.box.tools or self._is_mentioned(delimiter):
            return
        elif delimiter.kind is Reader.ENVELOPE:
            self._read_envelope(delimiter)
        elif delimiter.kind == "close":
            self.report_stray(delimiter)
        else:
            self._read_in_the_open(delimiter)

    def _look_at_turn(self, mark: Delimiter) -> None:
        if harmony.is_header(self.text, mark.start):
            self._look_at_header(mark)
            return
        behind = bool(self.calls or self.malformed or self.row.reaches(self.text, mark.start))
        if self.may_end and not turns.is_in_code_block(self.fences, self.base + mark.start):
            if turns.ends_answer(
                self.text, mark.start, mark.end, begins=self.begins, behind_call=behind, opened=self.turn_opened
            ):
                self.end_answer(mark.start, mark.end)
                return
            self.report_own_result(mark.start)
        self.turn_opened = self.turn_opened or turns.opens_turn(self.text[mark.start : mark.end])
        self.at = turns.skip_ends(self.text, self.at)

    def _look_at_header(self, mark: Delimiter) -> None:
        """Read on in messages where a header stands behind other text, and drop a mark of one that stands alone."""
        end = harmony.skip_header_mark(self.text, mark.start)
        quoted = self.text[max(0, mark.start - 1) : mark.start] in tuple(QUOTES)
        if not self.is_used(mark) or quoted or harmony.is_told(self.text, mark.start):
            self.at = max(self.at, end)
        elif not harmony.begins_message(self.text, mark.start):
            self.take_apart(mark.start, end)
            self.dropped = True
        else:
            for one in self.row.take(self.text, mark.start):
                self.take_calls(one.start, one.end, list(one.calls))
            self.messages_at, self.at = mark.start, len(self.text)

    def _is_mentioned(self, delimiter: Delimiter) -> bool:
        if is_block_quoted(self.text, self.begins, delimiter.start, whole=self.whole):
            return True
        if delimiter.kind in _IN_CODE:
            return self.text[max(0, delimiter.start - 3) : delimiter.start].replace("```", "")[-1:] == "`"
        return delimiter.kind in _QUOTABLE and is_quoted(self.text, delimiter.start, delimiter.end)

    def _read_envelope(self, delimiter: Delimiter) -> None:
        start, at = delimiter.start, delimiter.end
        setting = Setting(self.box, self.text[start:at].strip("<>[]|/").lower(), explicit=True)
        try:
            found = envelope.read_envelope(self.text, start, at, setting, inline=not self.begins_line(start))
        except Unreadable as bad:
            self._settle_unread(delimiter, bad, setting.format)
        else:
            self.take(delimiter.held, found.end, found, delimiter.start)

    def _settle_unread(self, delimiter: Delimiter, bad: Unreadable, format: str) -> None:
        """Settle an opener behind which no call can be read. An envelope that holds nothing is dropped."""
        start, at = delimiter.start, delimiter.end
        empty, nothing = envelope.find_empty_end(self.text, at), isinstance(bad, envelope.Nothing)
        begins_line = self.begins_line(start)
        if nothing and self.is_used_as_closer(start, at):
            self.kept = len(self.text)
        elif nothing and not envelope.is_opener_meant(self.text, start, at, self.box, begins_line=begins_line):
            self.at = max(self.at, bad.at)  # a row of openers is looked at once
        elif empty is not None:
            self.drop(delimiter.held, empty)
        else:
            self.report_malformed(start, envelope.find_region_end(self.text, at), bad.reason, format)

    def _read_in_the_open(self, delimiter: Delimiter) -> None:
        start = skip_space(self.text, delimiter.start)
        match delimiter.kind:
            case Reader.REACT | Reader.CHANNEL | Reader.ANNOUNCED if self.fuel < 0:
                return
            case Reader.LINES:
                self._read_python_lines(start)
            case Reader.JSON if self.fuel < 0:  # bare JSON is no longer read
                if not self.rest_is_prose and names_a_tool(self.text, start, self.box):
                    reason = "too much of the text before it can't be read"
                    self.report_malformed(start, len(self.text), reason, "bare")
                self.rest_is_prose = True
            case _:
                self._read_notation(delimiter, start)

    def _read_notation(self, delimiter: Delimiter, start: int) -> None:
        kind = delimiter.kind if isinstance(delimiter.kind, Reader) else Reader.JSON
        explicit = delimiter.row is not None and delimiter.row.explicit
        last = kind is Reader.JSON and self.begins_line(start)
        alone, at = (False, delimiter.end) if kind in _ANNOUNCED else (self.leads(start), start)
        setting = Setting(self.box, kind.value, explicit=explicit, alone=alone, last=last)
        try:
            found = envelope.OPEN_READERS[kind](self.text, at, setting)
        except Unreadable as bad:
            self._give_up(kind, start, at, bad)
            return
        if found is not None:
            self.read.append((start, found.end))
        if found is not None and found.calls and goes_on_behind(self.text, found.end):
            self._give_up(kind, start, at, HalfCall("an object that was closed before its last key", found.end))
        elif found is not None and found.calls:
            self.take(delimiter.held, envelope.skip_closers(self.text, found.end)[0], found, delimiter.start)
        elif found is not None:
            if found.waiting:
                self.row.add(self.text, start, found.end, found.waiting)
            if kind is Reader.JSON:
                self.at = found.end  # data, and no place to look for calls in
                self.drop_closers(found.end)
        elif kind is Reader.ELEMENTS and envelope.is_tag_meant(self.text, start, self.box):
            self.report_malformed(start, envelope.find_region_end(self.text, start), "a tag without an end", kind.value)

    def _give_up(self, kind: Reader, start: int, at: int, bad: Unreadable) -> None:
        """Settle a notation that can't be read to its end: a call that is broken, or no call."""
        self.fuel -= max(bad.at - start, _ATTEMPT_CHARS)
        sure = kind not in (Reader.JSON, Reader.ANNOUNCED) or isinstance(bad, HalfCall)
        if sure or (kind is Reader.JSON and looks_like_a_call(self.text, start, self.box)):
            self.report_malformed(start, envelope.find_region_end(self.text, at), bad.reason, kind.value)
        elif kind is Reader.JSON:
            self.at = start + 1

    def _read_python_lines(self, start: int) -> None:
        """Read `f(a=1)` of declared tools, and nothing else, up to the end of the answer or of a fence."""
        if self.fuel < 0:
            return
        fenced = _TOOL_CODE.search(self.text, max(0, start - FENCE_CHARS_MAX), start)
        try:
            found = read_python(self.text, start, Setting(self.box, "python", alone=True))
        except Unreadable as bad:
            self.fuel -= max(bad.at - start, _ATTEMPT_CHARS)
            listed = isinstance(bad, HalfCall) and self.text[start] == "[" and _LIST_END.search(self.text, start)
            if self.leads(start) and (listed or is_one_call(self.text, start)):
                self.report_malformed(start, len(self.text), bad.reason, "python")
            self.row.broken = start if self.row.broken is None else self.row.broken
            return
        if found is not None and self.text[found.end : found.end + 1] not in tuple(")]}"):
            self.read.append((start, found.end))
        shown = self.text.startswith("print(", start) or self.is_behind(SHOWN_BEFORE, start)
        if found is None or (shown and not fenced):
            return
        frame = _FRAME.match(self.text, found.end)
        rest = frame.end() if frame else found.end
        if rest == len(self.text) or (fenced and "`" in self.text[found.end : rest]):
            sign = _STATEMENT_END.match(self.text, found.end)
            end = sign.end() if sign else found.end
            if self.follows_paragraph(start):  # nobody knows which of them are meant
                self.report_malformed(start, end, "a call in Python behind another one that text follows", "python")
            else:
                self.take(start, end, found)
        else:
            self.fuel -= found.end - start
            if self.is_behind(EXAMPLE_BEFORE, start):  # it is text, and one near it may be shown as an example, too
                self.shown.append((start, found.end, ""))
            if (fenced or self.begins_line(start)) and not self.is_in_sample(start):
                self.row.add(self.text, start, found.end, found.calls)
            if self.text[start] != "[" and is_paragraph(self.text, self.begins, start, found.end, rest):
                self.apart.append(start)
