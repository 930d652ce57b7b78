"""How long an answer that has begun to repeat itself may go on: what ends by itself within that is whole, and honest.

A runaway is an answer that doesn't end. Where it began to repeat itself it may write `PATIENCE_BYTES` more of that,
about 2,000 tokens, before it is stopped. What it writes after it has left the repetition doesn't count; a repetition
whose copies differ is never known to have been left.
"""

from __future__ import annotations

from typing import NamedTuple

from reliability.loops.comparison.findings import Kind, Loop

PATIENCE_BYTES = 8_192
#: A repetition that isn't found again for so many characters has been left.
LEFT_CHARS = 2_048


class Doubt(NamedTuple):
    """The repetition that an answer is in. `loop`: how it was found; `at`: after how many characters it was found last;
    `spent`: the bytes that it went on for since, of `most`; `varied`: its copies differ."""

    most: int = 0
    loop: Loop | None = None
    at: int = 0
    spent: int = 0
    varied: bool = False

    @property
    def over(self) -> bool:
        """Whether it has gone on for too long."""
        return self.loop is not None and self.spent >= self.most

    def add(self, loop: Loop, at: int, newest: str, *, varied: bool = False) -> Doubt:
        """Take the next finding into account, `at` so many characters; `newest` are the last of them. Calls that are
        written again are complete, so nothing is to be waited for."""
        if loop.kind is Kind.ANSWER_CALLS:
            return Doubt(self.most, loop, at, self.most)
        if not self.stands(at):
            return Doubt(self.most, loop, at, self.spent, varied)
        return self.go_on(at, newest)

    def go_on(self, at: int, newest: str) -> Doubt:
        """Count what was written up to `at` as repetition."""
        newest_bytes = len(newest.encode("utf-8", "replace"))
        return self._replace(at=at, spent=self.spent + (at - self.at) * newest_bytes // max(1, len(newest)))

    def stands(self, length: int) -> bool:
        """Return whether a text of so many characters ends in the repetition."""
        return self.loop is not None and (self.varied or length - self.at <= LEFT_CHARS)
