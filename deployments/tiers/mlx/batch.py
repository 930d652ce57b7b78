"""The sequences that run at once, on mlx-lm's `BatchGenerator`. Lives on the engine thread, which makes every MLX call.

    add ──▶ queue ──▶ filling (a few at a time) ──▶ decoding ──▶ gone, its cache kept for reuse
              ▲            │                         │
              ├────────────┴──── after a failed step ┤
              └──── memory again ◀── parked ◀────────┘ no memory for all

Theory of operation. `step` makes one decode step for all running sequences and prefills one chunk of what waits; that
is how long anything else on the thread has to wait, so the chunk is sized from the measured prefill speed to take about
half a second (`Pace`). A long prompt is prefilled by itself, chunk by chunk. Short ones that fit into a chunk together
share it, since each step costs those that decode as much again (eight clients that begin at once: the last one's first
token after 1.1 s, after 3 s one by one; 2 cores, 2026-11-22). A prompt is looked up when its turn comes and not before,
so the second of several that begin alike finds what the first has left behind (`prompt_cache.py`).

A step that raises has already written to the caches that all sequences share, so none of them can be trusted any more:
the generator is thrown away, and each sequence starts again from its own record of tokens (`recover`). Those that may
have caused it are struck: the prompt being prefilled if that is what raised, else all that were decoding. A sequence
that is struck a second time ends. So every failure strikes somebody, nobody is struck three times, and a step that
fails for ever ends everybody.

Memory is set aside for what there is of a sequence and `AHEAD_TOKENS` more, not for all that it may still write: few
requests name how long their answer will be, and a server's default of many thousand tokens, set aside, would let one
request at a time run in a small budget. Where the answers do grow too long together, the youngest sequence is parked:
it leaves the generator, keeps its own record of tokens, and is computed again from it when there is memory. The oldest
is never parked, and each fits alone, so somebody always gets on. Nobody new is admitted while anybody is parked.

What must never happen: a sequence that goes on from a cache that a failed step has touched; a token that a client has
seen twice or not at all.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.drafting import Draft, DraftGenerator
from deployments.tiers.mlx.kv import MlxCaches, detached, layout_of
from deployments.tiers.mlx.memory_budget import Layout, Room
from deployments.tiers.mlx.pace import STEP_TOKENS_MAX, Pace
from deployments.tiers.mlx.prompt_cache import PromptCache
from deployments.tiers.mlx.sampling import Sampling, make_sampler, penalties
from deployments.tiers.mlx.sequence import WINDOW_S, Job, Row
from reliability.types import Failed, Fault, Finish, FinishReason

__all__ = ["AHEAD_TOKENS", "WINDOW_S", "Batch", "Job"]

_LOG = logging.getLogger(__name__)

# Of the answer, set aside from the start and kept ahead of it. A parked sequence goes on once there is twice as much:
# nobody is to be parked again at once.
AHEAD_TOKENS = 256


@dataclass(frozen=True, slots=True)
class _Begun:
    """What there is of a sequence when its turn comes: its tokens, and a cache that holds the first `held` of them."""

    tokens: list[int]
    cache: Any
    held: int

    @property
    def left(self) -> int:
        return len(self.tokens) - self.held


class Batch:
    """The running sequences by the ticket of their request.

    `prefills_together`: short prompts may share a chunk. `layout` is measured on the first answer. With `furnish` it
    gets a bound on its memory and keeps prompts for reuse; before, it has neither.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        running_max: int,
        label: str,
        ahead_tokens: int = AHEAD_TOKENS,
        draft: Draft | None = None,
    ) -> None:
        self._model, self._tokenizer, self._label, self._draft = model, tokenizer, label, draft
        self._running_max, self._ahead = running_max, ahead_tokens
        self._pace = Pace()
        self._samplers = functools.lru_cache(maxsize=64)(make_sampler)
        self._rows: dict[int, Row] = {}  # by ticket, in order of arrival
        self._queue: deque[Row] = deque()
        self._parked: deque[Row] = deque()  # the oldest first
        self._filling: list[Row] = []
        self._by_uid: dict[int, Row] = {}
        self.prefills_together = draft is None
        self._decoded = True  # whether the last step got through its decoding
        self._room: Room | None = None
        self._prompts: PromptCache | None = None
        self.layout: Layout | None = None
        self._generator = self._new_generator()

    def __len__(self) -> int:
        return len(self._rows)

    def furnish(self, room: Room, kept_bytes_max: int | None = None) -> None:
        """From now on keep within `room`, and keep prompts for reuse, up to so many bytes."""
        kept_bytes_max = room.kept_bytes_max() if kept_bytes_max is None else kept_bytes_max
        self._room, self._prompts = room, PromptCache(MlxCaches(), bytes_max=kept_bytes_max)

    def trim(self) -> None:
        """Let the prompts go that are kept for reuse, and the buffers that MLX keeps."""
        if self._prompts is not None:
            self._prompts.shrink(0)
        importlib.import_module("mlx.core").clear_cache()

    def has_room(self, job: Job) -> bool:
        """Whether one more sequence may run: there is a place, it fits alone at its longest, and now beside the others
        with the beginning of its answer."""
        if len(self) >= self._running_max or self._parked:
            return False
        room = self._room
        return room is None or (
            room.fits([job.tokens_max]) and room.fits([*self._lengths(), job.tokens_kept(self._ahead)])
        )

    def add(self, ticket: int, job: Job) -> None:
        """Let a request run. What was kept for reuse gives way to it."""
        row = Row(ticket, job, self._tokenizer.detokenizer)
        self._rows[ticket] = row
        self._queue.append(row)
        self._make_way()

    def remove(self, ticket: int) -> None:
        """Take a sequence out, between two steps; the others don't notice. What it has computed is kept."""
        row = self._rows.pop(ticket, None)
        if row is not None:
            self._take_out(row)

    def end(self, ticket: int, failed: Failed) -> None:
        """Take a sequence out and tell its request why."""
        row = self._rows.pop(ticket, None)
        if row is not None:
            row.flush(0.0, last=_spent(failed, row))
            self._take_out(row)

    def overdue(self, now_s: float) -> list[int]:
        """The tickets whose deadline has passed."""
        return [ticket for ticket, row in self._rows.items() if now_s >= row.job.deadline_s]

    def step(self) -> int:
        """One decode step for all, and one chunk of prefill; how many tokens came out. Raises what the model raises;
        then `recover` is to be called."""
        self._keep_within()
        self._feed()
        progress, responses = self._advance()
        for response in progress:
            self._progressed(response)
        now_s = time.monotonic()
        # Both generators give out only what was drawn before an error; an answer that is whole by then is one.
        for response in responses:
            self._take(response, now_s)
        for row in [row for row in self._by_uid.values() if row.error is not None]:
            self.end(row.ticket, _broken("choose the next token", row.error))
        return len(responses)

    def recover(self, failed: Failed) -> None:
        """After a step that raised: start everybody again who may, on a new generator; end the others with `failed`."""
        ran, filling = [row for row in self._running() if row not in self._queue], self._filling
        suspects = filling if filling and self._decoded else [row for row in ran if row not in filling]
        self._generator = self._new_generator()
        self._by_uid, self._filling = {}, []
        ended = {row.ticket for row in suspects if row.struck}
        for row in suspects:
            row.struck = True
        # Those that were being prefilled come last: if one of them did it, the others are safe by then.
        again = [row for row in ran if row.ticket not in ended and row not in filling]
        again += [row for row in filling if row.ticket not in ended]
        self._queue.extendleft(reversed(again))
        for ticket in ended:
            row = self._rows.pop(ticket)
            row.flush(0.0, last=_spent(failed, row))

    def fail_all(self, failed: Failed) -> None:
        """End every sequence."""
        rows, self._rows, self._by_uid = list(self._rows.values()), {}, {}
        self._queue.clear()
        self._parked.clear()
        self._filling = []
        self._generator = self._new_generator()
        for row in rows:
            row.flush(0.0, last=_spent(failed, row))

    def _advance(self) -> tuple[list[Any], list[Any]]:
        """mlx-lm's step. Decoding comes first in it and is counted when it has ended: that tells which part raised."""
        decoding = len(self._by_uid) > len(self._filling)
        # Several share a chunk only where all of them fit into it.
        self._generator.prefill_step_size = self._pace.tokens if len(self._filling) < 2 else STEP_TOKENS_MAX
        spent: Any = None
        try:
            with self._generator.stats() as spent:
                progress, responses = self._generator.next()
        finally:
            self._decoded = not decoding or bool(spent and spent.generation_tokens)
        self._pace.saw(spent.prompt_tokens, spent.prompt_time)
        return progress, responses

    def _running(self) -> list[Row]:
        return [row for row in self._rows.values() if row not in self._parked]

    def _lengths(self, more: int = 0) -> list[int]:
        return [row.tokens_kept(self._ahead + more) for row in self._running()]

    def _keep_within(self) -> None:
        """Park the youngest while what runs doesn't fit, and let the oldest parked one go on once it does."""
        if self._room is None:
            return
        while len(self._running()) > 1 and not self._room.fits(self._lengths()):
            row = self._running()[-1]
            self._take_out(row, keep=False)  # a copy of its cache is what there is no memory for
            self._parked.appendleft(row)
        if self._parked:
            row, more = self._parked[0], self._ahead
            if self._room.fits([*self._lengths(more), row.tokens_kept(2 * more)]) or not self._running():
                self._queue.append(self._parked.popleft())
        self._make_way()

    def _make_way(self) -> None:
        if self._room is not None and self._prompts is not None:
            self._prompts.shrink(max(0, self._room.spare_bytes(self._lengths())))

    def _feed(self) -> None:
        """Give the generator its next prompts, once it has finished the last ones: the first that waits, and as many
        behind it as fit into one chunk with it, each padded to the longest."""
        if self._filling or not self._queue:
            return
        tokens_max, longest = self._chunk_tokens(), 0
        while self._queue:
            row = self._queue[0]
            begun = self._begin(row)
            longest = max(longest, begun.left)
            if self._filling and (row.struck or longest * (len(self._filling) + 1) > tokens_max):
                break
            self._queue.popleft()
            try:
                self._insert(row, begun)
            except Exception as error:  # the generator won't take it: that harms nobody else
                del self._rows[row.ticket]
                row.flush(0.0, last=_spent(_broken("take the request", error), row))
            if row.struck or not self.prefills_together:
                break

    def _chunk_tokens(self) -> int:
        """How many tokens may be prefilled together in a step: twice as long a one where more wait than decode."""
        crowd = len(self._queue) > len(self._by_uid)
        return min((1 + crowd) * self._pace.tokens, STEP_TOKENS_MAX)

    def _begin(self, row: Row) -> _Begun:
        tokens = [*row.job.prompt, *row.tokens]
        cache, held = (None, 0) if self._prompts is None else self._prompts.take(tokens)
        return _Begun(tokens, cache, held)

    def _insert(self, row: Row, begun: _Begun) -> None:
        tokens, held = begun.tokens, begun.held
        cuts = [held, *(c for c in row.job.checkpoints if held < c < len(tokens)), len(tokens)]
        (uid,) = self._generator.insert_segments(
            [[tokens[a:b] for a, b in itertools.pairwise(cuts)]],
            max_tokens=[row.job.max_tokens - len(row.tokens)],
            caches=None if begun.cache is None else [begun.cache],
            all_tokens=[tokens[:held]],
            samplers=[self._sampler_of(row.job.sampling, len(row.tokens))],
            logits_processors=[row.guarded(penalties(row.job.sampling, len(row.job.prompt)))],
        )
        row.cached_tokens = held if row.cached_tokens is None else row.cached_tokens
        self._by_uid[uid] = row
        self._filling.append(row)

    def _progressed(self, response: Any) -> None:
        row = self._by_uid.get(response.uid)
        if row is None:
            return
        if response.end_of_prompt:
            self._filling.remove(row)
        elif response.end_of_segment and self._prompts is not None:
            done, of = response.progress
            here = len(row.job.prompt) + len(row.tokens) - of + done
            if here in row.job.checkpoints and not self._prompts.holds(row.job.prompt[:here]):
                cache, tokens = self._generator.extract_cache([response.uid])[response.uid]
                self._keep(tokens, cache)

    def _take(self, response: Any, now_s: float) -> None:
        row = self._by_uid.get(response.uid)
        if row is None:
            return
        try:
            reason = row.take(response.token, response.finish_reason, response.logprobs)
        except Exception as error:  # reading one answer's text harms nobody else's
            self.end(row.ticket, _broken("read the answer", error))
            return
        ended = response.finish_reason is not None
        if ended:  # the generator has let go of it by itself
            del self._by_uid[response.uid]
        if reason is not None:
            self._deliver(row, reason, now_s)
        else:
            row.flush(now_s)
        if ended:
            self._finished(response)
        elif reason is None and row.thinks_too_long:
            self._close_thinking(row, now_s)

    def _deliver(self, row: Row, reason: FinishReason, now_s: float) -> None:
        """The last event leaves before anything else that may take time, or go wrong."""
        del self._rows[row.ticket]
        row.flush(now_s, last=Finish(reason=reason, usage=row.usage(), model=self._label, notes=row.notes))
        self._take_out(row)

    def _close_thinking(self, row: Row, now_s: float) -> None:
        """Write the end of the thinking for the model, and let it go on from there."""
        self._take_out(row)
        row.closed_thinking = True
        for token in row.job.think_close:
            full = len(row.tokens) + 1 >= row.job.max_tokens
            reason = row.take(token, "length" if full else None)
            if reason is not None:
                self._deliver(row, reason, now_s)
                return
        self._queue.appendleft(row)

    def _finished(self, response: Any) -> None:
        """Keep what the generator gives back with the last token."""
        if self.layout is None:
            self.layout = layout_of(response.prompt_cache, len(response.all_tokens))
        self._keep(response.all_tokens, response.prompt_cache)

    def _take_out(self, row: Row, *, keep: bool = True) -> None:
        """Out of the queue or the generator; `keep` what it has computed."""
        for line in (self._queue, self._parked):
            if row in line:
                line.remove(row)
        uid = next((uid for uid, one in self._by_uid.items() if one is row), None)
        if uid is None:
            return
        del self._by_uid[uid]
        self._filling = [one for one in self._filling if one is not row]
        kept = {}
        if keep and self._prompts is not None and row.error is None:
            kept = self._generator.extract_cache([uid])
        self._generator.remove([uid])
        for cache, tokens in kept.values():
            self._keep(tokens, cache)

    def _keep(self, tokens: list[int], cache: Any) -> None:
        if self._prompts is not None and tokens:
            self._prompts.put(tokens, detached(cache))
            self._make_way()

    def _sampler_of(self, sampling: Sampling, drawn: int) -> Any:
        # One shared object for equal unseeded settings: mlx-lm then samples the whole batch in one call.
        return self._samplers(sampling) if sampling.seed is None else make_sampler(sampling, drawn)

    def _new_generator(self) -> Any:
        ends = self._tokenizer.eos_token_ids
        if self._draft is not None:
            return DraftGenerator(self._model, self._draft, stop_tokens=ends, prefill_step_size=STEP_TOKENS_MAX)
        # By name: the package's attribute `generate` is a function that hides the module.
        module: Any = importlib.import_module("mlx_lm.generate")
        # Otherwise each generator wires 75 % of the machine's memory for itself, and there is one in every tier.
        module.maybe_set_recommended_wired_limit = lambda: None
        return module.BatchGenerator(
            self._model,
            stop_tokens=[[token] for token in ends],
            completion_batch_size=self._running_max,
            prefill_batch_size=self._running_max,
            prefill_step_size=STEP_TOKENS_MAX,
        )


def _broken(what: str, error: Exception | None) -> Failed:
    _LOG.error("the engine could not %s", what, exc_info=error)
    return Failed(fault=Fault.SERVER_ERROR, message=f"the engine could not {what} ({type(error).__name__})")


def _spent(failed: Failed, row: Row) -> Failed:
    return dataclasses.replace(failed, usage=row.usage())
