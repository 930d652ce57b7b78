"""Turn the text that a model writes, piece by piece, into the events of an answer.

    text ─▶ Thoughts ─▶ CallSplit ─▶ StopCut ─▶ events
             reasoning    tool calls    stop strings

Each machine may hold back the end of the text as long as that could be the beginning of a marker, so the events don't
depend on where the text was cut. Outside of the reasoning, text that is no complete, parsable call leaves unchanged,
markers included. Stop strings are looked for in the answer's text only; the first to be complete ends the answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from deployments.tiers.stream_matchers import CallFormat, CallSplit, StopCut
from reliability.answer.thoughts import Thoughts
from reliability.tools.format_reasoning import Thought
from reliability.types import Event, Text

__all__ = ["AnswerReader"]


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
        self._thoughts = Thoughts(own=think, inside=inside, begun=think is None and inside is None)
        self._calls = CallSplit(calls, calls_max=calls_max, distinct=distinct)
        self._stop = StopCut(stops)

    @property
    def done(self) -> bool:
        """A stop string or the last allowed call is complete, or a call came again: generate no more."""
        return self._stop.found is not None or self._calls.full

    @property
    def stop(self) -> str | None:
        """The stop string that is complete."""
        return self._stop.found

    @property
    def thinking(self) -> bool:
        """Whether the model is in its reasoning."""
        return self._thoughts.thinking

    @property
    def calls(self) -> int:
        """How many calls have left."""
        return self._calls.calls

    @property
    def repeated(self) -> bool:
        """Whether the answer was ended by a call that was there already."""
        return self._calls.repeated

    def feed(self, text: str) -> list[Event]:
        """Return the events of one more piece of text."""
        return self._split_calls(self._thoughts.feed(text))

    def finish(self, *, truncated: bool) -> list[Event]:
        """Return the events that were held back. `truncated`: the answer was cut at its token limit."""
        events = self._split_calls(self._thoughts.end())
        if self._stop.found is not None:
            return events
        events += self._cut_at_stop(self._calls.finish(truncated=truncated))
        return events + self._flush_stop()

    def _split_calls(self, pieces: list[Event]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            events += self._cut_at_stop(self._calls.feed(piece.text)) if isinstance(piece, Text) else [piece]
        return events

    def _cut_at_stop(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if self._stop.found is not None:
                break
            if isinstance(event, Text):
                text = self._stop.feed(event.text)
                out += [Text(text)] if text else []
            else:
                out += [*self._flush_stop(), event]
        return out

    def _flush_stop(self) -> list[Event]:
        rest = self._stop.flush()
        return [Text(rest)] if rest else []
