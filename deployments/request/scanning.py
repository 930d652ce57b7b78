"""The scans of one attempt for repetition, while its answer decodes: its text, its reasoning and its native calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from reliability import loops
from reliability.answer.call_scan import CallScan, step_calls
from reliability.loops import Kind, Loop, Scan
from reliability.loops.patience import PATIENCE_BYTES
from reliability.types import CallDelta, Event, Finish, FinishReason, Reasoning, Text

WHOLE = "the answer repeats itself ({times} times or more), and its tier ended it by itself: it is delivered whole"
REASONED_CHARS = 4_000  # of the reasoning, as much as two texts of a conversation are compared by


@dataclass(slots=True, kw_only=True)
class AnswerScan:
    """How far an answer is scanned for loops. `enabled`: the loop rules are on; `tools`: what it writes may be a call.
    `reasoned`: the beginning of its reasoning, which is the answer where there is nothing else."""

    enabled: bool
    tools: bool
    text: Scan = field(init=False)
    reasoning: Scan = field(init=False)
    calls: CallScan = field(init=False)
    reasoned: str = ""
    loop: Loop | None = None

    def __post_init__(self) -> None:
        self.text = self.reasoning = loops.open_scan(calls=self.tools, patient=True)
        self.calls = CallScan(patience=PATIENCE_BYTES)

    def split(self, event: Event) -> Iterator[Event]:
        """Split an event where the answer may be stopped, so that where that is doesn't depend on how it came. What is
        left behind that place is the last piece."""
        if not self.enabled or not isinstance(event, Text | Reasoning) or len(event.text) <= self._room:
            yield event
            return
        at, size = 0, len(event.text)
        while at < size:
            end = size if self.loop is not None else min(size, at + self._room)
            yield type(event)(event.text[at:end])
            at = end

    @property
    def _room(self) -> int:
        return min(self.text.room, self.reasoning.room)

    def step(self, event: Event) -> None:
        """Look for repetition in one more event, unless a loop is found already."""
        if not self.enabled or self.loop is not None:
            return
        if isinstance(event, Text):
            self.text, self.loop = loops.step(self.text, event.text)
        elif isinstance(event, Reasoning):
            self.reasoning, self.loop = loops.step(self.reasoning, event.text)
            self.reasoned = (self.reasoned + event.text)[:REASONED_CHARS]
        elif isinstance(event, CallDelta):
            self.calls, self.loop = step_calls(self.calls, event.index, event.name or "", event.arguments)

    def conclude(self, end: Finish) -> Finish:
        """Judge what repeats itself when the answer is over: it is a runaway where it ran to its limit, and whole where
        its tier ended it."""
        if self.loop is not None:
            return end
        if end.reason is FinishReason.LENGTH:
            written = self.text if self.text.seen.length or self.text.fill else self.reasoning
            self.loop = written.doubtful
            return end
        found = self.text.doubt.loop or self.calls.doubtful
        if found is None:
            return end
        return replace(end, notes=(*end.notes, WHOLE.format(times=found.repetitions)))

    def continue_text(self, begun: str) -> None:
        """Scan the text that the attempt continues, as if it had written that itself."""
        self.text, _ = loops.step(self.text, begun)

    def restart_text(self) -> None:
        """Scan the text anew: the answer begins behind a mark of its reasoning."""
        self.text = loops.open_scan(calls=self.tools, patient=True)

    @property
    def stopped_for_calls(self) -> bool:
        """Whether the answer was stopped since its calls repeated themselves."""
        return self.loop is not None and self.loop.kind is Kind.ANSWER_CALLS

    @property
    def stopped_in_arguments(self) -> bool:
        """Whether it was stopped since the arguments of a native call repeated themselves: then that is no call."""
        return self.calls.loop is not None and not self.stopped_for_calls
