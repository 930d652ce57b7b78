"""Tool calls that a model writes into its text, and what to do when it writes the same one again and again.

The table of call formats (`Format.compared`) says how calls begin and end. A call ends with a closer of its own row, or
before its next opener, and is compared by what it means. Two equal calls in one answer may be a slip; the third is a
loop, since within one answer no result can have come between, unless the user orders as many.

Invariants: the outcome depends on the text alone, not on how it was cut. At most `CALL_CHARS` of text are held (a
longer call is not compared), and `DISTINCT_MAX` calls remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from reliability.loops.comparison.findings import Kind, Loop, Stage, canonical, digest, summary
from reliability.tools.format_row import Format
from reliability.tools.formats import CALL_FORMATS

#: The rows whose calls are compared within an answer.
ROWS = [row for row in CALL_FORMATS if row.compared]
_NAME_CHARS = 49
_NAME = r"[A-Za-z0-9_][\w.:-]{0,48}"
_SIGNS = ("<", "&lt;", r"\[", r"\]", "⏺", "✿")
#: A sign and what stands behind it in every opener.
_SIGN = re.compile(r"<(?=[\w|｜]| [|｜])|\[(?=[TACtac])|\](?=<)|⏺|✿|&(?=lt;)")
_NAME_BEHIND = re.compile(r"[\w.:-]{1,49}\Z")
_WORD = re.compile(r"[A-Za-z=/> -]+")
REPEATS = 3
_KEPT = REPEATS - 1
CALL_CHARS = 32_768
DISTINCT_MAX = 64
DELIMITER_CHARS = 96  # no delimiter of the table is longer
_UNNAMED = re.compile(r"⏺(?!\s*[\w.-]+\s*[:(])")


def _compile(openers: list[tuple[int, str]]) -> re.Pattern[str]:
    """Compile a pattern whose groups tell the row: `r3_0`."""
    groups = (f"(?P<r{at}_{number}>{opener})" for number, (at, opener) in enumerate(openers))
    return re.compile("|".join(groups) or r"(?!)", re.IGNORECASE)


_OPENERS = [(at, opener) for at, row in enumerate(ROWS) for opener in row.compared]
_NAMED = [each for each in _OPENERS if each[1].startswith(_NAME)]
_SIGNED = [each for each in _OPENERS if each[1].startswith(_SIGNS)]
_WORDED = [each for each in _OPENERS if each not in _NAMED and each not in _SIGNED]
_AT_SIGN, _AT_NAME, _AT_WORD = _compile(_SIGNED), _compile(_NAMED), _compile(_WORDED)
_BEHIND_NAME = _compile([(at, opener.removeprefix(_NAME)) for at, opener in _NAMED])


def _read_head(opener: str) -> str:
    """Return the letters that a worded opener begins with; every one has some."""
    head = _WORD.match(opener)
    if head is None:
        raise ValueError(f"the table has an opener that begins neither with a sign nor with a word: {opener}")
    return head[0].lower()


_HEADS = tuple(sorted({_read_head(opener) for _, opener in _WORDED}))
_HEAD_CHARS = max(map(len, _HEADS))


def _find_opener(text: str, at: int) -> re.Match[str] | None:
    signed = _find_at_sign(text, at)
    worded = _find_at_word(text, at, len(text) if signed is None else signed.start())
    found = [match for match in (signed, worded) if match is not None]
    return min(found, key=lambda match: (match.start(), _row_of(match)), default=None)


def _row_of(opener: re.Match[str]) -> int:
    """Return the place in `ROWS` of the row that an opener is of."""
    return int((opener.lastgroup or "r0_0")[1:].partition("_")[0])


def _find_at_sign(text: str, at: int) -> re.Match[str] | None:
    for sign in _SIGN.finditer(text, at):
        place = sign.start()
        if _BEHIND_NAME.match(text, place) and (name := _find_name(text, at, place)) is not None:
            return name
        if opener := _AT_SIGN.match(text, place):
            return opener
    return None


def _find_name(text: str, at: int, end: int) -> re.Match[str] | None:
    name = _NAME_BEHIND.search(text[max(at, end - _NAME_CHARS) : end])
    if name is None:
        return None
    matches = (_AT_NAME.match(text, end - size) for size in range(len(name[0]), 0, -1))
    return next((match for match in matches if match is not None), None)


def _find_at_word(text: str, at: int, last: int) -> re.Match[str] | None:
    """Find the first opener that begins with a word, not behind `last`."""
    part = text[at : last + _HEAD_CHARS]
    lowered = part.lower()
    if len(lowered) != len(part):  # some letters are two in lower case
        lowered = part
    places = {head: place for head in _HEADS if (place := lowered.find(head)) >= 0}
    while places:
        head = min(places, key=places.__getitem__)
        place = places.pop(head)
        if at + place > last:
            return None
        if opener := _AT_WORD.match(text, at + place):
            return opener
        if (following := lowered.find(head, place + 1)) >= 0:
            places[head] = following
    return None


def _build_end_pattern(row: Format) -> str:
    """Build the pattern of what ends a call: a closer, or before the next opener or the line's end."""
    closers, openers = "|".join(row.closes), "|".join(row.compared)
    if row.reader is None:
        return f"(?={closers})(?P<next>x)?"
    return "|".join(filter(None, (closers, f"(?=(?P<next>{openers}))")))


_ENDS = [re.compile(_build_end_pattern(row), re.IGNORECASE) for row in ROWS]


class Copies(NamedTuple):
    """How many equal calls of an answer are a loop: `most`, but `more` where a call names one of `tools`."""

    most: int = REPEATS
    more: int = REPEATS
    tools: tuple[str, ...] = ()

    def limit(self, call: str) -> int:
        """Return how many calls are a loop that are written so, or whose tool is called so."""
        return self.more if any(tool in call for tool in self.tools) else self.most


FEW_COPIES = Copies()


@dataclass(frozen=True, slots=True)
class Written:
    """What one answer has written so far. `counts`: how often each call came, and where its newest copy ended.
    `copies`: how many equal calls are a loop."""

    held: str = ""
    searched: int = 0
    offset: int = 0
    counts: tuple[tuple[str, tuple[int, int]], ...] = ()
    loop: Loop | None = None
    copies: Copies = FEW_COPIES


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    key: str
    body: str
    inner: str


def feed(state: Written, text: str, final: bool = False) -> Written:
    """Read on. The outcome depends on the text alone, not on how it was cut."""
    held, base = state.held + text, state.offset
    at, searched, counts, loop = 0, state.searched, dict(state.counts), state.loop
    while loop is None:
        found = _find_next(held, at, searched, final)
        if isinstance(found, tuple):
            at, searched = found
            break
        loop = _count_copy(counts, found, base, state.copies)
        at, searched = found.end, 0
    rest = held[at:]
    return Written(rest, max(0, searched - at), base + at, tuple(counts.items()), loop, state.copies)


def _count_copy(counts: dict[str, tuple[int, int]], span: _Span, base: int, copies: Copies) -> Loop | None:
    if _UNNAMED.match(span.body):
        return None
    times, kept = counts.get(span.key, (0, 0))
    times += 1
    if times >= copies.limit(span.body):
        said, rule = summary(span.body), Kind.ANSWER_CALLS
        return Loop(kind=rule, stage=Stage.BREAK, repetitions=times, evidence=said, key=span.key, keep=kept)
    counts[span.key] = (times, base + span.end)
    while len(counts) > DISTINCT_MAX:
        del counts[next(iter(counts))]
    return None


def _find_next(text: str, at: int, searched: int, final: bool) -> _Span | tuple[int, int]:
    """Find the next complete call from `at` on; else return (what may be dropped, what has been searched)."""
    outer = None
    while True:
        opener = _find_opener(text, at)
        if opener is None:
            return (len(text) if final else max(at, len(text) - DELIMITER_CHARS + 1)), 0
        start, body_at = opener.span()
        ending = _ENDS[_row_of(opener)].search(text, max(body_at, searched - DELIMITER_CHARS))
        body_end, end = ending.span() if ending else (len(text), len(text))
        if body_end - start > CALL_CHARS:
            at, searched = body_at, 0
        elif ending is None and not final:
            return start, len(text)
        elif ending is not None and _is_outer(opener, ending):
            at, searched, outer = end, 0, start if outer is None else outer
        else:
            inner = text[body_at:body_end]
            key = digest(" ".join(canonical(inner).split()))
            return _Span(start if outer is None else outer, end, key, text[start:end], inner)


def _is_outer(opener: re.Match[str], ending: re.Match[str]) -> bool:
    """Return whether this is an opener with nothing in it but another one: `<tool_calls><tool_call>`."""
    inner = ending["next"]
    return bool(inner) and inner != opener[0] and not opener.string[opener.end() : ending.start()].strip()


def _walk_calls(text: str) -> Iterator[_Span]:
    at = 0
    while isinstance(span := _find_next(text, at, 0, True), _Span):
        if not _UNNAMED.match(span.body):
            yield span
        at = span.end


def find_bodies(text: str) -> list[str]:
    """Find the bodies of the calls in a text that has ended, in their order."""
    return [span.inner for span in _walk_calls(text)]


def cut_before_repeats(text: str, kept: int = _KEPT) -> str:
    """Return the text up to the first copy of a call behind the `kept` ones."""
    counts = Counter[str]()
    for span in _walk_calls(text):
        counts[span.key] += 1
        if counts[span.key] > kept:
            return text[: span.start]
    return text


def drop_repeats(text: str) -> str:
    """Return the text without the third and every further copy of a call, complete or broken off; all else stays."""
    spans = list(_walk_calls(text))
    counts = Counter[str]()
    dropped: list[_Span] = []
    for span in spans:
        counts[span.key] += 1
        if counts[span.key] > _KEPT:
            dropped.append(span)
    twice = {span.key: span.body for span in spans if counts[span.key] >= _KEPT}
    dropped += _find_broken_off(text, spans, set(dropped), list(twice.values()))
    shown, pieces = 0, []
    for span in sorted(dropped, key=lambda span: span.start):
        pieces.append(text[shown : span.start].rstrip())
        shown = span.end
    return "".join([*pieces, text[shown:]])


def _find_broken_off(text: str, spans: list[_Span], dropped: set[_Span], twice: list[str]) -> list[_Span]:
    """Find the calls at the very end that are the beginning of a repeated one: generation was aborted there."""
    found: list[_Span] = []
    end = len(text)
    for span in reversed(spans):
        if text[span.end : end].strip():
            break
        if span not in dropped:
            if not any(len(span.body) < len(body) and body.startswith(span.body) for body in twice):
                break
            found.append(span)
        end = span.start
    return found
