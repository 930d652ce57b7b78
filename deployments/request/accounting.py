"""What one attempt has cost, while it runs and when it has ended, and how large its answer may become.

`progress` is called before text leaves: if this process dies, that is what the grant is charged. At the end the tier's
own count is booked, another server's where it is possible, else the count so far, else an estimate.

A count is possible where the prompt has at most a token for each byte and what is hidden beside it, the completion at
most the cap or a token for each byte written, and both at least one for so many bytes as no tokenizer puts into one. No
count, or 0 for something that is there, is no lie (Ollama says 0 for a cached prompt).
Invariants: text that left has cost something; no count is booked that no answer can have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.answer.estimate import (
    BYTES_PER_TOKEN_USUAL,
    estimate_written_tokens,
    text_bytes,
    tokens_max,
    tokens_min,
)
from reliability.faults import TRAITS, Ran
from reliability.types import WRITTEN, CallDelta, Counted, Event, Failed, Finish, Passed, Usage

_CALL_BYTES = 64  # a tool call's name and the markers around it
_NOTHING_SPENT = Usage()
# A prompt that was estimated at so much more or less than is counted now is reported at once, not
# with the first text.
_PROMPT_ERROR_TOKENS = 2 * PROGRESS_TOKENS
# What an answer of so many tokens can't be longer than: SmolLM2's tokenizer has 10 bytes a token in formal English, 11
# in deeply indented code, and an answer of a few tokens may be a few long words. A prompt may hold lines of blanks.
TOKEN_BYTES_MOST, OVERRUN_BYTES = 16, 256
_PROMPT_TOKEN_BYTES_MOST, _PROMPT_FREE_BYTES = 64, 4_096
# What an upstream reads beside the request: the instructions for tools are some hundred tokens at the known providers,
# hidden system prompts and pages of a search some thousand.
HIDDEN_TOKENS_MAX = 8_192
# Beyond `max_tokens`: the longest thinking that providers who count so allow by default.
REASONING_TOKENS_MAX = 65_536
_ENDS_TOKENS_MAX = 64  # delimiters around an answer and its calls, which no text shows
# The longest answer that is read at all, whatever cap a request or the configuration names: a quarter of a million
# tokens, more than any model writes.
ANSWER_BYTES_MAX = 1024 * 1024
# An event of this size costs too little to be cut.
EVENT_CHARS = 65_536


@dataclass(slots=True, kw_only=True)
class Accounting:
    """The count of one attempt. `output_cap`: in tokens. `trusted`: the tier counts by itself, and doesn't pass on
    another's count. `prompt_most` bounds the tokens of its prompt; it walks through the whole request. `counted`: what
    the tier reported last; `accepted`: it has taken the request. `reported`: what it reported where that can't be."""

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
    accepted: bool = False
    reported: Usage | None = None

    def write(self, event: Event) -> None:
        self.written_bytes += _count_bytes(event)
        if self.counted is None:
            self.near_tokens += estimate_written_tokens(event)

    @property
    def written_tokens(self) -> int:
        """Count the tokens of the answer so far, for a person to read: an estimate where the tier counts at the end."""
        return self.written_bytes // BYTES_PER_TOKEN_USUAL if self.counted is None else self.counted.completion_tokens

    def count_unread(self, unread: Sequence[Event]) -> None:
        """Count the rest of a batch: a tier's count often comes behind the word at which it was stopped."""
        for event in unread:
            self.write(event)
            if isinstance(event, Counted | Finish) and event.usage is not None:
                self.counted = event.usage

    def report_progress(self) -> None:
        """Report what it has cost so far, where that is news."""
        if self.progress is None:
            return
        written = self._near
        if written < self.announced_tokens + PROGRESS_TOKENS and (self.announced_prompt or not self._misjudged_prompt):
            return
        self.announced_tokens, self.announced_prompt = written, True
        self.progress(self._count_usage(None, accepted=True)[0])

    def count_usage(self, end: Finish | Failed | None) -> Usage:
        """Count what it has cost at its end, and keep what the tier reported where that can't be. `end` None: the
        reader left; then the prompt may have been read. An API that refuses with a status has cost nothing."""
        usage, lie = self._count_usage(end, accepted=self.accepted)
        self.reported = self.reported or lie  # at the second count the tier's figure is corrected already
        return usage

    def _count_usage(self, end: Finish | Failed | None, *, accepted: bool) -> tuple[Usage, Usage | None]:
        reported = end.usage if end else None
        if reported is None and self.counted is not None and self.counted.exact:
            reported = self.counted
        if reported is None:
            return (_NOTHING_SPENT if self._cost_nothing(end, accepted) else self._estimate), None
        if self.trusted or (isinstance(end, Failed) and reported == _NOTHING_SPENT):
            return reported, None
        usage, lie = self._verify_usage(reported)
        return usage, reported if lie else None

    def _verify_usage(self, reported: Usage) -> tuple[Usage, bool]:
        """Return what to book where the tier reports this, and whether that was impossible."""
        estimate = self._estimate
        prompt_holds, completion_holds = self._can_be_prompt(reported.prompt_tokens), self._can_be_completion(reported)
        prompt = reported.prompt_tokens if prompt_holds else estimate.prompt_tokens
        completion = reported.completion_tokens if completion_holds else estimate.completion_tokens
        usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(reported.cached_tokens, prompt) if prompt_holds else 0,
            reasoning_tokens=min(reported.reasoning_tokens, completion) if completion_holds else 0,
            exact=reported.exact and prompt_holds and completion_holds,
        )
        prompt_lie = reported.prompt_tokens > 0 and not prompt_holds
        return usage, prompt_lie or (reported.completion_tokens > 0 and not completion_holds)

    def _can_be_prompt(self, tokens: int) -> bool:
        size = self.prompt_bytes
        if tokens <= 0:
            return size <= 0
        if tokens < (size - _PROMPT_FREE_BYTES) // _PROMPT_TOKEN_BYTES_MOST:
            return False
        return tokens <= size + HIDDEN_TOKENS_MAX or tokens <= self.prompt_most() + HIDDEN_TOKENS_MAX

    def _can_be_completion(self, reported: Usage) -> bool:
        tokens, written = reported.completion_tokens, self.written_bytes
        if tokens <= 0:
            return written <= 0
        most = max(self.output_cap, written) + _ENDS_TOKENS_MAX
        most += REASONING_TOKENS_MAX if reported.reasoning_tokens > 0 else 0
        return (written - OVERRUN_BYTES) // TOKEN_BYTES_MOST <= tokens <= most

    def _cost_nothing(self, end: Finish | Failed | None, accepted: bool) -> bool:
        if not isinstance(end, Failed) or self.written_bytes:
            return False
        return end.status is not None or TRAITS[end.fault].ran is not Ran.RAN or not accepted

    @property
    def _misjudged_prompt(self) -> bool:
        """Whether the tier has counted the prompt, and the estimate that was reserved is far from it."""
        if self.counted is None or not self.counted.exact:
            return False
        return abs(self.counted.prompt_tokens - tokens_max(self.prompt_bytes)) > _PROMPT_ERROR_TOKENS

    @property
    def _near(self) -> int:
        return self.near_tokens if self.counted is None else self.counted.completion_tokens

    @property
    def _estimate(self) -> Usage:
        """Of what was written not above what the tier was allowed, unless it has surely written more."""
        written = min(self._near, max(self.output_cap, tokens_min(self.written_bytes)))
        return Usage(prompt_tokens=tokens_max(self.prompt_bytes), completion_tokens=written, exact=False)


def _count_bytes(event: Event) -> int:
    if isinstance(event, WRITTEN):
        return text_bytes(event.text)
    if isinstance(event, CallDelta):
        return text_bytes(event.arguments) + (_CALL_BYTES if event.name else 0)
    return event.text_bytes if isinstance(event, Passed) else 0


def compute_bytes_max(output_cap: int) -> int:
    """Compute how many bytes an answer may have: more are surely more than a tier was allowed to write."""
    return min(output_cap * TOKEN_BYTES_MOST + OVERRUN_BYTES, ANSWER_BYTES_MAX)


def cut_event(event: Event, left_bytes: int) -> Event:
    """Cut an event that is long and goes far beyond the bytes that are left: an answer ends with it anyway."""
    if count_chars(event) <= EVENT_CHARS:
        return event
    most = max(EVENT_CHARS, left_bytes + 1)
    if isinstance(event, WRITTEN):
        return type(event)(event.text[:most])
    return replace(event, arguments=event.arguments[:most]) if isinstance(event, CallDelta) else event


def count_chars(event: Event) -> int:
    """Count the characters that a model has written with this event."""
    if isinstance(event, WRITTEN):
        return len(event.text)
    return len(event.arguments) if isinstance(event, CallDelta) else 0
