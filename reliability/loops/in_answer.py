"""Repetition inside one answer, while it decodes.

    rule         finds
    CYCLE        the tail repeats a unit: in prose six times and for _SPAN characters (a period of up to
                 _SHORT_PERIOD_MAX at once, one of up to 4,000 in strides, copies that differ a little by
                 `long_cycles`); or the last UNITS_KEPT sentences hold only a few different ones
    WHITESPACE   WHITE_CHARS of nothing but white space; _PADDING_CHARS where it may be the content of a call
    ANSWER_CALLS the same call written three times, or once more than the user orders (see `written`), where the request
                 declares tools

Code fences, tables, rows of cells, lists, quotes, lines of code and what is mostly digits repeat by nature: there it
takes twenty copies and _STRUCTURED_SPAN characters. In a call that is written into the text the limits are those of
`is_runaway_argument`.

What ends by itself is honest: a scan that is `patient` lets an answer write `PATIENCE_BYTES` more, about 2,000 tokens,
from where it began to repeat itself (`Doubt`).

Invariants: the text is read in blocks of `BLOCK` characters at the same places however it was cut, so the outcome
depends on the text alone. A loop stands once it is found. What is kept of the text is bounded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reliability.loops import long_cycles
from reliability.loops.comparison.findings import Kind, Loop, build_answer_loop
from reliability.loops.long_cycles import HEAD_CHARS, STRIDE, VARIED_TAIL_CHARS, LongTail
from reliability.loops.written import FEW_COPIES, Copies, Written, drop_repeats, feed

PATIENCE_BYTES = 8_192
LEFT_CHARS = 2_048  # a repetition that isn't found again for so many characters has been left
BLOCK = 32
_PASSES_MAX = 16  # a cut may bring the end of one copy to light: then it is cut once more
_PROBE = 24
_TRIES = 8
_SHORT_PERIOD_MAX = 500
_REPETITIONS, _SPAN = 6, 400
_STRUCTURED_REPETITIONS, _STRUCTURED_SPAN = 20, 3_000
WHITE_CHARS, _PADDING_CHARS = 256, 3_000
_STRUCTURAL = ("", ",", ":", "{", "[", "\n")
LINE_CHARS = 600
TAIL_CHARS = _REPETITIONS * _SHORT_PERIOD_MAX + LINE_CHARS + BLOCK
UNITS_KEPT, _UNITS_DISTINCT, _UNIT_LETTERS, _UNIT_CHARS = 60, 8, 10, 120

_STRUCTURE = re.compile(
    r"""^[ \t]*(?:[-*+•◦▪][ \t]|\d{1,9}[.):][ \t]|[#>|{}\[\]─-╿]|[-=_*~]{3}|"[\w -]{1,60}"\s*:"""
    # a setting, a row of cells, a statement that is a call, a line that is indented as code is
    r"""|[a-z_][\w.-]{0,40}(?: ?= ?|: )\S{1,80}(?: \S{1,40}){0,2}$"""
    r"""|[^\s,;]{1,60}[,;][^\s,;]{1,60}(?:[,;][^\s,;]{0,60}){0,60}$|\w[\w.]{0,60}\([^()\n]{0,80}\);?$)"""
    r"""|^(?:[ ]{4}|\t)[ \t]*\S""",
    re.MULTILINE,
)
#: Signs that models write again and again as they write words, and no table is drawn with.
_EMOJI = re.compile("[\U0001f300-\U0001f5ff\U0001f600-\U0001faff]")
_FENCE = re.compile(r"[ \t>]*(?:```|~~~)")
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+")


class Doubt(NamedTuple):
    """The repetition that an answer is in. `loop`: how it was found; `at`: after how many characters it was found last;
    `spent`: the bytes that it went on for since, of `most`; `varied`: its copies differ."""

    most: int = 0
    loop: Loop | None = None
    at: int = 0
    spent: int = 0
    varied: bool = False

    @property
    def over(self) -> bool:
        return self.loop is not None and self.spent >= self.most

    def add(self, loop: Loop, at: int, newest: str, *, varied: bool = False) -> Doubt:
        """Take the next finding into account, `at` so many characters; `newest` are the last of them. Calls that are
        written again are complete, so nothing is to be waited for."""
        if loop.kind is Kind.ANSWER_CALLS:
            return Doubt(self.most, loop, at, self.most)
        if not self.stands(at):
            return Doubt(self.most, loop, at, self.spent, varied)
        return self.go_on(at, newest)

    def go_on(self, at: int, newest: str) -> Doubt:
        """Count what was written up to `at` as repetition."""
        newest_bytes = len(newest.encode("utf-8", "replace"))
        return self._replace(at=at, spent=self.spent + (at - self.at) * newest_bytes // max(1, len(newest)))

    def stands(self, length: int) -> bool:
        """Return whether a text of so many characters ends in the repetition."""
        return self.loop is not None and (self.varied or length - self.at <= LEFT_CHARS)


class _SeenAnswer(NamedTuple):
    """What is known of the blocks so far. `line` is what is still open of a line, `head` how it begins. `called`: the
    text is inside of a call; from `plain_from` on it stands in no call and no fence. `far` has the end of the text up
    to the last stride; `written` is None where calls in the text are not looked for."""

    length: int = 0
    white: int = 0
    tail: str = ""
    line: str = ""
    fenced: bool = False
    units: tuple[str, ...] = ()
    head: str = ""
    called: bool = False
    plain_from: int = 0
    far: LongTail = LongTail()
    written: Written | None = Written()
    loop: Loop | None = None


class Scan(NamedTuple):
    """The state of one answer: what was seen, the text that waits for its block to fill, and the repetition so far."""

    fill: str = ""
    seen: _SeenAnswer = _SeenAnswer()
    doubt: Doubt = Doubt()

    @property
    def doubtful(self) -> Loop | None:
        """The repetition that the text ends in, and for which it isn't stopped yet."""
        return self.doubt.loop if self.doubt.stands(self.seen.length + len(self.fill)) else None


def open_scan(*, calls: bool, patient: bool = False, copies: Copies = FEW_COPIES) -> Scan:
    """Begin the scan of a new answer. `calls`: whether what looks like a call may be one, and `copies`: how many equal
    ones are a loop; `patient`: whether it may repeat itself for a while."""
    seen = _SeenAnswer(written=Written(copies=copies)) if calls else _SeenAnswer(written=None)
    return Scan(seen=seen, doubt=Doubt(PATIENCE_BYTES if patient else 0))


def step(scan: Scan, chunk: str) -> tuple[Scan, Loop | None]:
    """Read the next chunk; return the loop as soon as there is one to be stopped for, and from then on."""
    seen, text, doubt = scan.seen, scan.fill + chunk, scan.doubt
    if seen.loop is not None:
        return Scan("", seen, doubt), seen.loop
    if len(text) < BLOCK:
        return Scan(text, seen, doubt), None
    end = len(text) - len(text) % BLOCK
    blocks = [text[at : at + BLOCK] for at in range(0, end, BLOCK)]
    clean = None if doubt.stands(seen.length) else _scan_clean(seen, blocks, text[:end])
    if clean is not None:
        return Scan(text[end:], clean, doubt), None
    for block in blocks:
        seen = _scan_block(seen, block, _feed_written(seen, block))
        if seen.loop is not None:
            doubt = doubt.add(seen.loop, seen.length, block, varied=_is_varied(seen, seen.loop))
        elif doubt.varied:
            doubt = doubt.go_on(seen.length, block)
        if doubt.over:
            return Scan("", seen._replace(loop=doubt.loop), doubt), doubt.loop
        seen = seen._replace(loop=None)
    return Scan(text[end:], seen, doubt), None


def _is_varied(seen: _SeenAnswer, loop: Loop) -> bool:
    """Return whether the copies of this loop differ, or come in changing order."""
    if loop.kind is not Kind.CYCLE or loop.period == seen.far.period:
        return False
    return seen.tail[-2 * loop.period : -loop.period] != seen.tail[-loop.period :]


def _scan_clean(seen: _SeenAnswer, blocks: list[str], text: str) -> _SeenAnswer | None:
    """Return what is known after these blocks, whose calls are looked for at once; None where one has a loop."""
    written = _feed_written(seen, text)
    for block in blocks:
        seen = _scan_block(seen, block, written)
        if seen.loop is not None:
            return None
    return seen


def finish(scan: Scan) -> tuple[Scan, Loop | None]:
    """Read what is left when the answer has ended."""
    fill, seen, doubt = scan
    if seen.loop is None:
        seen = _scan_block(seen, fill, _feed_written(seen, fill, final=True), final=True)
    return Scan("", seen, doubt), seen.loop


def _feed_written(seen: _SeenAnswer, text: str, *, final: bool = False) -> Written | None:
    return None if seen.written is None else feed(seen.written, text, final)


def truncate(text: str) -> str:
    """Return the text with two copies of whatever it repeats; a text without repetition is returned as it is."""
    for _ in range(_PASSES_MAX):
        shorter = _cut(drop_repeats(text))
        if shorter == text:
            break
        text = shorter
    return text


def _cut(text: str) -> str:
    _, loop = finish(step(Scan(), text)[0])
    return text if loop is None or loop.keep is None else text[: loop.keep]


def _scan_block(seen: _SeenAnswer, block: str, written: Written | None, final: bool = False) -> _SeenAnswer:
    tail = (seen.tail + block)[-TAIL_CHARS:]
    length = seen.length + len(block)
    white, run = _count_white(seen.white, block)
    line, fenced, units = _read_lines(seen, block, final)
    head = seen.head if len(seen.head) >= HEAD_CHARS else seen.head + block
    if "\n" in block:
        head = block.rpartition("\n")[2]
    called = seen.written is not None and long_cycles.update_place(seen.called, tail, len(block))
    new = length - seen.far.length
    far = long_cycles.extend(seen.far, tail[-new:], VARIED_TAIL_CHARS) if new == STRIDE or (final and new) else seen.far
    fence, inside = seen.fenced or fenced, seen.called or called
    plain_from = length if fence or inside else seen.plain_from
    if not inside and written is not None and (run >= WHITE_CHARS or far is not seen.far):
        inside = long_cycles.begins_call(head)
    loop = None if written is None else written.loop
    if loop is None and run >= WHITE_CHARS and not (inside and _is_padding(tail, len(block), seen.white, run)):
        loop = build_answer_loop(Kind.WHITESPACE, run, 1, "", keep=length - len(block) - seen.white)
    if loop is None and not inside:
        loop = _find_short_cycle(tail, fence, head, length)
        loop = _find_chant(units) if loop is None and units is not seen.units else loop
        loop = None if loop is not None and written is not None and long_cycles.begins_call(head) else loop
    if loop is None and far is not seen.far:
        if not inside:
            loop = _find_long_cycle(far, fence, length - plain_from)
        elif long_cycles.is_runaway_argument(far):
            loop = _build_streak_cycle(far)
    return _SeenAnswer(length, white, tail, line, fenced, units, head, called, plain_from, far, written, loop)


def _count_white(before: int, block: str) -> tuple[int, int]:
    """Return (the run at the block's end, the run that reaches into the block from before)."""
    if not block or block.isspace():
        return before + len(block), before + len(block)
    return len(block) - len(block.rstrip()), before + len(block) - len(block.lstrip())


def _is_padding(tail: str, new: int, white: int, run: int) -> bool:
    """Return whether white space in a call may be content: on one line, and not where a value must follow."""
    at = len(tail) - new - white
    before = tail[max(0, at - 1) : max(0, at)]
    return run < _PADDING_CHARS and before not in _STRUCTURAL and "\n" not in tail[max(0, at) : at + run]


def _read_lines(seen: _SeenAnswer, block: str, final: bool) -> tuple[str, bool, tuple[str, ...]]:
    """Read complete lines: fences open and close, sentences of prose are remembered."""
    *lines, line = (seen.line + block).split("\n")
    if len(line) > LINE_CHARS or final:
        lines, line = [*lines, line], ""
    fenced, units = seen.fenced, seen.units
    for complete in lines:
        if _FENCE.match(complete):
            fenced = not fenced
        elif not fenced and not seen.called and not _STRUCTURE.match(complete):
            units = (*units, *_split_sentences(complete))[-UNITS_KEPT:]
    return line, fenced, units


def _split_sentences(line: str) -> list[str]:
    pieces = [piece.strip().lower()[:_UNIT_CHARS] for piece in _SENTENCE.split(line)]
    return [piece for piece in pieces if sum(map(str.isalpha, piece)) >= _UNIT_LETTERS]


def _find_chant(units: tuple[str, ...]) -> Loop | None:
    if len(units) < UNITS_KEPT or len(set(units)) > _UNITS_DISTINCT:
        return None
    return build_answer_loop(Kind.CYCLE, UNITS_KEPT // len(set(units)), len(set(units)), units[-1])


def _find_short_cycle(tail: str, fenced: bool, head: str, length: int) -> Loop | None:
    """Find the smallest unit that prose repeats often enough. `head`: how the open line begins."""
    size = len(tail)
    if size < _SPAN:
        return None
    probe, lowest, end = tail[-_PROBE:], max(0, size - _SHORT_PERIOD_MAX - _PROBE), size - 1
    for _ in range(_TRIES):
        at = tail.rfind(probe, lowest, end)
        if at < 0:
            return None
        period = size - _PROBE - at
        span = max(_SPAN, _REPETITIONS * period)
        if size >= span and tail[period - span :] == tail[-span:-period]:
            if fenced or _is_structure(tail, span, head):
                return None
            start = length - period - long_cycles.count_repeated(tail, period)
            count, keep = (length - start) // period, start + 2 * period
            return build_answer_loop(Kind.CYCLE, count, period, tail[-period:], keep=keep)
        end = at + _PROBE - 1
    return None


def _is_structure(tail: str, span: int, head: str) -> bool:
    """Return whether the end of the text is structure by one of its lines, or by its signs."""
    unit, before = tail[-span:], tail[:-span].rsplit("\n", 1)[-1]
    letters, signs = _count_letters(unit), len(unit) - sum(map(str.isspace, unit))
    return 2 * letters < signs or _STRUCTURE.search(before + unit) is not None or _STRUCTURE.match(head) is not None


def _find_long_cycle(far: LongTail, fenced: bool, plain: int) -> Loop | None:
    """Find a long period, structure that goes on and on, and copies that vary among the last `plain` characters."""
    if far.repetitions >= _REPETITIONS:
        free = far.period > _SHORT_PERIOD_MAX and not fenced and not _is_structured(far.unit)
        enough = far.repetitions >= _STRUCTURED_REPETITIONS and far.span >= _STRUCTURED_SPAN
        return _build_streak_cycle(far) if enough or free else None
    varied = long_cycles.find_varied(far, plain)
    if varied is None or _is_structured(varied.unit):
        return None
    return build_answer_loop(Kind.CYCLE, varied.repetitions, varied.period, varied.unit, keep=varied.keep)


def _build_streak_cycle(far: LongTail) -> Loop:
    return build_answer_loop(Kind.CYCLE, far.repetitions, far.period, far.unit, keep=far.start + 2 * far.period)


def _is_structured(unit: str) -> bool:
    lines = unit.splitlines()
    chars = sum(len(line) for line in lines if _STRUCTURE.match(line))
    return 2 * chars >= len(unit) or 2 * _count_letters(unit) < len(unit) - sum(map(str.isspace, unit))


def _count_letters(unit: str) -> int:
    return sum(map(str.isalpha, unit)) + len(_EMOJI.findall(unit))
