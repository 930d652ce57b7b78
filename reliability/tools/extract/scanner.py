"""From the text of an answer to the calls in it.

One walk from left to right. A regular expression finds the places where a call may begin; the readers
(`payloads`, `markup`, `pythonic`) say what stands there; everything else is prose. There are two ways to be a
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
from reliability.tools.extract import harmony
from reliability.tools.extract.envelope import (
    FENCE_LINE,
    SPEECH_END,
    Nothing,
    Reader,
    closed_by_a_mark,
    closers,
    read_envelope,
    region_end,
)
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.marks import CLOSER, NAME, OPENER, quoted
from reliability.tools.extract.markup import read_attributes, read_elements, read_pairs
from reliability.tools.extract.payloads import blank, mended, read_braces, read_json, read_named
from reliability.tools.extract.prose import Prose
from reliability.tools.extract.pythonic import read_python
from reliability.tools.extract.shapes import ARGUMENT_KEYS, CALLS_MAX, NAME_KEYS, HalfCall, Setting
from reliability.tools.extract.text import read_arguments
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["extract_calls"]

FUEL_FACTOR = 4
FUEL_SPARE = 100_000
LOOK_CHARS = 400
MARK_CHARS_MAX = 64
MALFORMED_MAX = 32
ATTEMPT_CHARS = 256

_BY_NAME: dict[str, tuple[Reader, ...]] = {
    "tag": (read_elements, read_attributes),
    "named": (read_pairs, read_braces, read_named),
    "line": (read_named,),
    "bare": (read_python, read_json),
}

_SEPARATED = r"\[ARGS\]|\[CALL_ID\]|<(?:longcat_)?arg_key>|<\|tool_call_argument_begin\|>|<｜tool▁sep｜>"
_TRIGGER = re.compile(
    r"(?P<think><think>)"
    rf"|(?P<open>{OPENER.pattern})"
    rf"|(?P<close>{CLOSER.pattern})"
    r"|(?P<tag><(?:\w{1,32}:)?(?:function|invoke|tool)(?==|\s))"
    r"|(?P<react>^[ \t]{0,8}Action:[ \t]{0,8})"
    r"|(?P<channel>(?:\b(?:assistant)?(?:commentary|analysis) )?\bto=functions\.)"
    rf"|(?P<named>(?<![\w.:/-])(?:{NAME}(?=\s{{0,8}}(?:{_SEPARATED}))|call:(?={NAME}\{{)|functions\.{NAME}\(?\s{{0,8}}(?=\{{)))"
    rf"|(?P<line>^[ \t]{{0,8}}(?:\[{NAME}\]|{NAME}[ \t]{{0,8}}(?=\n))(?=\s{{0,8}}[{{`]))"
    r"|(?P<bare>\{(?=\s*+[\"'\w}])|\[(?=\s*+[\[{A-Za-z_]))",
    re.IGNORECASE | re.MULTILINE,
)
_THOUGHT = re.compile(r"</think>", re.IGNORECASE)
_NAMED_KEY = re.compile(rf"\b(?:{'|'.join(NAME_KEYS)})\b[\"'}}\]]?\s{{0,8}}:?\s{{0,8}}[\"']?({NAME})")
_ARGUMENT_KEY = re.compile(rf"\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"'}}\]]?\s{{0,8}}:")
_REACT = re.compile(rf"(?P<name>{NAME})[ \t]{{0,8}}\n\s{{0,8}}Action Input:\s{{0,8}}")
_LOOSE = re.compile(rf"(?P<name>{NAME})[^\n{{]{{0,40}}\s{{0,8}}(?=\{{|\Z)")
_ARGS = re.compile(r"\s{0,8}(?:\[ARGS\]|\[CALL_ID\])")
_OPEN_TAG = re.compile(rf"<function=\s*(?:(?P<name>{NAME})|[^<>\n]{{0,128}}\Z)")


def extract_calls(text: str, box: ToolBox) -> Extraction:
    """All calls in a text, what looks like one and isn't readable, and the prose that is left. Total, and
    linear in the text."""
    if not box.tools or not text:
        return Extraction(text=text)
    walk = _Walk(text, box)
    if harmony.is_harmony(text):
        walk.messages(text)
    else:
        walk.run(text)
    if not walk.calls and not walk.malformed and not walk.reasoning:
        return Extraction(text=text)
    return Extraction(
        text=walk.prose.text(),
        before=walk.prose.before(),
        reasoning="\n".join(walk.reasoning),
        calls=tuple(walk.calls),
        malformed=tuple(walk.malformed),
    )


class _Walk:
    """One walk over one text. It owns what was found so far, and the fuel for readings that fail."""

    def __init__(self, text: str, box: ToolBox) -> None:
        self.box = box
        self.calls: list[RawCall] = []
        self.malformed: list[Malformed] = []
        self.reasoning: list[str] = []
        self.prose = Prose()
        self.fuel = FUEL_FACTOR * len(text) + FUEL_SPARE
        self.text = ""
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
                self.run(message.body)
            else:
                self.prose.called("", 0)
                self._arguments(message.recipient, message.body if message.complete else "", message.raw, "harmony")

    def run(self, text: str) -> None:
        """Walk over one text. Each step moves forward."""
        self.text, self.at, self.kept = text, 0, 0
        self.thoughts, self.rest_is_prose = True, False
        self._whole()
        while (match := _TRIGGER.search(text, self.at)) is not None:
            self.at = match.end()
            if match.lastgroup == "think":
                self._thought()
            elif self._mentioned(match):
                continue
            elif match.lastgroup == "open":
                self._envelope(match)
            elif match.lastgroup == "close":
                self._stray(match)
            else:
                self._in_the_open(match)
        self.prose.add(text[self.kept :])

    def _thought(self) -> None:
        """Go on behind a closed section of thought."""
        end = _THOUGHT.search(self.text, self.at) if self.thoughts else None
        self.thoughts = end is not None
        self.at = end.end() if end else self.at

    def _mentioned(self, match: re.Match[str]) -> bool:
        """True for a mark that is only talked about."""
        if match.lastgroup == "tag":
            return self.text[max(0, match.start() - 1) : match.start()] == "`"
        return match.lastgroup in ("open", "close") and quoted(self.text, match.start(), match.end())

    # --- settling -------------------------------------------------------------------------------------------

    def _take(self, start: int, end: int) -> None:
        """What stands before `start` is prose; go on at `end`."""
        self.prose.add(self.text[self.kept : start])
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

    def _envelope(self, opener: re.Match[str]) -> None:
        """From an opener to its closer everything is calls, or malformed."""
        start, at = opener.start(), opener.end()
        setting = Setting(self.box, opener[0].strip("<>[]|/").lower(), marked=True)
        try:
            found = read_envelope(self.text, opener, setting)
        except Nothing as bad:
            if self._closes(start, at):
                self.kept = len(self.text)
            elif self._meant(start, at):
                self._bad(start, region_end(self.text, at), bad.reason, setting.format)
        except Unreadable as bad:
            self._bad(start, region_end(self.text, at), bad.reason, setting.format)
        else:
            self._good(start, found.end, found.calls)

    def _closes(self, start: int, at: int) -> bool:
        """True for an opener that was said instead of a closer: right behind a call, and the end of all."""
        return bool(self.calls) and blank(self.text, self.kept) == start and blank(self.text, at) == len(self.text)

    def _meant(self, start: int, at: int) -> bool:
        """True where an opener without a call was meant: it begins a line, or ends the text, or a closer
        follows."""
        line = max(
            self.text.rfind("\n", max(self.kept, start - LOOK_CHARS), start) + 1,
            self.kept,
            start - LOOK_CHARS,
        )
        alone = not self.text[line:start].strip() or blank(self.text, at) == len(self.text)
        return alone or closed_by_a_mark(self.text, at)

    def _stray(self, closer: re.Match[str]) -> None:
        """A closer that no call stands before: what stands before it was meant to be one."""
        if SPEECH_END.fullmatch(closer[0]):
            return
        start = max(self.kept, self.text.rfind("\n\n", self.kept, closer.start()) + 2)
        self._bad(
            min(start, closer.start()),
            closer.end(),
            "a closing tag, and no call that can be read before it",
            "closer",
        )

    # --- by a declared name ---------------------------------------------------------------------------------

    def _whole(self) -> None:
        """An answer that is nothing but `f(a=1)` of declared tools."""
        fence = FENCE_LINE.match(self.text, blank(self.text, 0))
        start = fence.end() if fence else blank(self.text, 0)
        try:
            found = read_python(self.text, start, Setting(self.box, "python", alone=True))
        except Unreadable:
            return
        if found is not None and not self.text[found.end :].strip(" \t\r\n`"):
            self._good(start, found.end, found.calls)

    def _in_the_open(self, match: re.Match[str]) -> None:
        """Something that is a call only if it names a declared tool."""
        kind = match.lastgroup or ""
        if kind in ("react", "channel"):
            self._prefixed(match, _REACT if kind == "react" else _LOOSE, kind)
            return
        start = match.start() if kind != "line" else blank(self.text, match.start())
        if kind == "bare" and self.fuel < 0:
            self._out_of_fuel(start)
            return
        marked = _ARGS.match(self.text, match.end()) is not None
        try:
            setting = Setting(self.box, kind, marked=marked, alone=self._leads(start))
            found = next((f for reader in _BY_NAME[kind] if (f := reader(self.text, start, setting)) is not None), None)
        except Unreadable as bad:
            self.fuel -= max(bad.at - start, ATTEMPT_CHARS)
            if kind != "bare" or isinstance(bad, HalfCall) or self._looks_like_a_call(start):
                self._bad(start, region_end(self.text, start), bad.reason, kind)
            else:
                self.at = start + 1
            return
        if found is not None and found.calls:
            self._good(start, closers(self.text, found.end)[0], found.calls)
        elif found is not None:
            self.at = found.end  # data, and no place to look for calls in
        elif kind == "tag" and self._open_tag(start):
            self._bad(start, region_end(self.text, start), "a tag without an end", kind)

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
        the text."""
        window = self.text[start : start + LOOK_CHARS]
        named = any(self.box.find(name) is not None for name in _NAMED_KEY.findall(window))
        return named and (_ARGUMENT_KEY.search(window) is not None or start + LOOK_CHARS >= len(self.text))

    def _prefixed(self, match: re.Match[str], head: re.Pattern[str], kind: str) -> None:
        """A declared name behind words that announce a call."""
        named = head.match(self.text, match.end())
        if named is None or self.box.find(named["name"]) is None:
            return
        try:
            value = read(self.text, named.end())
            if not isinstance(value.value, dict):
                raise Unreadable("the arguments must be an object", value.end)
        except Unreadable as bad:
            self._bad(match.start(), region_end(self.text, named.end()), bad.reason, kind)
            return
        call = mended(RawCall(name=named["name"], arguments=value.value, format=kind), list(value.mended))
        self._good(match.start(), closers(self.text, value.end)[0], [call])
