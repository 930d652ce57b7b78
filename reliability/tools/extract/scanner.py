"""From the text of an answer to the calls in it.

One walk from left to right. `marks.py` finds the places where a call may begin, by the table of call formats; the
readers (`payloads`, `markup`, `pythonic`) say what stands there; everything else is prose. There are two ways to be a
call:

    by its mark            an opener (`<tool_call>`, `[TOOL_REQUEST]`) is there, or a closer right behind it
    by its declared name   bare JSON, `name{json}`, `[f(a=1)]`, tags: if the request has a tool of that name

What has a mark, or a declared name with a call's keys, and can't be read without loss is `Malformed`, with
its raw text up to where it may end. What has neither stays prose, to the letter. Prose in a closed `<think>`
section is thought, not called. Marks in quotes are talked about, not used.

Time is linear. Each reader works forward from its place, and reading goes on behind what it read. Readings
in the open that fail give nothing back, so they are paid from `FUEL_FACTOR` times the length of the text;
when that is spent, bare JSON is no longer tried, and a declared name in the rest is reported as malformed.
"""

from __future__ import annotations

import re

from reliability.tool_calls import Extraction, Malformed, RawCall
from reliability.tools.delimiters import OPENER, SPEECH_END, quoted
from reliability.tools.extract import harmony
from reliability.tools.extract.envelope import FENCE_LINE, Nothing, closed_by_a_mark, closers, read_envelope, region_end
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.marks import SPOT, Mark, mark_at, mark_in_line
from reliability.tools.extract.markup import read_attributes, read_elements, read_pairs
from reliability.tools.extract.payloads import blank, mended, read_braces, read_json, read_named
from reliability.tools.extract.prose import Prose
from reliability.tools.extract.pythonic import read_python
from reliability.tools.extract.shapes import ARGUMENT_KEYS, CALLS_MAX, NAME_KEYS, HalfCall, Setting
from reliability.tools.extract.text import read_arguments
from reliability.tools.format_row import Reader
from reliability.tools.formats import NAME
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["extract_calls", "is_prose"]

FUEL_FACTOR = 4
FUEL_SPARE = 100_000
LOOK_CHARS = 400
MARK_CHARS_MAX = 64
MALFORMED_MAX = 32
ATTEMPT_CHARS = 256

_READERS = {
    Reader.ELEMENTS: read_elements,
    Reader.ATTRIBUTES: read_attributes,
    Reader.PAIRS: read_pairs,
    Reader.NAMED: read_named,
    Reader.BRACES: read_braces,
    Reader.PYTHON: read_python,
    Reader.JSON: read_json,
}
_THOUGHT = re.compile(r"</think>", re.IGNORECASE)
_NAMED_KEY = re.compile(rf"\b(?:{'|'.join(NAME_KEYS)})\b[\"'}}\]]?\s{{0,8}}:?\s{{0,8}}[\"']?({NAME})")
_ARGUMENT_KEY = re.compile(rf"\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"'}}\]]?\s{{0,8}}:")
_HEADS = {
    Reader.REACT: re.compile(rf"(?P<name>{NAME})[ \t]{{0,8}}\r?\n\s{{0,8}}Action Input:\s{{0,8}}", re.IGNORECASE),
    Reader.CHANNEL: re.compile(rf"(?P<name>{NAME})[^\n{{]{{0,64}}\s{{0,8}}(?=\{{|\Z)"),
}
_FRAME = re.compile(r"[ \t\r\n`]*+")
_TOOL_CODE = re.compile(r"`{3,}tool_code\s*\Z")
_BRACKET = re.compile(r"[{}\[\]]")
_JSON_BEGINS = re.compile(r"\{\s{0,64}(?:\"[^\"\n]{0,128}\"|'[^'\n]{0,128}'|\w{1,128})\s{0,64}[\"':]|\[\s{0,64}[\[{]")
_OPEN_TAG = re.compile(rf"<function=\s*(?:(?P<name>{NAME})|[^<>\n]{{0,128}}\Z)")


def extract_calls(text: str, box: ToolBox, sent: int = 0) -> Extraction:
    """All calls in a text, what looks like one and isn't readable, and the prose that is left. Total, and
    linear in the text. `sent`: so much of the text has left already, and is not given back as prose."""
    if not box.tools or not text:
        return Extraction(text=text[sent:])
    walk = _Walk(text, box, sent)
    if harmony.is_harmony(text):
        walk.messages(text)
    else:
        walk.run(text)
    if not walk.found:
        return Extraction(text=text[sent:])
    return Extraction(
        text=walk.prose.text(),
        before=walk.prose.before(),
        reasoning="\n".join(walk.reasoning),
        calls=tuple(walk.calls),
        malformed=tuple(walk.malformed),
    )


def is_prose(text: str, box: ToolBox, begin: int = 0) -> bool:
    """True where everything in a text is delivered as it stands. What stands before `begin` is prose; it is seen, and
    not read again."""
    walk = _Walk(text, box, 0)
    if harmony.is_harmony(text):
        walk.messages(text)
    else:
        walk.run(text, begin=begin)
    return not walk.found


class _Walk:
    """One walk over one text. It owns what was found so far, and the fuel for readings that fail."""

    def __init__(self, text: str, box: ToolBox, sent: int) -> None:
        self.box = box
        self.calls: list[RawCall] = []
        self.malformed: list[Malformed] = []
        self.reasoning: list[str] = []
        self.prose = Prose(sent)
        self.fuel = FUEL_FACTOR * len(text) + FUEL_SPARE
        self.text = ""
        self.base = 0  # the place of this text in the whole answer
        self.at = 0
        self.kept = 0  # up to here the text is settled
        self.rest_is_prose = False  # True where no declared name is left
        self.thoughts = True  # False where no thought ends any more

    def messages(self, text: str) -> None:
        """A text in the Harmony format: calls by their header, the rest as text."""
        for message in harmony.split(text):
            if message.thinking:
                self.reasoning.append(message.body)
            elif message.recipient is None:
                self.run(message.body, message.at)
            else:
                self.prose.called("", 0)
                self._arguments(message.recipient, message.body if message.complete else "", message.raw, "harmony")

    @property
    def found(self) -> bool:
        """True where something is no prose."""
        return bool(self.calls or self.malformed or self.reasoning)

    def run(self, text: str, base: int = 0, begin: int = 0) -> None:
        """Walk over one text. Each step moves forward."""
        self.text, self.base, self.at, self.kept = text, base, begin, 0
        self.thoughts, self.rest_is_prose = True, False
        while True:
            at = self.at
            if at == 0 or text[at - 1] == "\n":
                self._line()
            if self.at == at:
                spot = SPOT.search(text, at)
                if spot is None:
                    break
                self.at = spot.end()
                if text[spot.start()] != "\n":
                    self._spot(spot.start())
        self.prose.add(text[self.kept :], base + self.kept)

    def _line(self) -> None:
        """Look at the beginning of a line."""
        mark = mark_in_line(self.text, self.at)
        if mark is not None:
            self._in_the_open(mark)

    def _spot(self, at: int) -> None:
        """Look at one place."""
        mark = mark_at(self.text, at, self.kept)
        if mark is None:
            return
        self.at = mark.end
        if mark.kind == "think":
            self._thought()
        elif self._mentioned(mark):
            return
        elif mark.kind is Reader.ENVELOPE:
            self._envelope(mark)
        elif mark.kind == "close":
            self._stray(mark)
        else:
            self._in_the_open(mark)

    def _thought(self) -> None:
        """Go on behind a closed section of thought."""
        end = _THOUGHT.search(self.text, self.at) if self.thoughts else None
        self.thoughts = end is not None
        self.at = end.end() if end else self.at

    def _mentioned(self, mark: Mark) -> bool:
        """True for a mark that is only talked about."""
        if mark.kind in (Reader.ELEMENTS, Reader.ATTRIBUTES):
            return self.text[max(0, mark.start - 1) : mark.start] == "`"
        return mark.kind in (Reader.ENVELOPE, "close") and quoted(self.text, mark.start, mark.end)

    # --- settling -------------------------------------------------------------------------------------------

    def _take(self, start: int, end: int) -> None:
        """What stands before `start` is prose; go on at `end`."""
        self.prose.add(self.text[self.kept : start], self.base + self.kept)
        self.at = self.kept = self.prose.called(self.text, end)

    def _good(self, start: int, end: int, calls: list[RawCall]) -> None:
        self._take(start, end)
        self._keep(calls, self.text[start:end])

    def _keep(self, calls: list[RawCall], raw: str) -> None:
        if len(self.calls) + len(calls) > CALLS_MAX:
            self.malformed.append(
                Malformed(raw=raw, reason=f"more than {CALLS_MAX} calls in one answer", format=calls[0].format)
            )
        else:
            self.calls += calls

    def _bad(self, start: int, end: int, reason: str, format: str) -> None:
        if len(self.malformed) >= MALFORMED_MAX - 1:
            end, reason = len(self.text), f"{MALFORMED_MAX} or more calls that can't be read"
        self._take(start, end)
        self.malformed.append(Malformed(raw=self.text[start:end], reason=reason, format=format))

    def _arguments(self, name: str, body: str, raw: str, format: str) -> None:
        """A call whose name is known and whose arguments are all of this text."""
        value = read_arguments(body)
        if isinstance(value, str):
            self.malformed.append(Malformed(raw=raw, reason=value, format=format))
        else:
            self._keep([mended(RawCall(name=name, arguments=value.value, format=format), list(value.mended))], raw)

    # --- by a mark ------------------------------------------------------------------------------------------

    def _envelope(self, mark: Mark) -> None:
        """From an opener to its closer everything is calls, or malformed."""
        start, at = mark.start, mark.end
        setting = Setting(self.box, self.text[start:at].strip("<>[]|/").lower(), marked=True)
        try:
            found = read_envelope(self.text, start, at, setting, inline=not self._begins_line(start))
        except Nothing as bad:
            if self._closes(start, at):
                self.kept = len(self.text)
            elif self._meant(start, at):
                self._bad(start, region_end(self.text, at), bad.reason, setting.format)
            else:
                self.at = max(at, bad.at)  # a row of openers is looked at once
        except Unreadable as bad:
            self._bad(start, region_end(self.text, at), bad.reason, setting.format)
        else:
            self._good(mark.held, found.end, found.calls)

    def _closes(self, start: int, at: int) -> bool:
        """True for an opener that was said instead of a closer: right behind a call, and the end of all."""
        return bool(self.calls) and blank(self.text, self.kept) == start and blank(self.text, at) == len(self.text)

    def _meant(self, start: int, at: int) -> bool:
        """True where an opener without a call was meant: it begins a line, or ends the text, or a closer
        follows."""
        ends = blank(self.text, at) == len(self.text)
        return ends or self._begins_line(start) or closed_by_a_mark(self.text, at)

    def _begins_line(self, start: int) -> bool:
        """True where nothing but white space, or a call, stands before this place in its line."""
        line = max(
            self.text.rfind("\n", max(self.kept, start - LOOK_CHARS), start) + 1,
            self.kept,
            start - LOOK_CHARS,
        )
        return not self.text[line:start].strip()

    def _stray(self, closer: Mark) -> None:
        """A closer that no call stands before: what stands before it was meant to be one."""
        if SPEECH_END.fullmatch(self.text, closer.start, closer.end):
            return
        start = max(self.kept, self.text.rfind("\n\n", self.kept, closer.start) + 2)
        self._bad(
            min(start, closer.start),
            closer.end,
            "a closing tag, and no call that can be read before it",
            "closer",
        )

    # --- by a declared name ---------------------------------------------------------------------------------

    def _in_the_open(self, mark: Mark) -> None:
        """Something that is a call only if it names a declared tool."""
        start = blank(self.text, mark.start)
        match mark.kind:
            case Reader.REACT | Reader.CHANNEL:
                self._announced(mark, start)
            case Reader.LINES:
                self._python_lines(start)
            case Reader.JSON if self.fuel < 0:
                self._out_of_fuel(start)
            case _:
                self._notation(mark, start)

    def _notation(self, mark: Mark, start: int) -> None:
        """A call in a notation that has a reader of its own."""
        kind = mark.kind if isinstance(mark.kind, Reader) else Reader.JSON
        marked = mark.row is not None and mark.row.marked
        setting = Setting(self.box, kind.value, marked=marked, alone=self._leads(start))
        try:
            found = _READERS[kind](self.text, start, setting)
        except Unreadable as bad:
            self._unread(kind, start, bad)
            return
        if found is not None and found.calls:
            self._good(mark.held, closers(self.text, found.end)[0], found.calls)
        elif found is not None:
            self.at = found.end  # data, and no place to look for calls in
        elif kind is Reader.ELEMENTS and self._open_tag(start):
            self._bad(start, region_end(self.text, start), "a tag without an end", kind.value)

    def _unread(self, kind: Reader, start: int, bad: Unreadable) -> None:
        """A notation that can't be read to its end: a call that is broken, or no call."""
        self.fuel -= max(bad.at - start, ATTEMPT_CHARS)
        if kind is not Reader.JSON or isinstance(bad, HalfCall) or self._looks_like_a_call(start):
            self._bad(start, region_end(self.text, start), bad.reason, kind.value)
        else:
            self.at = start + 1

    def _python_lines(self, start: int) -> None:
        """`f(a=1)` of declared tools, and nothing else up to the end of the answer, or of a fence for tool calls."""
        if self.fuel < 0:
            return
        try:
            found = read_python(self.text, start, Setting(self.box, "python", alone=True))
        except Unreadable as bad:
            self.fuel -= max(bad.at - start, ATTEMPT_CHARS)
            return
        if found is None:
            return
        frame = _FRAME.match(self.text, found.end)
        rest = frame.end() if frame else found.end
        fenced = _TOOL_CODE.search(self.text, max(0, start - MARK_CHARS_MAX), start)
        if rest == len(self.text) or (fenced and "`" in self.text[found.end : rest]):
            self._good(start, found.end, found.calls)
        else:
            self.fuel -= found.end - start

    def _open_tag(self, start: int) -> bool:
        """True for a tag that isn't closed: with a declared name in it, or cut off by the end of the text."""
        tag = _OPEN_TAG.match(self.text, start)
        return tag is not None and (tag.end() == len(self.text) or self.box.find(tag["name"]) is not None)

    def _out_of_fuel(self, start: int) -> None:
        """Bare JSON is no longer read. If the rest of the text names a tool where a call would, it is
        reported."""
        if self.rest_is_prose:
            return
        self.rest_is_prose = not any(self.box.find(name) is not None for name in _NAMED_KEY.findall(self.text, start))
        if not self.rest_is_prose:
            self._bad(start, len(self.text), "too much of the text before it can't be read", "bare")

    def _leads(self, start: int) -> bool:
        """True where nothing but a fence stands before this place."""
        return start <= MARK_CHARS_MAX and not FENCE_LINE.sub("", self.text[:start]).strip()

    def _looks_like_a_call(self, start: int) -> bool:
        """True where a declared name stands under a name's key, next to an arguments' key or to the end of
        the text, in what begins as JSON does and before the bracket closes."""
        if not _JSON_BEGINS.match(self.text, start):
            return False
        window = self._window(start)
        named = any(self.box.find(name) is not None for name in _NAMED_KEY.findall(window))
        return named and (_ARGUMENT_KEY.search(window) is not None or start + LOOK_CHARS >= len(self.text))

    def _window(self, start: int) -> str:
        """The text behind a bracket: up to where it seems to close, or another call is opened, and not far."""
        window = self.text[start : start + LOOK_CHARS]
        opener = OPENER.search(window)
        window = window[: opener.start()] if opener else window
        depth = 0
        for bracket in _BRACKET.finditer(window):
            depth += 1 if bracket[0] in "{[" else -1
            if depth == 0:
                return window[: bracket.end()]
        return window

    def _announced(self, mark: Mark, start: int) -> None:
        """A declared name behind words that announce a call."""
        kind = mark.kind if isinstance(mark.kind, Reader) else Reader.REACT
        named = _HEADS[kind].match(self.text, mark.end)
        if named is None or self.box.find(named["name"]) is None:
            return
        try:
            value = read(self.text, named.end())
            if not isinstance(value.value, dict):
                raise Unreadable("the arguments must be an object", value.end)
        except Unreadable as bad:
            self._bad(start, region_end(self.text, named.end()), bad.reason, kind.value)
            return
        call = mended(RawCall(name=named["name"], arguments=value.value, format=kind.value), list(value.mended))
        self._good(mark.held, closers(self.text, value.end)[0], [call])
