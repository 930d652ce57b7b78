"""The sequences that run at once, on mlx-lm's `BatchGenerator`. Lives on the engine thread, which makes every
MLX call.

Theory of operation. `step` makes one decode step for all running sequences and prefills one chunk of one
waiting prompt; that is how long anything else on the thread has to wait, so the chunk is sized from the
measured prefill speed to take about half a second (`Pace`). Prompts are prefilled one at a time: the first of
several waiting clients gets its first token soonest, and no prompt is padded to another's length.

A step that raises has already written to the caches that all sequences share, so none of them can be trusted
any more: the generator is thrown away with all its sequences (`fail_all`) and a new one is made.

Text leaves a sequence at once for its first piece and then in windows of `WINDOW_S`, since each message to
another process costs more than a token.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.tiers.answer import AnswerReader
from deployments.tiers.merging import merged
from deployments.tiers.prompt import Sampling
from reliability.types import Event, Failed, Fault, Finish, FinishReason, Usage

__all__ = ["WINDOW_S", "Batch", "Job", "Pace"]

_LOG = logging.getLogger(__name__)

WINDOW_S = 0.03


@dataclass(slots=True, kw_only=True)
class Job:
    """One request as the engine takes it. `sink` is called on the engine thread with each chunk of events."""

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    reader: AnswerReader
    sink: Callable[[list[Event]], None]
    deadline_s: float = float("inf")


@dataclass(slots=True)
class Pace:
    """How many prompt tokens fit into one step, learned from the last one."""

    target_s: float = 0.5
    tokens_min: int = 8
    tokens_max: int = 512
    tokens: int = 8

    def saw(self, tokens: int, seconds: float) -> None:
        """Learn from a chunk. A short one says little about speed, unless even it took too long."""
        if seconds <= 0 or (tokens < self.tokens // 2 and seconds < self.target_s):
            return
        fits = int(tokens / seconds * self.target_s)
        # One reading counts for so much only: a lucky one must not stall everybody, a busy moment not slow us down.
        bounded = max(self.tokens // 2, min(fits, 4 * self.tokens))
        self.tokens = max(self.tokens_min, min(bounded, self.tokens_max))


@dataclass(slots=True, eq=False)
class _Sequence:
    job: Job
    detokenizer: Any
    pending: list[Event] = field(default_factory=list)
    left_s: float = 0.0  # when something last left; 0 before the first
    tokens: int = 0
    reasoning_tokens: int = 0

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self.job.prompt),
            completion_tokens=self.tokens,
            reasoning_tokens=self.reasoning_tokens,
        )

    def take(self, token: int, finish: str | None) -> FinishReason | None:
        """Turn one token into events; the reason if the answer ends with it."""
        self.tokens += 1
        self.reasoning_tokens += self.job.reader.thinking
        text = self._text(token, finish)
        reader = self.job.reader
        self.pending += reader.feed(text)
        if finish is not None or reader.done:
            truncated = finish == "length" and not reader.done
            self.pending += reader.finish(truncated=truncated)
            return _reason(reader, truncated)
        return None

    def flush(self, now_s: float, *, last: Event | None = None) -> None:
        """Send what is due: the first piece at once, the following in windows, everything with the last
        event.
        """
        due = last is not None or now_s - self.left_s >= WINDOW_S
        events = merged(self.pending) if due else []
        if last is not None:
            events.append(last)
        if events:
            self.pending, self.left_s = [], now_s
            self.job.sink(events)

    def _text(self, token: int, finish: str | None) -> str:
        if finish != "stop":  # the token that ends the answer is no text
            self.detokenizer.add_token(token)
        text = self.detokenizer.last_segment
        if finish is not None:
            self.detokenizer.finalize()
            text += self.detokenizer.last_segment
        return str(text)


def _reason(reader: AnswerReader, truncated: bool) -> FinishReason:
    if truncated:
        return FinishReason.LENGTH
    return FinishReason.TOOL_CALLS if reader.calls else FinishReason.STOP


class Batch:
    """The running sequences by the ticket of their request."""

    def __init__(self, model: Any, tokenizer: Any, *, running_max: int, label: str) -> None:
        self._model, self._tokenizer, self._label = model, tokenizer, label
        self._running_max = running_max
        self._pace = Pace()
        self._samplers = functools.lru_cache(maxsize=64)(_sampler)
        self._uids: dict[int, int] = {}
        self._sequences: dict[int, _Sequence] = {}
        self._generator = self._new_generator()

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def has_room(self) -> bool:
        """Whether one more sequence may run."""
        return len(self) < self._running_max

    def add(self, ticket: int, job: Job) -> None:
        """Let a request run, or fail it alone if the generator won't take it."""
        try:
            (uid,) = self._generator.insert_segments(
                [[list(job.prompt)]], max_tokens=[job.max_tokens], samplers=[self._sampler_of(job.sampling)]
            )
        except Exception as error:
            job.sink([_broken("take the request", error)])
            return
        self._uids[ticket] = uid
        self._sequences[uid] = _Sequence(job, self._tokenizer.detokenizer)

    def remove(self, ticket: int) -> None:
        """Take a sequence out, between two steps; the others don't notice."""
        uid = self._uids.pop(ticket, None)
        if uid is not None:
            del self._sequences[uid]
            self._generator.remove([uid])

    def end(self, ticket: int, failed: Failed) -> None:
        """Take a sequence out and tell its request why."""
        if ticket in self._uids:
            sequence = self._sequences[self._uids[ticket]]
            self.remove(ticket)
            sequence.flush(0.0, last=_spent(failed, sequence))

    def overdue(self, now_s: float) -> list[int]:
        """The tickets whose deadline has passed."""
        return [ticket for ticket, uid in self._uids.items() if now_s >= self._sequences[uid].job.deadline_s]

    def step(self) -> None:
        """One decode step for all, and one chunk of prefill. Raises what the model raises."""
        with self._generator.stats() as spent:
            _, responses = self._generator.next()
        self._pace.saw(spent.prompt_tokens, spent.prompt_time)
        self._generator.prefill_step_size = self._pace.tokens
        now_s = time.monotonic()
        for response in responses:
            self._take(response, now_s)

    def fail_all(self, failed: Failed) -> None:
        """After a step that raised: no cache can be trusted, so every sequence ends and the generator is
        replaced.
        """
        sequences, self._sequences, self._uids = list(self._sequences.values()), {}, {}
        self._generator = self._new_generator()
        for sequence in sequences:
            sequence.flush(0.0, last=_spent(failed, sequence))

    def _take(self, response: Any, now_s: float) -> None:
        sequence = self._sequences.get(response.uid)
        if sequence is None:
            return
        try:
            reason = sequence.take(response.token, response.finish_reason)
        except Exception as error:  # reading one answer's text harms nobody else's
            self._forget(response.uid, generating=response.finish_reason is None)
            sequence.flush(now_s, last=_spent(_broken("read the answer", error), sequence))
            return
        if reason is None:
            sequence.flush(now_s)
            return
        self._forget(response.uid, generating=response.finish_reason is None)
        sequence.flush(now_s, last=Finish(reason=reason, usage=sequence.usage(), model=self._label))

    def _forget(self, uid: int, *, generating: bool) -> None:
        ticket = next(t for t, u in self._uids.items() if u == uid)
        del self._uids[ticket], self._sequences[uid]
        if generating:
            self._generator.remove([uid])

    def _sampler_of(self, sampling: Sampling) -> Any:
        # One shared object for equal unseeded settings: mlx-lm then samples the whole batch in one call.
        return self._samplers(sampling) if sampling.seed is None else _sampler(sampling)

    def _new_generator(self) -> Any:
        # By name: the package's attribute `generate` is a function that hides the module.
        module: Any = importlib.import_module("mlx_lm.generate")
        # Otherwise each generator wires 75 % of the machine's memory for itself, and there is one in every
        # tier.
        module.maybe_set_recommended_wired_limit = lambda: None
        return module.BatchGenerator(
            self._model,
            stop_tokens=[[token] for token in self._tokenizer.eos_token_ids],
            completion_batch_size=self._running_max,
            prefill_batch_size=1,
            prefill_step_size=self._pace.tokens,
        )


def _broken(what: str, error: Exception) -> Failed:
    _LOG.error("the engine could not %s", what, exc_info=error)
    return Failed(fault=Fault.SERVER_ERROR, message=f"the engine could not {what} ({type(error).__name__})")


def _spent(failed: Failed, sequence: _Sequence) -> Failed:
    return dataclasses.replace(failed, usage=sequence.usage())


def _sampler(sampling: Sampling) -> Callable[[Any], Any] | None:
    """A function from log-probabilities to tokens; None for the most likely token.

    With a seed it draws from a stream of its own, so that its tokens don't depend on who else is running.
    """
    if sampling.temperature == 0:
        return None
    import mlx.core as mx
    from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p

    keys = None if sampling.seed is None else [mx.random.key(sampling.seed % 2**63)]

    def sample(logprobs: Any) -> Any:
        if sampling.top_p < 1:
            logprobs = apply_top_p(logprobs, sampling.top_p)
        if sampling.min_p > 0:
            logprobs = apply_min_p(logprobs, min(sampling.min_p, 1.0))
        if 0 < sampling.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, sampling.top_k)
        now = None
        if keys is not None:
            keys[0], now = mx.random.split(keys[0])
        return mx.random.categorical(logprobs * (1 / sampling.temperature), key=now)

    return sample
