"""What a walk over a text has found so far, and how it settles what it finds.

All before `kept` is settled: prose, calls, calls that can't be read, or marks that hold nothing and are dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from reliability.tool_calls import LOOSE, SHOWN, Malformed, RawCall, RepairKind
from reliability.tools import formats
from reliability.tools.extract import envelope
from reliability.tools.extract.delimiter_search import Delimiter
from reliability.tools.extract.payloads import Found, record_repairs, skip_space
from reliability.tools.extract.prose import Prose
from reliability.tools.extract.quoting import find_form, find_telling, is_block_quoted, is_in_sample
from reliability.tools.extract.shapes import CALLS_MAX, CallRun
from reliability.tools.extract.text import holds_argument, read_arguments
from reliability.tools.extract.wrecks import find_names, is_loose_call, is_wreck
from reliability.tools.format_reasoning import Thought, compile_ends, ends_reasoning, find_row, is_used, opens_reasoning
from reliability.tools.schema.toolbox import ToolBox
from reliability.tools.turns import GIVEN_RESULT, HARNESS_TAGS, is_in_code_block

MALFORMED_MAX = 32
_LOOK_CHARS = 400
FENCE_CHARS_MAX = 64
_SHOWN_CHARS = 120  # of what stands before a call, fewer than the gate keeps
_LINE_ENDS, _INDENTED = re.compile(r"[ \t]*(?:\r?\n|\Z)"), re.compile(r"(?:\A|\n)(?: {4}|\t)[ \t]*\Z")
_LED = r":[*_]{0,3}\s*(?:`{3,8}[\w+.#-]{0,32}\s*)?\Z"
_WARNED_BEFORE = re.compile(
    r"(?:\A|[\n.!?;])[\W_]*+(?:please |you )?(?:(?:(?:do|should|must)(?:n['’]?t| not)|never) (?:ever )?"
    r"(?:do|run|use|call|write|send|say|try|make|type|put|execute|invoke|issue|answer|paste|print|rely|repeat)"
    r"|avoid|(?:this is )?wrong)(?: (?:th(?:is|at|[eo]se|e following)|it|so|such|calls?|code|like)\b[^\n.!?,;:]{0,40})?"
    rf"{_LED}",
    re.IGNORECASE,
)
_OTHERS = r"(?:(?!\b(?:I|[Ww]e|[Ll]et me|[Ll]et['’]?s)\b)[^\n.!?;])*"  # words of a sentence that doesn't say who acts
EXAMPLE_BEFORE = re.compile(
    rf"(?:\A|[\n.!?;]){_OTHERS}\b(?i:(?:for|an|another) (?:example|instance)\b|e\.g\.|(?:would|could|might) look like\b"
    r"|looks like this\b|(?:you (?:can|could|may|might|would) (?:call|invoke|run|use|write|make)"
    rf"|(?:is|are) (?:called|invoked|used|written|made))\b[^\n.!?;]{{0,60}}\blike (?:this|so)\b){_OTHERS}{_LED}"
)
_ACTS = re.compile(r"\b(?:I|[Ww]e|[Ll]et me|[Ll]et['’]?s|[Nn]ow)\b")
#: The line before tells that a call is shown, or is the head of a block in which it stands.
SHOWN_BEFORE = re.compile(
    rf"\b(?i:instead of){_OTHERS}{_LED}"
    r"|(?:\A|\n)[ \t]*(?:async )?(?:def|class|if|elif|else|for|while|with|try|except)\b[^\n]*:[ \t]*\n\s*[ \t]\Z"
)
_OWN_RESULT = "a tool's result that no tool has given: call the tool, and wait for what it gives"
_OTHERS_WORDS = "words of the user's side: answer the user, or call a tool"
_WRECK = "a declared tool and its arguments, in a form that is no call"
_LOST_PARTS = re.compile(rf"{formats.INNER_CLOSERS.pattern}\Z", re.IGNORECASE)


class Findings:
    """The state of one walk over one text, and over the bodies of its messages."""

    def __init__(self, box: ToolBox, sent: int, whole: bool, told: str | None) -> None:
        self.box = box
        self.calls: list[RawCall] = []
        self.malformed: list[Malformed] = []
        self.reasoning: list[str] = []  # what was taken out; empty where a mark was
        self.prose = Prose(sent, told or "")
        self.fuel = 0  # for readings that fail
        self.ends: tuple[int, int] | None = None  # the mark at which the answer ends
        self.dropped = False  # True where marks were dropped
        self.whole = whole  # False where the text is a stream's window, whose beginning is no line's
        self.undecided = False  # True where the text ends too early to tell whether a call is only told of
        self.unended = False  # True where a list of calls lacks its end, as the text does
        self.has_thought = told is not None  # True where reasoning has ended
        self.fences: list[int] = []  # the lines that open or close a code block, where a mark may stand in one
        self.begin_text("", 0, 0)

    def begin_text(self, text: str, base: int, at: int) -> None:
        """Begin a text, which stands at `base` in the whole answer, `at` this place of it."""
        self.text, self.base, self.at = text, base, at
        self.kept = 0  # up to here the text is settled
        self.begins = 0  # where the answer begins: behind its reasoning
        self.row = CallRun()
        self.taken: list[tuple[int, int]] = []  # where the calls of this text stand, and what was dropped
        self.given: re.Match[str] | None = None  # a line behind a call that gives a result, if another call follows
        self.closers: dict[str, re.Match[str] | None] = {}  # where reasoning of a family ends next, if it does
        self.openers: dict[str, list[int]] = {}  # where reasoning of a family begins, from where that was asked first
        self.named: list[tuple[int, str]] = []  # where declared names stand that haven't been looked at, the last first
        self.read: list[tuple[int, int]] = []  # what was read and is no call
        self.apart: list[int] = []  # where paragraphs of Python stand that other text follows
        self.shown: list[tuple[int, int, str]] = []  # calls that stand behind words for an example, and their formats
        self.messages_at: int | None = None  # where messages begin behind other text
        self.closed = 0  # where the row of closers ends that was looked at last
        self.rest_is_prose = False  # True where no declared name is left

    @property
    def found(self) -> bool:
        """True where something is no prose."""
        return bool(self.calls or self.malformed or self.reasoning or self.dropped)

    def settle(self, start: int, end: int) -> None:
        """Add what stands before `start` to the prose, and go on at `end`; what waits there is a call like this."""
        for one in self.row.take(self.text, start):
            self.take_calls(one.start, one.end, list(one.calls))
        self.look_for_wrecks(start)
        self.prose.add(self.text[self.kept : min(skip_space(self.text, start), end)], self.base + self.kept)
        self.at = self.kept = self.prose.add_call(self.text, end)
        self.taken.append((start, self.kept))

    def take_calls(self, start: int, end: int, calls: list[RawCall]) -> None:
        if not self.rests_on_given(start):
            self.settle(start, end)
            self.keep_calls(calls, self.text[start:end])

    def rests_on_given(self, start: int) -> bool:
        """End the answer before a result that it gives itself, where a call begins behind that."""
        given, self.given = self.given, None
        if given is None or not envelope.FENCE_LINE.sub("", self.text[given.end() : start]).strip():
            return False
        self.end_answer(given.start(), given.start())
        return True

    def end_answer(self, start: int, end: int) -> None:
        """End the answer at a mark: nothing behind it is read."""
        self.ends, self.at = (self.base + start, self.base + end), len(self.text)

    def is_told(self, start: int, end: int, *, broken: bool = False) -> bool:
        """Return whether a call, from `start` to `end`, is only told of; then go on behind it. `broken`: unreadable."""
        if self.is_behind(_WARNED_BEFORE, start):
            self._pass_over(start, end)
            return True
        if self.is_in_sample(start):
            self.at = max(self.at, end)
            return True
        if broken and self.fuel < 0:
            return False
        least = self.kept if self.calls or self.malformed else self.begins
        telling = find_telling(self.text, least, start, end, broken=broken)
        if not telling.told:
            form = find_form(self.text, least, start, end, self.box, broken=broken)
            telling = form if form.told else telling._replace(open=telling.open or form.open)
        self.undecided = self.undecided or telling.open
        self.at = max(self.at, telling.end)
        self.fuel -= end - start if broken and telling.told else 0
        return telling.told

    def is_in_sample(self, start: int) -> bool:
        """Return whether a call that begins here, or the row that it ends, stands in a sample behind other code."""
        return is_in_sample(self.text, self.begins, self.taken, self._find_row(start))

    def _find_row(self, start: int) -> int:
        """Find where the row begins that a call at this place ends."""
        return self.row.waiting[0].start if self.row.reaches(self.text, start) else start

    def take(self, start: int, end: int, found: Found, begin: int | None = None) -> None:
        """Take what a reader has found, unless it is only told of. `begin`: where its words do, which stay prose."""
        row = self._find_row(start if begin is None else begin)
        if self.is_told(start if begin is None else begin, end):
            return
        if self._follows_shown(row) or self.is_behind(EXAMPLE_BEFORE, row):
            self.shown.append((row, end, found.calls[0].format))
            self._pass_over(row, end)
            return
        self.take_calls(start, end, found.calls)
        if found.said.strip() and self.ends is None:
            self.prose.add(found.said, self.base + self.kept)
        self.unended = self.unended or found.unended

    def _pass_over(self, start: int, end: int) -> None:
        """Go on behind a call that stays prose."""
        self.read.append((max(start, self.read[-1][0] if self.read else 0), end))
        self.at = max(self.at, end)

    def _follows_shown(self, start: int) -> bool:
        """Return whether a call stands near one that is shown, and no words between them say that the model acts."""
        shown = self.shown[-1][1] if self.shown else -1
        return max(self.kept, start - _LOOK_CHARS) <= shown and not _ACTS.search(self.text, shown, start)

    def report_shown(self) -> None:
        """Report the calls that are shown as examples, unless one is made: then they are part of its answer's text."""
        for start, end, format in () if self.calls or self.malformed else self.shown:
            if format:
                self.report_malformed(start, end, SHOWN, format)

    def drop_closers(self, at: int) -> None:
        """Drop the closers of a call that stand behind data."""
        closer = skip_space(self.text, at)
        if formats.CLOSER.match(self.text, closer) and not formats.SPEECH_END.match(self.text, closer):
            self.drop(at, envelope.skip_closers(self.text, closer)[0])

    def keep_calls(self, calls: list[RawCall], raw: str) -> None:
        """Keep calls, as many as an answer may have."""
        if len(self.calls) + len(calls) > CALLS_MAX:
            reason = f"more than {CALLS_MAX} calls in one answer"
            self.malformed.append(Malformed(raw=raw, reason=reason, format=calls[0].format))
        else:
            self.calls += calls

    def report_malformed(self, start: int, end: int, reason: str, format: str) -> None:
        """Report a call, from `start` to `end`, that can't be read, unless it is only told of."""
        if self.is_told(start, end, broken=True) or self.rests_on_given(start):
            return
        if len(self.malformed) >= MALFORMED_MAX - 1:
            end, reason = len(self.text), f"{MALFORMED_MAX} or more calls that can't be read"
        self.settle(start, end)
        self.malformed.append(Malformed(raw=self.text[start:end], reason=reason, format=format))

    def look_for_wrecks(self, until: int) -> None:
        """Report what no reader could read, before this place, and what was meant as a call."""
        while self.named and self.named[-1][0] < until:
            at, name = self.named.pop()
            line = max(self.text.rfind("\n", self.kept, at) + 1, self.kept)
            known = at < self.kept or self._is_read(at)
            if known or is_block_quoted(self.text, self.begins, at, whole=self.whole):
                continue
            if is_wreck(self.text, line, at, name, self.box):
                end = min(envelope.find_region_end(self.text, at), until)
                self.report_malformed(skip_space(self.text, line), end, _WRECK, "wreck")

    def look_for_loose_call(self) -> None:
        """Report a whole answer that is the name of a tool and its arguments, in the words of no call."""
        if self.calls or self.malformed or not self.whole or self.box.wants_json or self.box.asked_json:
            return
        names = find_names(self.text[: self.begins + _LOOK_CHARS], self.box, self.begins)
        if names and is_loose_call(self.text[self.begins :], names[-1][0] - self.begins, names[-1][1], self.box):
            self.report_malformed(skip_space(self.text, self.begins), len(self.text), LOOSE, "loose")

    def _is_read(self, at: int) -> bool:
        place = bisect_right(self.read, (at, len(self.text)))
        return place > 0 and at < self.read[place - 1][1]

    def drop(self, start: int, end: int) -> None:
        """Drop marks, from `start` to `end`, that hold nothing, unless they are only told of."""
        if self.is_told(start, end):
            return
        self.row = CallRun()
        self.settle(start, end)
        self.dropped = True

    def take_apart(self, start: int, end: int, thought: int = 0, until: int = 0) -> None:
        """Take what stands from `start` to `end` out of the prose: marks, and reasoning from `thought` to `until`."""
        self.row = CallRun()
        self.prose.add(self.text[self.kept : start], self.base + self.kept)
        self.prose.skip()
        self.reasoning.append(self.text[max(thought, self.prose.sent - self.base) : until].strip())
        self.at = self.kept = end

    def skip_reasoning(self, opener: Delimiter) -> None:
        """Go on behind a section of reasoning, which is prose where it is talked about."""
        if formats.is_quoted(self.text, opener.start, opener.end):
            return
        row, meant = find_row(self.text, opener.start), self._is_meant(opener.start, opener.end)
        closer = None if row is None else self._find_reasoning_end(row, opener.end)
        if row and closer and not meant and self._opens_between(row, opener.end, closer.start()):
            return
        if closer is None and not formats.begins_sentence(self.text, opener.start):
            return
        start, end = closer.span() if closer else (len(self.text), len(self.text))
        if meant:
            self.take_apart(opener.start, end, opener.end, start)
            self.begins = end if closer is not None else self.begins
        self.has_thought = self.has_thought or closer is not None
        self.at = end

    def _is_meant(self, start: int, end: int) -> bool:
        """Return whether reasoning begins at an opener: in the place of a sentence, or right behind other reasoning."""
        if bisect_left(self.fences, self.base + start) % 2 == 1:
            return False
        near = self.begins > 0 and start - self.begins <= _LOOK_CHARS
        return (near and skip_space(self.text, self.begins) >= start) or opens_reasoning(self.text, start, end)

    def _opens_between(self, row: Thought, start: int, end: int) -> bool:
        if row.family not in self.openers:
            marks = formats.compile_any(row.opens).finditer(self.text, start)
            self.openers[row.family] = [mark.start() for mark in marks if self._is_meant(*mark.span())]
        places = self.openers[row.family]
        place = bisect_left(places, start)
        return place < len(places) and places[place] < end

    def _find_reasoning_end(self, row: Thought, at: int) -> re.Match[str] | None:
        known = self.closers.get(row.family)
        if row.family not in self.closers or (known is not None and known.start() < at):
            closers = compile_ends(row).finditer(self.text, at)
            self.closers[row.family] = next((one for one in closers if ends_reasoning(self.text, *one.span())), None)
        return self.closers[row.family]

    def end_reasoning(self, closer: Delimiter) -> None:
        """Begin anew behind the end of reasoning: where nothing has opened it, all before it was only thought."""
        if not self.is_used(closer):
            return
        within = bool(self.malformed) and formats.has_only_delimiters(self.text[self.kept : closer.start][:_LOOK_CHARS])
        if within and envelope.is_closer_next(self.text, closer.end):
            return  # a word in a call that can't be read
        if self.has_thought:
            self.take_apart(closer.start, closer.end)
        else:
            self.calls, self.malformed, self.kept, self.given = [], [], 0, None
            self.prose.forget()
            self.take_apart(0, closer.end, 0, closer.start)
        self.has_thought, self.begins = True, closer.end

    def is_used(self, mark: Delimiter) -> bool:
        """Return whether a mark of reasoning or of the answer that no opener stands before is used."""
        in_block = is_in_code_block(self.fences, self.base + mark.start)
        return not in_block and not self._is_read(mark.start) and is_used(self.text, mark.start, mark.end)

    def read_body(self, name: str, body: str, raw: str, format: str) -> None:
        """Read a call whose name is known and whose arguments are all of this text."""
        value = read_arguments(body)
        if not isinstance(value, str) and RepairKind.EXTRA_TEXT in value.repair_kinds:
            behind = holds_argument(body.rpartition("}")[2], self.box.find(name), value.value)
            value = "an argument stands behind the others" if behind else value
        if isinstance(value, str) or not name:
            reason = value if isinstance(value, str) else "a call without a name"
            self.malformed.append(Malformed(raw=raw, reason=reason, format=format))
        else:
            call = RawCall(name=name, arguments=value.value, format=format)
            self.keep_calls([record_repairs(call, list(value.repair_kinds))], raw)

    def report_stray(self, closer: Delimiter) -> None:
        """Settle a closer that no call stands before: report what was meant to be a call, or one that ended within a
        value; else drop the closer and those of its parts, unless prose talks of it."""
        if formats.SPEECH_END.fullmatch(self.text, closer.start, closer.end):
            return
        blank = self.text.rfind("\n\n", self.kept, closer.start)
        start = min(max(self.kept, self.begins, blank + 2 if blank >= 0 else 0), closer.start)
        near = self.text[max(start, closer.start - envelope.NEAR_CHARS) : closer.start]
        if closer.start >= self.closed:
            self.closed = envelope.skip_closers(self.text, closer.start)[0]
        if envelope.looks_like_calling(near, self.box):
            self.report_malformed(start, closer.end, "a closing tag, and no call that can be read before it", "closer")
        elif envelope.is_closer_lost(self.text, start, closer.start, row := self.closed):
            parts = _LOST_PARTS.search(self.text, max(self.kept, closer.start - _LOOK_CHARS), closer.start)
            if parts and self.calls and self.text[self.kept : parts.start()].strip():
                self.report_malformed(self.kept, row, "the closing tags of a call that ended within a value", "closer")
            else:
                self.drop(parts.start() if parts else closer.start, row)

    def is_used_as_closer(self, start: int, at: int) -> bool:
        """Return whether an opener was written for a closer: right behind a call, and the end of all."""
        behind_call = bool(self.calls) and skip_space(self.text, self.kept) == start
        return behind_call and skip_space(self.text, at) == len(self.text)

    def follows_paragraph(self, start: int) -> bool:
        """Return whether Python that other text follows stands before this place and the row that it ends."""
        place = bisect_left(self.apart, self._find_row(start))
        return place > 0 and self.apart[place - 1] >= self.kept and not self._follows_shown(start)

    def begins_line(self, start: int) -> bool:
        """Return whether nothing but white space, or a call, stands before this place in its line."""
        least = max(self.kept, self.row.end, start - _LOOK_CHARS)
        line = max(self.text.rfind("\n", least, start) + 1, least)
        return not self.text[line:start].strip()

    def report_own_result(self, start: int) -> None:
        """Report a tool's result that begins here, unless it is announced as what one looks like."""
        result = GIVEN_RESULT.match(self.text, start) if self.box.tools and self.begins_line(start) else None
        if result is None:
            return
        self.undecided = self.undecided or not self.text[result.end() :].strip(" \t")
        added = result[0][1:-1].lower() in HARNESS_TAGS
        if added and not (self.leads(start) and _LINE_ENDS.match(self.text, result.end())):
            return  # such an element is told of; whoever goes on as an agent begins with it
        before = self.text[max(self.begins, start - _SHOWN_CHARS) : start]
        shown = _INDENTED.search(before) or is_block_quoted(self.text, self.begins, start, whole=self.whole)
        if not shown and not before.rstrip().endswith(":"):
            self.report_malformed(start, len(self.text), _OTHERS_WORDS if added else _OWN_RESULT, "result")

    def is_behind(self, words: re.Pattern[str], start: int) -> bool:
        return words.search(self.text, max(self.begins, start - _SHOWN_CHARS), start) is not None

    def leads(self, start: int) -> bool:
        """Return whether nothing but reasoning and a fence stands before this place."""
        near = start - self.begins <= FENCE_CHARS_MAX
        return near and not envelope.FENCE_LINE.sub("", self.text[self.begins : start]).strip()
