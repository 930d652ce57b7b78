"""Watch the thought of one answer: count it, and say when it is to be closed, and why.

At its budget it is closed, and before that where it circles. It is watched for repetition as an answer is, with less
patience, so that it is closed before the answer would be stopped. A chat without a thought costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliability.loops import Scan, open_scan, step
from reliability.loops.in_answer import PATIENCE_BYTES, Doubt
from reliability.thinking import ThoughtEnd
from reliability.types import Event, Reasoning

_CIRCLING_BYTES = PATIENCE_BYTES // 2


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """After `tokens_max` tokens of thought, `close` is written for the model. `speak`: makes the processor that holds
    the model to an answer behind so many tokens."""

    tokens_max: int | None = None
    close: Sequence[int] = ()
    speak: Callable[[int], Callable[[Any, Any], Any]] | None = None


@dataclass(slots=True)
class ThoughtWatch:
    """The thought of one answer. `closed`: why it was closed for the model; `closed_at`: behind how many tokens."""

    limit: ThoughtLimit = field(default_factory=ThoughtLimit)
    tokens: int = 0
    closed: ThoughtEnd | None = None
    closed_at: int = 0
    circles: bool = False
    _scan: Scan = field(default_factory=lambda: open_scan(calls=False)._replace(doubt=Doubt(_CIRCLING_BYTES)))

    def note(self, events: Sequence[Event]) -> None:
        """Note one token of thought, and the events that it made."""
        self.tokens += 1
        for event in events:
            if isinstance(event, Reasoning) and not self.circles:
                self._scan, loop = step(self._scan, event.text)
                self.circles = loop is not None

    @property
    def due(self) -> ThoughtEnd | None:
        """Return why the thought has to be closed now; None where it may go on, or nothing closes it."""
        if not self.limit.close:
            return None
        if self.limit.tokens_max is not None and self.tokens >= self.limit.tokens_max:
            return ThoughtEnd.BUDGET
        return ThoughtEnd.CIRCLING if self.circles else None

    def close(self, why: ThoughtEnd, answer_tokens: int) -> None:
        """Note that it was closed. Where the model opens another, that is closed too, and the first reason stays."""
        self.closed, self.closed_at = self.closed or why, answer_tokens

    def find_end(self, thinking: bool) -> ThoughtEnd | None:
        """Return what has ended it; None where there was none, or where it goes on."""
        if thinking or not self.tokens:
            return None
        return self.closed or ThoughtEnd.MODEL
