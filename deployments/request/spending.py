"""What one attempt has cost: while it runs, and when it has ended, in whatever way.

    the tier's events ─▶ Spending ─▶ progress, each time that `PROGRESS_TOKENS` more are written
                            └──────▶ what is booked at the end

While it runs, `progress` is told of it before the text leaves this process: if the process dies,
that is what its grant is charged (`reliability.admission.ledger`). At the end the tier's own count
is booked, that of another's server where it is possible at all (`reliability.answer.usage`); else
what it has counted on the way, else an estimate of what it read and wrote. The estimate of an
answer goes by its pieces, since nearly every server sends a token in each; that of a prompt is from
above.

What must never happen: text that left and cost nothing, a count that no answer can have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.admission.admit import PROGRESS_TOKENS
from reliability.answer.estimate import text_bytes, tokens_max, tokens_min
from reliability.answer.usage import Possible, estimate_written_tokens, verify_usage
from reliability.faults import TRAITS, Ran
from reliability.types import CallDelta, Event, Failed, Finish, Passed, Reasoning, Refusal, Text, Usage

__all__ = ["Spending"]

CALL_BYTES = 64  # a tool call's name and the markers around it
NOTHING_SPENT = Usage()
# A prompt that was estimated at so much more or less than is counted now is reported at once, not
# with the first text.
PROMPT_ERROR_TOKENS = 2 * PROGRESS_TOKENS


@dataclass(slots=True, kw_only=True)
class Spending:
    """The count of one attempt. `trusted`: the tier counts by itself, and doesn't pass on another's
    count. `prompt_most` bounds the tokens of its prompt; `counted` is what the tier reported
    last."""

    prompt_bytes: int
    output_cap: int
    prompt_most: Callable[[], int]
    progress: Callable[[Usage], None] | None
    trusted: bool = False
    counted: Usage | None = None
    written_bytes: int = 0
    near_tokens: int = 0  # an estimate, as long as the tier counts nothing itself
    announced_tokens: int = 0  # of the completion, when `progress` was last called
    announced_prompt: bool = False

    def write(self, event: Event) -> None:
        """Take a piece of the answer into account."""
        self.written_bytes += _count_bytes(event)
        if self.counted is None:
            self.near_tokens += estimate_written_tokens(event)

    def report_progress(self) -> None:
        """Report what it has cost so far, where that is news."""
        if self.progress is None:
            return
        written = self._near
        if written < self.announced_tokens + PROGRESS_TOKENS and (self.announced_prompt or not self._misjudged_prompt):
            return
        self.announced_tokens, self.announced_prompt = written, True
        self.progress(self.count_usage(None, accepted=True)[0])

    def count_usage(self, end: Finish | Failed | None, *, accepted: bool) -> tuple[Usage, Usage | None]:
        """Count what it has cost, and what the tier reported in its place where that can't be.
        `end` None: the reader left.

        An API that refuses with a status has cost nothing. Where the client left before the tier's
        first token, the call was on its way, and its prompt may have been read. Where the process
        that worked on it has died, what it had written and not handed over is at most what comes in
        a few hundredths of a second: it left for nobody.
        """
        reported = end.usage if end else None
        if reported is None and self.counted is not None and self.counted.exact:
            reported = self.counted
        if reported is None:
            return (NOTHING_SPENT if self._cost_nothing(end, accepted) else self._estimate), None
        if self.trusted:
            return reported, None
        if isinstance(end, Failed) and reported == NOTHING_SPENT:
            return NOTHING_SPENT, None
        usage, lie = verify_usage(reported, self._possible)
        return usage, reported if lie else None

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


def _count_bytes(event: Event) -> int:
    """Count the bytes that a model has written for this event."""
    match event:
        case Text(text) | Reasoning(text) | Refusal(text):
            return text_bytes(text)
        case Passed(text_bytes=size):
            return size
        case CallDelta(name=name, arguments=arguments):
            return text_bytes(arguments) + (CALL_BYTES if name else 0)
    return 0
