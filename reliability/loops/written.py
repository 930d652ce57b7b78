"""Tool calls that a model writes into its text, and what to do when it writes the same one again and again.

The table of call formats (`Format.compared`) says how calls begin and end. A call ends with a closer of its own row, or
before its next opener, and is compared by what it means. Two equal calls in one answer may be a slip; the third is a
loop, since within one answer no result can have come between. `find_repeated_calls` says the same of native calls.

Invariants: the outcome depends on the text alone, not on how it was cut. At most `CALL_CHARS` of text are held (a
longer call is not compared), and `DISTINCT_MAX` calls remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reliability.loops.call_openers import ROWS, find_opener, row_of
from reliability.loops.comparison.canonical import call_key, canonical, digest, summary
from reliability.loops.comparison.findings import Kind, Loop, SeenCall, Stage
from reliability.tools.format_row import Format

REPEATS = 3
KEPT = REPEATS - 1
CALL_CHARS = 32_768
DISTINCT_MAX = 64


def _build_end_pattern(row: Format) -> str:
    """Build the pattern of what ends a call: a closer, or before the next opener of its row; before
    the line's end where nobody reads it."""
    closers, openers = "|".join(row.closes), "|".join(row.compared)
    if row.reader is None:
        return f"(?={closers})(?P<next>x)?"
    return "|".join(filter(None, (closers, f"(?=(?P<next>{openers}))")))


DELIMITER_CHARS = 96  # no delimiter of the table is longer
_ENDS = [re.compile(_build_end_pattern(row), re.IGNORECASE) for row in ROWS]
_UNNAMED = re.compile(r"⏺(?!\s*[\w.-]+\s*[:(])")


@dataclass(frozen=True, slots=True)
class Written:
    """What one answer has written so far. `counts`: how often each call came, and where its newest copy ended."""

    held: str = ""
    searched: int = 0
    offset: int = 0
    counts: tuple[tuple[str, tuple[int, int]], ...] = ()
    loop: Loop | None = None


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
        loop = _count_copy(counts, found, base)
        at, searched = found.end, 0
    rest = held[at:]
    return Written(rest, max(0, searched - at), base + at, tuple(counts.items()), loop)


def _count_copy(counts: dict[str, tuple[int, int]], span: _Span, base: int) -> Loop | None:
    if _UNNAMED.match(span.body):
        return None
    times, kept = counts.get(span.key, (0, 0))
    times += 1
    if times >= REPEATS:
        return _build_loop(times, span.body, span.key, kept)
    counts[span.key] = (times, base + span.end)
    while len(counts) > DISTINCT_MAX:
        del counts[next(iter(counts))]
    return None


def _build_loop(times: int, body: str, key: str, keep: int | None) -> Loop:
    evidence = summary(body)
    return Loop(kind=Kind.ANSWER_CALLS, stage=Stage.BREAK, repetitions=times, evidence=evidence, key=key, keep=keep)


def _find_next(text: str, at: int, searched: int, final: bool) -> _Span | tuple[int, int]:
    """Find the next complete call from `at` on; else return (what may be dropped, what has been searched)."""
    outer = None
    while True:
        opener = find_opener(text, at)
        if opener is None:
            return (len(text) if final else max(at, len(text) - DELIMITER_CHARS + 1)), 0
        start, body_at = opener.span()
        ending = _find_ending(text, opener, max(body_at, searched - DELIMITER_CHARS))
        body_end, end = ending.span() if ending else (len(text), len(text))
        if body_end - start > CALL_CHARS:
            at, searched = body_at, 0
        elif ending is None and not final:
            return start, len(text)
        elif ending is not None and _is_outer(opener, ending):
            at, searched, outer = end, 0, start if outer is None else outer
        else:
            inner = text[body_at:body_end]
            return _Span(start if outer is None else outer, end, _build_key(inner), text[start:end], inner)


def _find_ending(text: str, opener: re.Match[str], at: int) -> re.Match[str] | None:
    """Find the first ending of a call: the body ends where it begins, the call where it ends."""
    return _ENDS[row_of(opener)].search(text, at)


def _is_outer(opener: re.Match[str], ending: re.Match[str]) -> bool:
    """Return whether this is an opener with nothing in it but another one: `<tool_calls><tool_call>`."""
    inner = ending["next"]
    return bool(inner) and inner != opener[0] and not opener.string[opener.end() : ending.start()].strip()


def _build_key(body: str) -> str:
    return digest(" ".join(canonical(body).split()))


def _walk_calls(text: str) -> Iterator[_Span]:
    """Find the calls in a text that has ended, in their order."""
    at = 0
    while isinstance(span := _find_next(text, at, 0, True), _Span):
        if not _UNNAMED.match(span.body):
            yield span
        at = span.end


def find_bodies(text: str) -> list[str]:
    """Find the bodies of the calls in a text that has ended, in their order."""
    return [span.inner for span in _walk_calls(text)]


def cut_before_repeats(text: str) -> str:
    """Return the text up to the third copy of a call."""
    counts = Counter[str]()
    for span in _walk_calls(text):
        counts[span.key] += 1
        if counts[span.key] > KEPT:
            return text[: span.start]
    return text


def drop_repeats(text: str) -> str:
    """Return the text without the third and every further copy of a call, complete or broken off; all else stays."""
    spans = list(_walk_calls(text))
    counts = Counter[str]()
    dropped: list[_Span] = []
    for span in spans:
        counts[span.key] += 1
        if counts[span.key] > KEPT:
            dropped.append(span)
    twice = {span.key: span.body for span in spans if counts[span.key] >= KEPT}
    dropped += _find_broken_off(text, spans, set(dropped), list(twice.values()))
    return _cut_out(text, sorted(dropped, key=lambda span: span.start))


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


def _cut_out(text: str, dropped: list[_Span]) -> str:
    pieces: list[str] = []
    shown = 0
    for span in dropped:
        pieces.append(text[shown : span.start].rstrip())
        shown = span.end
    return "".join([*pieces, text[shown:]])


def find_repeated_calls(calls: Sequence[SeenCall]) -> Loop | None:
    """Find the loop in one answer's own calls: the same call three times or more."""
    keys = [call_key(call) for call in calls]
    key, times = max(Counter(keys).items(), key=lambda item: item[1], default=("", 0))
    if times < REPEATS:
        return None
    call = calls[keys.index(key)]
    return replace(_build_loop(times, f"{call.name} {call.arguments}", digest(key), None), tool=call.name)
