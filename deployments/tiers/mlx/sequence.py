"""Keep one sequence: its request, its record of tokens, and the events of its answer that are still to leave.

A sequence is rebuilt from its record after a failed step, so the record holds only tokens that were given out. Text
leaves at once for its first piece and then in windows of `_WINDOW_S`, since a message to another process costs more
than a token.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.grammar.compiler import Constraint
from deployments.tiers.mlx.grammar.masker import CLOSED_NOTE, REPEATED_NOTE, Masker
from deployments.tiers.mlx.prompt_cache.prompt_cache import KEYLESS, PromptReuse
from deployments.tiers.mlx.sampling import Guarded, Processor, Sampling
from deployments.tiers.stream_matchers import AnswerReader, merge_events
from deployments.tiers.thought_watch import ThoughtLimit, ThoughtWatch
from reliability.answer.logprobs import WaitingLogprobs
from reliability.types import Counted, Event, Failed, Finish, FinishReason, Prefilled, Reasoning, Text, Usage

_WINDOW_S = 0.03
# A token is told as unsure below this lead over the next likeliest one, in nats; of each answer so many at most.
_LEAD_MAX, _SURPRISE_MAX, _UNSURE_MAX = 3.0, 20.0, 256
_COUNT_EVERY_S = 1.0
# Prefill is reported once it, or the wait for it, has taken so long, and then so often; what a report weighs in the
# estimate of the rest.
_PREFILL_LONG_S, PREFILL_EVERY_S, _PREFILL_WEIGHT = 2.0, 1.0, 0.3


@dataclass(slots=True, kw_only=True)
class EngineJob:
    """One request as the engine takes it. `sink` is called on the engine thread with each chunk of events; where that
    has ended, on another. `processors` change its logits (see `sampling.py`), and `constraint` is the grammar that the
    answer must keep to. `logprob_reader`: the probabilities of its tokens are wanted. `report_s`: when the next report
    of its prefill is due. `notes`: of its prompt, for the report. `turn_start`: the tokens that open the model's turn;
    an answer that begins with them again begins behind them. `written`: the tokens of the answer that there are already
    (`job_builder.py`), `begun` the text of it that stands before the client."""

    prompt: Sequence[int]
    max_tokens: int
    sink: Callable[[list[Event]], None]
    sampling: Sampling = field(default_factory=Sampling)
    reader: AnswerReader = field(default_factory=AnswerReader)
    deadline_s: float = float("inf")
    processors: Sequence[Processor] = ()
    constraint: Constraint | None = None
    logprob_reader: LogprobReader | None = None
    turn_start: Sequence[int] = ()
    written: Sequence[int] = ()
    begun: str = ""
    thought: ThoughtLimit = field(default_factory=ThoughtLimit)
    reuse: PromptReuse = KEYLESS
    report_s: float = field(default_factory=lambda: time.monotonic() + _PREFILL_LONG_S)
    notes: tuple[str, ...] = ()

    @property
    def tokens_max(self) -> int:
        """Prompt and answer at their longest."""
        return len(self.prompt) + self.max_tokens

    def tokens_kept(self, answer: int) -> int:
        """Return the length of the prompt and so many tokens of answer, or the most it may have."""
        return len(self.prompt) + min(answer, self.max_tokens)


@dataclass(slots=True)
class _Outbox:
    """What is still to leave. `sent_s`: when something last left; 0 before the first."""

    pending: list[Event] = field(default_factory=list)
    logprobs: WaitingLogprobs = field(default_factory=WaitingLogprobs)
    sent_s: float = 0.0

    def add(self, events: list[Event], *, with_logprobs: bool) -> None:
        """Add events; to text the probabilities of its tokens. Reasoning, calls and stop strings have none."""
        for event in events:
            self.pending.append(event)
            if with_logprobs and isinstance(event, Text):
                self.pending += self.logprobs.leave_with([event])
            elif with_logprobs:
                self.logprobs.forget()

    def take(self, now_s: float, *, now: bool) -> list[Event]:
        """Take what is due: the first piece at once, the following in windows, everything `now`."""
        if not self.pending or not (now or now_s - self.sent_s >= _WINDOW_S):
            return []
        events, self.pending = merge_events(self.pending), []
        return events


@dataclass(slots=True)
class _PrefillWatch:
    """Up to which of its tokens a record was read at the last report, and when that was; `token_s`: the mean time of a
    token, None before the first."""

    tokens: int = 0
    at_s: float = 0.0
    token_s: float | None = None


@dataclass(slots=True, eq=False)
class SequenceState:
    """The state of one sequence. `suspected`: it may have caused a failed step, and was started again."""

    ticket: int
    job: EngineJob
    detokenizer: Any
    guards: list[Guarded] = field(default_factory=list)
    masker: Masker | None = None
    tokens: list[int] = field(default_factory=list)
    outbox: _Outbox = field(default_factory=_Outbox)
    cached_tokens: int | None = None
    unsure: list[tuple[str, float]] | None = None
    suspected: bool = False
    prefill: _PrefillWatch = field(default_factory=_PrefillWatch)
    thought: ThoughtWatch = field(init=False)
    has_spoken: bool = False  # there is a word behind its thought
    unmatched: str = field(init=False)  # the delivered text that was not written again yet

    def __post_init__(self) -> None:
        self.unmatched, self.thought = self.job.begun, ThoughtWatch(self.job.thought)
        if hasattr(self.detokenizer, "_maybe_trim_space"):
            # mlx-lm's takes a space off the head of an answer, which encoding the answer again doesn't bring back.
            self.detokenizer._maybe_trim_space = str
        for token in self.job.written:
            self.take(token, None)
        self.thought = ThoughtWatch(self.job.thought)

    @property
    def record(self) -> list[int]:
        """Its tokens so far, prompt and answer."""
        return [*self.job.prompt, *self.tokens]

    def tokens_kept(self, ahead: int) -> int:
        """Return the length for which memory is set aside: `ahead` tokens beyond what there is."""
        return self.job.tokens_kept(len(self.tokens) + ahead)

    def build_finish(self, reason: FinishReason, model: str) -> Finish:
        """Build the last event of a complete answer."""
        sampling = self.job.sampling
        return Finish(
            reason=reason,
            usage=self.usage(),
            model=model,
            notes=self.notes,
            stop=self.job.reader.stop_cut.found,
            sampled=(sampling.temperature, sampling.top_p),
            unsure=None if self.unsure is None else tuple(self.unsure),
            thought=self.thought.find_end(self.job.reader.thoughts.thinking),
        )

    def usage(self) -> Usage:
        """Count the tokens so far: true at any moment, not only at the end."""
        return Usage(
            prompt_tokens=len(self.job.prompt) + len(self.job.written),
            completion_tokens=len(self.tokens) - len(self.job.written),
            cached_tokens=self.cached_tokens or 0,
            reasoning_tokens=self.thought.tokens,
        )

    def build_processors(self, penalties: Sequence[Processor]) -> list[Guarded]:
        """Build the processors anew for each generator; the grammar has the last word."""
        processors: list[Processor] = [*self.job.processors, *penalties]
        if self.thought.closed and self.job.thought.speak is not None:
            processors.append(self.job.thought.speak(len(self.job.prompt) + self.thought.closed_at))
        if self.job.constraint is not None:
            closing = self.masker is not None and self.masker.closing
            self.masker = self.job.constraint.masker(self.tokens, tokens_max=self.job.max_tokens, closing=closing)
            processors.append(self.masker)
        self.guards = [Guarded(one) for one in processors]
        return self.guards

    @property
    def notes(self) -> tuple[str, ...]:
        """What the answer's reader should know of its prompt and its grammar."""
        known = self.job.constraint.notes if self.job.constraint is not None else ()
        closed = (CLOSED_NOTE,) if self.masker is not None and self.masker.closing else ()
        return (*self.job.notes, *known, *closed, *((REPEATED_NOTE,) if self.job.reader.call_split.repeated else ()))

    @property
    def has_only_thought(self) -> bool:
        """Whether all that it has is its first thought, closed or not, and an answer can be had."""
        thought, reader = self.thought, self.job.reader
        can_go_on = bool(thought.limit.close) and thought.limit.speak is not None and thought.closed is None
        return can_go_on and thought.tokens > 0 and not self.has_spoken and not reader.call_split.calls

    @property
    def error(self) -> Exception | None:
        """What one of its processors raised."""
        return next((guard.error for guard in self.guards if guard.error is not None), None)

    def take(
        self, token: int, finish: str | None, logprobs: Any = None, lead: float | None = None
    ) -> FinishReason | None:
        """Turn one token into events; return the reason if the answer ends. `logprobs`: None for a written token."""
        self.tokens.append(token)
        reader = self.job.reader
        was_reasoning = reader.thoughts.thinking
        text = self._decode(token, finish)
        if lead is not None and not was_reasoning:
            self.unsure = [] if self.unsure is None else self.unsure
            if lead < _LEAD_MAX and len(self.unsure) < _UNSURE_MAX:
                self.unsure.append((text, math.log1p(math.exp(min(-lead, _SURPRISE_MAX)))))
        events = reader.feed(text)
        if was_reasoning:
            self.thought.note(events)
        else:
            self.has_spoken = self.has_spoken or bool(text.strip())
        cut = finish == "length" or reader.call_split.runaway
        ended, truncated = finish is not None or reader.done or cut, cut and not reader.done
        if ended:
            events += reader.finish(truncated=truncated)
        if self.unmatched:
            events = self._drop_delivered(events)
        if self.job.logprob_reader is not None and logprobs is not None and finish != "stop":
            of_text = not was_reasoning and not reader.thoughts.thinking and not self._opens_turn
            self.outbox.logprobs.add([self.job.logprob_reader.read(token, logprobs)] if of_text else [])
        self.outbox.add(events, with_logprobs=self.job.logprob_reader is not None)
        if not ended:
            return None
        if truncated:
            return FinishReason.LENGTH
        return FinishReason.TOOL_CALLS if reader.call_split.calls else FinishReason.STOP

    def _drop_delivered(self, events: list[Event]) -> list[Event]:
        """Drop text that was delivered already. Raises ValueError where it isn't the same to the letter."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                text = self._drop_delivered_text(event.text)
                out += [Text(text)] if text else []
            elif not (self.unmatched and isinstance(event, Reasoning)):
                out.append(event)
        return out

    def _drop_delivered_text(self, text: str) -> str:
        shared = min(len(text), len(self.unmatched))
        if text[:shared] != self.unmatched[:shared] and not self.job.begun[: -len(self.unmatched)].strip():
            # Another model wrote it: of the white space at its head, tokenizers and the end of reasoning take some off.
            text, self.unmatched = text.lstrip(), self.unmatched.lstrip()
            shared = min(len(text), len(self.unmatched))
        if text[:shared] != self.unmatched[:shared]:
            raise ValueError("the text that is gone on with came out otherwise")
        self.unmatched = self.unmatched[shared:]
        return text[shared:]

    def begin_prefill(self, held: int, now_s: float) -> None:
        """Note that the record is read from here on, behind the `held` tokens that the cache has."""
        self.prefill, self.job.report_s = _PrefillWatch(held, now_s), now_s + _PREFILL_LONG_S

    def report_prefill(self, tokens: int, now_s: float) -> None:
        """Send how many tokens of the record are read, where that is due."""
        last = self.prefill
        if now_s < self.job.report_s or tokens <= last.tokens:
            return
        token_s = (now_s - last.at_s) / (tokens - last.tokens)
        if last.token_s is not None:
            token_s = last.token_s + _PREFILL_WEIGHT * (token_s - last.token_s)
        self.prefill, self.job.report_s = _PrefillWatch(tokens, now_s, token_s), now_s + PREFILL_EVERY_S
        of_tokens = len(self.job.prompt) + len(self.tokens)
        left_s = (of_tokens - tokens) * token_s
        self.job.sink([Prefilled(tokens=tokens, of_tokens=of_tokens, left_s=left_s)])

    def fail(self, failed: Failed) -> None:
        """Send why it ends, with all that is due."""
        self.flush(0.0, last=replace(failed, usage=self.usage()))

    def flush(self, now_s: float, *, last: Event | None = None) -> None:
        """Send what is due, all of it with the last event. Each chunk reports what the answer has cost so far, so that
        a client that leaves is charged what was generated. While a long call is held, that is all: a tier that writes
        is not silent."""
        events = self.outbox.take(now_s, now=last is not None)
        self.outbox.sent_s = self.outbox.sent_s or now_s
        if last is None and (events or now_s - self.outbox.sent_s >= _COUNT_EVERY_S):
            events.append(Counted(self.usage()))
        if last is not None:
            events.append(last)
        if events:
            self.outbox.sent_s = now_s
            self.job.sink(events)

    @property
    def _opens_turn(self) -> bool:
        """Whether the answer so far is the opening of its turn once more."""
        count = len(self.tokens)
        return count <= len(self.job.turn_start) and self.tokens == list(self.job.turn_start[:count])

    def _decode(self, token: int, finish: str | None) -> str:
        if self._opens_turn:
            return ""
        if finish != "stop":  # the token that ends the answer is no text
            self.detokenizer.add_token(token)
        text = self.detokenizer.last_segment
        if finish is not None:
            self.detokenizer.finalize()
            text += self.detokenizer.last_segment
        return str(text)
