"""The probabilities of an answer's tokens leave when its text leaves, no sooner.

A token leaves with the text in which it begins. Tokens spell the text but for its beginning: a tokenizer takes a space
off the first token, and white space behind reasoning is no part of the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reliability.types import Event, Logprobs, Text, TokenLogprob


@dataclass(slots=True)
class _Head:
    """The white space that something begins with which comes piece by piece."""

    size: int = 0
    ended: bool = False  # something else has come

    def take(self, piece: bytes) -> None:
        if not self.ended:
            rest = piece.lstrip()
            self.size += len(piece) - len(rest)
            self.ended = bool(rest)


class WaitingLogprobs:
    """The tokens of one attempt that wait for their text."""

    def __init__(self) -> None:
        self._waiting: deque[TokenLogprob] = deque()
        self._came_bytes = 0  # of the text, with reasoning in it
        self._told_bytes = 0  # of it, up to where the answer's last words end
        self._added_bytes = 0  # of its tokens
        self._gaps: list[tuple[int, int]] = []  # where reasoning stands in it
        self._begin()

    def _begin(self) -> None:
        self._left_bytes = 0  # of the tokens that have left, but for what was taken off the text
        self._text_bytes = 0  # of the text that has
        self._trimmed_bytes = 0
        self._tokens_head, self._text_head = _Head(), _Head()

    def add(self, tokens: Iterable[TokenLogprob]) -> None:
        for token in tokens:
            at, self._added_bytes = self._added_bytes, self._added_bytes + len(token.raw)
            if not any(start <= at < end for start, end in self._gaps):
                self._waiting.append(token)
                self._tokens_head.take(token.raw)

    def leave_out(self, text: Event, parts: Sequence[Event]) -> None:
        """Leave out the tokens of reasoning and of its marks that a text had. `parts`: what it became."""
        if not isinstance(text, Text):
            return
        before, self._came_bytes = self._came_bytes, self._came_bytes + _count_bytes(text)
        if len(parts) > 1 and isinstance(parts[0], Text):
            self._told_bytes = before + _count_bytes(parts[0])
        if not parts or not isinstance(parts[-1], Text):
            return
        gap = (self._told_bytes, self._came_bytes - _count_bytes(parts[-1]))
        self._told_bytes = self._came_bytes
        if gap[0] < gap[1]:
            self._gaps = [*(one for one in self._gaps if one[1] > self._added_bytes), gap]
            waiting, self._waiting = self._waiting, deque()
            self._added_bytes -= sum(len(token.raw) for token in waiting)
            self._tokens_head = _Head() if not self._left_bytes else self._tokens_head
            self.add(waiting)

    def leave_with(self, events: Iterable[Event]) -> list[Event]:
        """Return what leaves with these events, as one event or none."""
        text = "".join(event.text for event in events if isinstance(event, Text)).encode(errors="replace")
        self._text_head.take(text)
        if self._text_head.ended:
            self._trim()
        self._text_bytes += len(text)
        out: list[TokenLogprob] = []
        while self._waiting and self._left_bytes < self._text_bytes:
            out.append(self._waiting.popleft())
            self._left_bytes += len(out[-1].raw)
        return [Logprobs(tuple(out))] if out else []

    def forget(self) -> None:
        """Forget what waits: it is of no text, and what comes next begins a new one."""
        self._waiting.clear()
        self._begin()

    def rest(self) -> list[Event]:
        """Return all that is left: the answer is delivered whole."""
        if self._came_bytes > self._told_bytes:  # it ends in reasoning
            return []
        out, self._waiting = tuple(self._waiting), deque()
        return [Logprobs(out)] if out else []

    def _trim(self) -> None:
        surplus = max(0, self._tokens_head.size - self._text_head.size - self._trimmed_bytes)
        self._trimmed_bytes += surplus
        self._left_bytes -= surplus  # below zero: before the text
        while self._waiting and self._left_bytes < 0 and self._left_bytes + len(self._waiting[0].raw) <= 0:
            self._left_bytes += len(self._waiting.popleft().raw)


def _count_bytes(event: Text) -> int:
    return len(event.text.encode(errors="replace"))
