"""Join neighboring events of one kind: each list that leaves a tier costs more than the text in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from reliability.types import CallDelta, Event, Logprobs, Reasoning, Refusal, Text


def merge_events(events: Iterable[Event]) -> list[Event]:
    """Join neighbors of one kind, so that one read leaves as one piece of each kind."""
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
    """Join each run of text in one go: a read may bring hundreds of pieces."""
    for kind, run in groupby(events, key=type):
        if kind is Text:
            yield Text("".join([event.text for event in run if isinstance(event, Text)]))
        else:
            yield from run


def _join(first: Event, second: Event) -> Event | None:
    match first, second:
        case Text(), Text():
            return Text(first.text + second.text)
        case Reasoning(), Reasoning():
            return Reasoning(first.text + second.text)
        case Refusal(), Refusal():
            return Refusal(first.text + second.text)
        case Logprobs(), Logprobs():
            return Logprobs(first.tokens + second.tokens)
        case CallDelta(), CallDelta(id=None, name=None) if first.index == second.index:
            arguments = first.arguments + second.arguments
            return CallDelta(index=first.index, id=first.id, name=first.name, arguments=arguments)
        case _:
            return None
