"""The probabilities of an answer's tokens leave when its text leaves, no sooner: an attempt that is thrown away must
not be seen by its numbers either.

Text is cut where it may be a call, tokens where the tokenizer cuts them. So a token leaves with the text in which it
begins, and what of its bytes is still held follows later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from reliability.types import Event, Logprobs, Text, TokenLogprob

__all__ = ["WaitingLogprobs"]


class WaitingLogprobs:
    """The tokens of one attempt that wait for their text."""

    def __init__(self) -> None:
        self._waiting: deque[TokenLogprob] = deque()
        self._left_bytes = 0  # of the tokens that have left
        self._text_bytes = 0  # of the text that has

    def add(self, tokens: Iterable[TokenLogprob]) -> None:
        """The next tokens, in the order of the text."""
        self._waiting.extend(tokens)

    def leave_with(self, events: Iterable[Event]) -> list[Event]:
        """What leaves with these events, as one event or none."""
        text = "".join(event.text for event in events if isinstance(event, Text))
        if text and not self._text_bytes and not text[0].isspace():
            self._trim()
        self._text_bytes += len(text.encode(errors="replace"))
        out: list[TokenLogprob] = []
        while self._waiting and self._left_bytes < self._text_bytes:
            out.append(self._waiting.popleft())
            self._left_bytes += len(out[-1].raw)
        return [Logprobs(tuple(out))] if out else []

    def forget(self) -> None:
        """What waits is of no text, and what comes next begins a new one."""
        self._waiting.clear()
        self._left_bytes = self._text_bytes = 0

    def rest(self) -> list[Event]:
        """All that is left: the answer is delivered whole."""
        out, self._waiting = tuple(self._waiting), deque()
        return [Logprobs(out)] if out else []

    def _trim(self) -> None:
        """White space that the text doesn't begin with has been taken off it."""
        while self._waiting and self._waiting[0].raw.isspace():
            self._waiting.popleft()
