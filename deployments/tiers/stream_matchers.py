"""Turn text that arrives in pieces into the events of an answer: `Thoughts` ─▶ `CallSplit` ─▶ `StopCut`.

Each machine holds back the end of the text as long as it may be the beginning of a marker, so the events don't depend
on where the text was cut. A complete call becomes a `CallDelta`; all other text leaves unchanged, markers included.
Stop strings are looked for in the answer's text only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from reliability.answer.call_scan import CallScan, step_calls
from reliability.answer.thoughts import Thoughts
from reliability.loops.in_answer import PATIENCE_BYTES
from reliability.tools.format_reasoning import Thought
from reliability.types import CallDelta, Event, Logprobs, Prefilled, Reasoning, Refusal, Text


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model marks its tool calls. An empty `end` means: up to the end of the answer. `parse` returns the name of
    each call between two marks and the JSON text of its arguments; None where one is incomplete."""

    start: str
    end: str
    parse: Callable[[str], list[tuple[str, str]] | None]


def _find_partial_marker(text: str, marker: str) -> int:
    """Return where the longest end of `text` begins that may grow into `marker`, else the length of `text`."""
    at = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while at != -1:
        if marker.startswith(text[at:]):
            return at
        at = text.find(marker[0], at + 1)
    return len(text)


class StopCut:
    """Passes text on until a stop string is complete; then `found` is that string."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) != -1]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        keep = min((_find_partial_marker(text, stop) for stop in self._stops), default=len(text))
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """Return the rest: no more text follows directly."""
        rest, self._held = self._held, ""
        return rest


class CallSplit:
    """Takes complete tool calls out of the text. Text behind call number `calls_max` is dropped. With `distinct`, so is
    a call that was there already, and all behind it: under a grammar, a model can write nothing but calls. Nothing else
    sees an open call: so its repetition is looked for here too."""

    def __init__(self, form: CallFormat | None, *, calls_max: int | None = None, distinct: bool = False) -> None:
        self._form = form
        self._calls_max = calls_max
        self._seen: set[tuple[str, str]] | None = set() if distinct else None
        self._held = ""
        self._inside = False
        self._scan, self._scanned_chars = CallScan(patience=PATIENCE_BYTES), 0  # of the open call
        self.repeated = False
        self.calls = 0

    @property
    def full(self) -> bool:
        """Whether no further call may follow, so that there is nothing left to wait for."""
        return self.repeated or (self._calls_max is not None and self.calls >= self._calls_max)

    @property
    def runaway(self) -> bool:
        """Whether the open call repeats itself, and will not end."""
        return self._scan.loop is not None

    def feed(self, text: str) -> list[Event]:
        if self._form is None:
            return [Text(text)] if text else []
        self._held += text
        out: list[Event] = []
        while not self.full and (step := self._step(self._form)) is not None:
            self._scan, self._scanned_chars = CallScan(patience=PATIENCE_BYTES), 0
            out += step
        if self._inside:
            self._scan, _ = step_calls(self._scan, 0, "", self._held[self._scanned_chars :])
            self._scanned_chars = len(self._held)
        return out

    def finish(self, *, truncated: bool) -> list[Event]:
        """Return the rest. An open call is text, unless its format ends with the answer and that wasn't cut."""
        held, self._held = ("", "") if self.full else (self._held, "")
        if self._form is not None and self._inside:
            if not self._form.end and not truncated:
                return self._read_block(self._form, held, "")
            held = self._form.start + held
        return [Text(held)] if held else []

    def _step(self, form: CallFormat) -> list[Event] | None:
        if self._inside:
            body, end, rest = self._held.partition(form.end) if form.end else (self._held, "", "")
            if not end:
                return None
            self._inside, self._held = False, rest
            return self._read_block(form, body, end)
        at = self._held.find(form.start)
        keep = _find_partial_marker(self._held, form.start) if at == -1 else at
        text, self._held = self._held[:keep], self._held[keep:]
        self._inside = at != -1
        if self._inside:
            self._held = self._held[len(form.start) :]
        elif not text:
            return None
        return [Text(text)] if text else []

    def _read_block(self, form: CallFormat, body: str, end: str) -> list[Event]:
        found = form.parse(body)
        if not found:
            return [Text(form.start + body + end)]
        if self._seen is not None:
            new = {(name, json.dumps(json.loads(arguments), sort_keys=True)) for name, arguments in found}
            self.repeated = new <= self._seen
            self._seen |= new
            if self.repeated:
                return []
        out: list[Event] = []
        for name, arguments in found:  # more than allowed in one block is for the gate to judge: none is dropped here
            call_id = f"call_{secrets.token_hex(12)}"
            out.append(CallDelta(index=self.calls, id=call_id, name=name, arguments=arguments))
            self.calls += 1
        return out


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as they came, twice where they came twice."""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def strict_json_call(body: str) -> list[tuple[str, str]] | None:
    """Read `{"name": ..., "arguments": {...}}`, nothing else. The arguments keep the model's own spelling."""
    try:
        pairs = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_refuse).decode(body.strip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs) or sorted(key for key, _ in pairs) != ["arguments", "name"]:
        return None
    call = dict(pairs)
    if not isinstance(call["name"], str) or not call["name"] or not isinstance(call["arguments"], _Pairs):
        return None
    return [(call["name"], _find_arguments(body))]


def _find_arguments(body: str) -> str:
    """Return the text of the arguments: numbers keep their digits, strings their escapes."""
    decode = json.JSONDecoder().raw_decode
    at, key = body.index("{") + 1, ""
    while key != "arguments":
        key, at = decode(body, _skip(body, at))
        start = _skip(body, at)
        _, at = decode(body, start)
    return body[start:at]


def _skip(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip(" \t\r\n,:"))


class AnswerReader:
    """The three machines of one answer. `inside`: the prompt ends within reasoning of this row."""

    def __init__(
        self,
        *,
        stops: Iterable[str] = (),
        think: Thought | None = None,
        inside: Thought | None = None,
        calls: CallFormat | None = None,
        calls_max: int | None = None,
        distinct: bool = False,
    ) -> None:
        self.thoughts = Thoughts(own=think, inside=inside, begun=think is None and inside is None)
        self.call_split = CallSplit(calls, calls_max=calls_max, distinct=distinct)
        self.stop_cut = StopCut(stops)

    @property
    def done(self) -> bool:
        """Whether a stop string or the last allowed call is complete, or a call came again: generate no more."""
        return self.stop_cut.found is not None or self.call_split.full

    def feed(self, text: str) -> list[Event]:
        return self._split_calls(self.thoughts.feed(text))

    def finish(self, *, truncated: bool) -> list[Event]:
        """Return the events that were held back. `truncated`: the answer was cut at its token limit."""
        events = self._split_calls(self.thoughts.end())
        if self.stop_cut.found is not None:
            return events
        events += self._cut_at_stop(self.call_split.finish(truncated=truncated))
        return events + self._flush_stop()

    def _split_calls(self, pieces: list[Event]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            events += self._cut_at_stop(self.call_split.feed(piece.text)) if isinstance(piece, Text) else [piece]
        return events

    def _cut_at_stop(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if self.stop_cut.found is not None:
                break
            if not isinstance(event, Text):
                out += [*self._flush_stop(), event]
            elif text := self.stop_cut.feed(event.text):
                out.append(Text(text))
        return out

    def _flush_stop(self) -> list[Event]:
        rest = self.stop_cut.flush()
        return [Text(rest)] if rest else []


def merge_events(events: list[Event]) -> list[Event]:
    """Join neighbors of one kind, so that one read leaves as one piece of each kind."""
    if len(events) < 2:
        return events
    out: list[Event] = []
    for event in _join_text_runs(events):
        # The numbers of a text's tokens may follow at its end.
        beyond = isinstance(event, Text) and len(out) > 1 and isinstance(out[-1], Logprobs)
        at = len(out) - (2 if beyond else 1)
        joined = _join(out[at], event) if out else None
        if joined is None:
            out.append(event)
        else:
            out[at] = joined
    return out


def _join_text_runs(events: Iterable[Event]) -> Iterator[Event]:
    for kind, run in groupby(events, key=type):
        if kind is Text:
            yield Text("".join([event.text for event in run if isinstance(event, Text)]))
        else:
            yield from run


def _join(first: Event, second: Event) -> Event | None:
    match first, second:
        case Text(), Text():
            return Text(first.text + second.text)
        case Reasoning(), Reasoning(anew=False):
            return Reasoning(first.text + second.text, first.anew)
        case Refusal(), Refusal():
            return Refusal(first.text + second.text)
        case Logprobs(), Logprobs():
            return Logprobs(first.tokens + second.tokens)
        case Prefilled(), Prefilled():
            return second
        case CallDelta(), CallDelta(id=None, name=None) if first.index == second.index:
            arguments = first.arguments + second.arguments
            return CallDelta(index=first.index, id=first.id, name=first.name, arguments=arguments)
        case _:
            return None
