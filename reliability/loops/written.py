"""Tool calls that a model writes into its text, and what to do when it writes the same one again and again.

Four formats are seen: `[TOOL_REQUEST]…[END_TOOL_REQUEST]`, Harmony's `<|channel|>commentary to=…`,
`<tool_call>…` (closed or not) and `⏺ Name: text` to the end of its line; the same mark before a line that names
nothing is a line of progress. A call is compared by what it means (see `canonical`), not by its spacing. Two
equal calls in one answer may be a slip; the third convicts, wherever it stands, since within one answer no
result can have come between. The same holds for native calls: `repeated_calls`.

`feed` is incremental: `Written.held` is the text that may still become a call, at most `CALL_CHARS`; a longer
call is not compared. `DISTINCT_MAX` calls are remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reliability.loops.canonical import call_key, canonical, digest, summary
from reliability.loops.findings import Call, Kind, Loop, Stage

__all__ = ["REPEATS", "Written", "feed", "repeated_calls", "without_repeats"]

REPEATS = 3
KEPT = REPEATS - 1
CALL_CHARS = 32_768
DISTINCT_MAX = 64

_HARMONY = (("<|call|>", "<|end|>", "<|return|>"), ("<|start|>", "<|channel|>"))
#: opener → what ends the call. An ending that opens the next thing is left in the text.
_FORMATS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "[TOOL_REQUEST]": (("[END_TOOL_REQUEST]",), ("[TOOL_REQUEST]",)),
    "<tool_call>": (("</tool_call>",), ("<tool_call>",)),
    "<|start|>assistant<|channel|>commentary to=": _HARMONY,
    "<|channel|>commentary to=": _HARMONY,
    "⏺": ((), ("\n",)),
}
_UNNAMED = re.compile(r"⏺(?!\s*[\w.-]+\s*[:(])")
_OPENER = re.compile("|".join(re.escape(opener) for opener in _FORMATS))
_OPENER_CHARS = max(map(len, _FORMATS))
_ENDING_CHARS = max(len(ending) for pair in _FORMATS.values() for side in pair for ending in side)


@dataclass(frozen=True, slots=True)
class Written:
    """What one answer has written so far. `keep` is where its second copy of the repeated call ended."""

    held: str = ""
    searched: int = 0
    offset: int = 0
    counts: tuple[tuple[str, int, int], ...] = ()
    loop: Loop | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    key: str
    body: str


def feed(state: Written, text: str, final: bool = False) -> Written:
    """Reads on. The outcome depends on the text alone, not on how it was cut."""
    held, base = state.held + text, state.offset
    at, searched, counts, loop = 0, state.searched, dict_of(state.counts), state.loop
    while loop is None:
        found = _next(held, at, searched, final)
        if isinstance(found, tuple):
            at, searched = found
            break
        loop = _count(counts, found, base)
        at, searched = found.end, 0
    rest = held[at:]
    return Written(rest, max(0, searched - at), base + at, tuple((k, *v) for k, v in counts.items()), loop)


def dict_of(counts: tuple[tuple[str, int, int], ...]) -> dict[str, tuple[int, int]]:
    """The counts by key: how often, and where the newest copy ended."""
    return {key: (times, end) for key, times, end in counts}


def _count(counts: dict[str, tuple[int, int]], span: _Span, base: int) -> Loop | None:
    if _UNNAMED.match(span.body):
        return None
    times, kept = counts.get(span.key, (0, 0))
    times += 1
    if times >= REPEATS:
        return _loop(times, span.body, span.key, kept)
    counts[span.key] = (times, base + span.end)
    while len(counts) > DISTINCT_MAX:
        del counts[next(iter(counts))]
    return None


def _loop(times: int, body: str, key: str, keep: int | None) -> Loop:
    return Loop(
        kind=Kind.ANSWER_CALLS,
        stage=Stage.BREAK,
        laps=times,
        evidence=summary(body),
        key=key,
        keep=keep,
    )


def _next(text: str, at: int, searched: int, final: bool) -> _Span | tuple[int, int]:
    """The next whole call from `at` on; else (what may be dropped, what has been searched)."""
    while True:
        match = _OPENER.search(text, at)
        if match is None:
            return (len(text) if final else max(at, len(text) - _OPENER_CHARS + 1)), 0
        start, body_at = match.span()
        bounds = _ending(text, match.group(), max(body_at, searched - _ENDING_CHARS))
        if bounds is None and final:
            bounds = len(text), len(text)
        if (bounds[0] if bounds else len(text)) - start > CALL_CHARS:
            at, searched = body_at, 0
        elif bounds is None:
            return start, len(text)
        else:
            body = text[body_at : bounds[0]]
            return _Span(start, bounds[1], _key(body), text[start : bounds[1]])


def _ending(text: str, opener: str, at: int) -> tuple[int, int] | None:
    """(end of the body, end of the call) of the first ending."""
    closing, opening = _FORMATS[opener]
    found = [(i, i + len(ending)) for ending in closing if (i := text.find(ending, at)) >= 0]
    found += [(i, i) for ending in opening if (i := text.find(ending, at)) >= 0]
    return min(found, default=None)


def _key(body: str) -> str:
    return digest(" ".join(canonical(body).split()))


def without_repeats(text: str) -> str:
    """The text without the third and every further copy of a call, whole or broken off; all else stays."""
    spans: list[_Span] = []
    at = 0
    while isinstance(found := _next(text, at, 0, True), _Span):
        if not _UNNAMED.match(found.body):
            spans.append(found)
        at = found.end
    counts: Counter[str] = Counter()
    dropped: list[_Span] = []
    for span in spans:
        counts[span.key] += 1
        if counts[span.key] > KEPT:
            dropped.append(span)
    twice = {span.key: span.body for span in spans if counts[span.key] >= KEPT}
    return _without(
        text,
        sorted(
            [*dropped, *_broken_off(text, spans, set(dropped), list(twice.values()))],
            key=lambda span: span.start,
        ),
    )


def _broken_off(text: str, spans: list[_Span], dropped: set[_Span], twice: list[str]) -> list[_Span]:
    """The calls at the very end that are the beginning of a repeated one: generation was aborted there."""
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


def _without(text: str, dropped: list[_Span]) -> str:
    pieces: list[str] = []
    shown = 0
    for span in dropped:
        pieces.append(text[shown : span.start].rstrip())
        shown = span.end
    return "".join([*pieces, text[shown:]])


def repeated_calls(calls: Sequence[Call]) -> Loop | None:
    """The loop in one answer's own calls: the same call three times or more."""
    keys = [call_key(call) for call in calls]
    key, times = max(Counter(keys).items(), key=lambda item: item[1], default=("", 0))
    if times < REPEATS:
        return None
    call = calls[keys.index(key)]
    return replace(_loop(times, f"{call.name} {call.arguments}", digest(key), None), tool=call.name)
