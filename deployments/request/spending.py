"""What one attempt has cost: while it runs, and when it has ended, in whatever way.

    the tier's events ─▶ Spending ─▶ progress, each time that `PROGRESS_TOKENS` more are written
                            └──────▶ what is booked at the end

While it runs, `progress` hears of it before the words leave this process: if the process dies, that is what its grant
is charged (`reliability.admission.ledger`). At the end the tier's own count is booked, that of another's server where
it is possible at all (`reliability.answer.usage`); else what it has counted on the way, else an estimate of what it
read and wrote. The estimate of an answer goes by its pieces, since nearly every server sends a token in each; that of a
prompt is from above.

What must never happen: words that left and cost nothing, a count that no answer can have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.admission.admit import PROGRESS_TOKENS
from reliability.answer.estimate import text_bytes, tokens_max, tokens_min
from reliability.answer.usage import Possible, believed, written_tokens
from reliability.faults import TRAITS, Ran
from reliability.types import CallDelta, Event, Failed, Finish, Reasoning, Text, Usage

__all__ = ["Spending"]

CALL_BYTES = 64  # a tool call's name and the markers around it
NOTHING_SPENT = Usage()
# A prompt that was estimated at so much more or less than is counted now is said at once, not with the first words.
PROMPT_ERROR_TOKENS = 2 * PROGRESS_TOKENS


@dataclass(slots=True, kw_only=True)
class Spending:
    """The count of one attempt. `trusted`: the tier counts by itself, and doesn't pass on another's word. `prompt_most`
    bounds the tokens of its prompt; `counted` is the tier's last word."""

    prompt_bytes: int
    output_cap: int
    prompt_most: Callable[[], int]
    progress: Callable[[Usage], None] | None
    trusted: bool = False
    counted: Usage | None = None
    written_bytes: int = 0
    near_tokens: int = 0  # an estimate, as long as the tier counts nothing itself
    said_tokens: int = 0  # of the completion, when `progress` last heard of it
    said_prompt: bool = False

    def write(self, event: Event) -> None:
        """Take a piece of the answer into account."""
        self.written_bytes += _size(event)
        if self.counted is None:
            self.near_tokens += written_tokens(event)

    def say_progress(self) -> None:
        """Tell what it has cost so far, where that is news."""
        if self.progress is None:
            return
        written = self._near
        if written < self.said_tokens + PROGRESS_TOKENS and (self.said_prompt or not self._misjudged_prompt):
            return
        self.said_tokens, self.said_prompt = written, True
        self.progress(self.spent(None, accepted=True)[0])

    def spent(self, end: Finish | Failed | None, *, accepted: bool) -> tuple[Usage, Usage | None]:
        """What it has cost, and what the tier said in its place where that can't be. `end` None: the reader left.

        An API that refuses with a status has cost nothing. Where the client left before the tier's first word, the call
        was on its way, and its prompt may have been read. Where the process that worked on it has died, what it had
        written and not handed over is at most what comes in a few hundredths of a second: it left for nobody.
        """
        told = end.usage if end else None
        if told is None and self.counted is not None and self.counted.exact:
            told = self.counted
        if told is not None and self.trusted:
            return told, None
        if told is not None and not (isinstance(end, Failed) and told == NOTHING_SPENT):
            usage, lie = believed(told, self._possible)
            return usage, told if lie else None
        return (NOTHING_SPENT if told is not None or self._cost_nothing(end, accepted) else self._estimate), None

    def _cost_nothing(self, end: Finish | Failed | None, accepted: bool) -> bool:
        if not isinstance(end, Failed) or self.written_bytes:
            return False
        return end.status is not None or TRAITS[end.fault].ran is not Ran.RAN or not accepted

    @property
    def _misjudged_prompt(self) -> bool:
        """Whether the tier has counted the prompt, and the estimate that was reserved is far from it."""
        if self.counted is None or not self.counted.exact:
            return False
        return abs(self.counted.prompt_tokens - tokens_max(self.prompt_bytes)) > PROMPT_ERROR_TOKENS

    @property
    def _near(self) -> int:
        return self.near_tokens if self.counted is None else self.counted.completion_tokens

    @property
    def _possible(self) -> Possible:
        return Possible(
            prompt_bytes=self.prompt_bytes,
            prompt_most=self.prompt_most,
            output_cap=self.output_cap,
            written_bytes=self.written_bytes,
            estimate=self._estimate,
        )

    @property
    def _estimate(self) -> Usage:
        """Of what was written not above what the tier was allowed, unless it has surely written more."""
        written = min(self._near, max(self.output_cap, tokens_min(self.written_bytes)))
        return Usage(prompt_tokens=tokens_max(self.prompt_bytes), completion_tokens=written, exact=False)


def _size(event: Event) -> int:
    """The bytes that a model has written for this event."""
    match event:
        case Text(text) | Reasoning(text):
            return text_bytes(text)
        case CallDelta(name=name, arguments=arguments):
            return text_bytes(arguments) + (CALL_BYTES if name else 0)
    return 0
