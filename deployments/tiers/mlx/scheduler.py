"""Schedule the sequences that run together on one generator. Lives on the engine thread, which makes every MLX call.

    add ──▶ queue ──▶ prefilling (a few at a time) ──▶ decoding ──▶ gone, its cache kept for reuse
              ▲            │                            │
              ├────────────┴────── after a failed step ─┤
              └──── memory again ◀── preempted ◀────────┘ no memory for all

`step` makes one decode step for all and prefills one chunk. A step that raises has already written to the shared
caches: the generator is thrown away, each sequence starts again from its own record of tokens, and one that is
suspected of the failure a second time ends. Memory is set aside for a sequence's tokens and `AHEAD_TOKENS` more; where
answers grow too long together, the youngest is preempted and none is admitted meanwhile. The oldest always progresses.
Invariants:
- No sequence continues from a cache that a failed step has touched.
- A client gets each token exactly once.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.decoding.generators import Sharing, build_generator
from deployments.tiers.mlx.decoding.lookup import DraftPolicy
from deployments.tiers.mlx.decoding.ragged_batch import Computer
from deployments.tiers.mlx.grammar.masker import BrokenGrammar
from deployments.tiers.mlx.memory_budget import STEP_TOKENS_MAX, UNBOUNDED, MemoryBudget, PrefillBudget
from deployments.tiers.mlx.prompt_cache.prompt_cache import detach
from deployments.tiers.mlx.prompt_cache.prompt_store import PromptStore
from deployments.tiers.mlx.sampling import build_penalties, make_sampler
from deployments.tiers.mlx.sequence import PREFILL_EVERY_S, EngineJob, SequenceState
from deployments.tiers.prompt import refuse
from reliability.thinking import ThoughtEnd
from reliability.types import Failed, Fault, FinishReason, Prefilled

_LOG = logging.getLogger(__name__)

# Of the answer, set aside from the start and kept ahead of it. A preempted one resumes once there is twice as much.
AHEAD_TOKENS = 256


class Scheduler:
    """The running sequences by the ticket of their request. `set_budget` bounds its memory and keeps prompts."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        running_max: int,
        label: str,
        ahead_tokens: int = AHEAD_TOKENS,
        step: Computer | None = None,
        drafts: bool = True,
    ) -> None:
        self._model, self._tokenizer, self._label = model, tokenizer, label
        self.running_max, self._ahead, self._step = running_max, ahead_tokens, step
        self.pace = PrefillBudget()
        self._policy, self._drafts = DraftPolicy(), drafts
        self._samplers = functools.lru_cache(maxsize=64)(make_sampler)
        self._sequences: dict[int, SequenceState] = {}  # by ticket, in order of arrival
        self._queue: deque[SequenceState] = deque()
        self._preempted: deque[SequenceState] = deque()  # the oldest first
        self._prefilling: list[SequenceState] = []
        self._by_uid: dict[int, SequenceState] = {}
        self._given_back: dict[int, Any] = {}  # the last tokens of this step, with the caches of their sequences
        self._decoded = True  # whether the last step got through its decoding
        self._budget, self.prompts = UNBOUNDED, PromptStore(bytes_max=0)
        self.share(Sharing.ALL)

    def __len__(self) -> int:
        return len(self._sequences)

    def share(self, sharing: Sharing) -> None:
        """Let sequences share so much from now on. Only while there is none."""
        self._sharing, self.running_max = sharing, 1 if sharing is Sharing.NONE else self.running_max
        self._generator = self._new_generator()

    def set_budget(self, budget: MemoryBudget, prompts: PromptStore) -> None:
        """Keep within `budget` from now on, and keep prompts for reuse."""
        self._budget, self.prompts = budget, prompts

    def trim(self) -> None:
        """Release the prompts that are kept for reuse, and the buffers that MLX keeps."""
        self.prompts.shrink(0)
        mx.clear_cache()

    def can_admit(self, job: EngineJob) -> bool:
        """Return whether one more sequence may run: it fits alone at its longest, and next to the others now."""
        if len(self) >= self.running_max or self._preempted:
            return False
        lengths = [*self._list_lengths(), job.tokens_kept(self._ahead)]
        return self._budget.fits([job.tokens_max]) and self._budget.fits(lengths)

    def add(self, ticket: int, job: EngineJob) -> None:
        """Let a request run. What was kept for reuse gives way to it."""
        sequence = SequenceState(ticket, job, self._tokenizer.detokenizer)
        self._sequences[ticket] = sequence
        self._queue.append(sequence)
        self._shrink_prompts()

    def remove(self, ticket: int, failed: Failed | None = None) -> None:
        """Take a sequence out, between two steps, and send its request why it `failed`. Its cache is kept."""
        if (sequence := self._sequences.pop(ticket, None)) is None:
            return
        if failed is not None:
            sequence.fail(failed)
        self._take_out(sequence)

    def estimate_prefill_s(self, job: EngineJob) -> float:
        """Estimate how long its prompt will take, less what of it is kept."""
        kept = self.prompts.memory.count_usable(job.prompt, job.reuse.owner)
        return self.pace.estimate_s(len(job.prompt) - kept)

    def report_waiting(self, later: Iterable[EngineJob]) -> None:
        """Send each request that waits, also `later` ones, which aren't admitted, how many are before it, when due."""
        now_s, queued = time.monotonic(), [one.job for one in self._queue]
        for ahead, job in (*enumerate(queued, len(self._prefilling)), *enumerate(later, len(self))):
            if now_s >= job.report_s:
                job.report_s, left_s = now_s + PREFILL_EVERY_S, self.estimate_prefill_s(job)
                job.sink([Prefilled(tokens=0, of_tokens=len(job.prompt), left_s=left_s, waits_behind=ahead)])

    def find_overdue(self, now_s: float) -> list[int]:
        return [ticket for ticket, sequence in self._sequences.items() if now_s >= sequence.job.deadline_s]

    def step(self) -> int:
        """Make one decode step for all, and one chunk of prefill; return how many tokens came out. Raises what the
        model raises; then `recover` is to be called."""
        self._preempt_or_resume()
        self._feed()
        progress, responses = self._advance()
        now_s = time.monotonic()
        for response in progress:
            self._note_progress(response, now_s)
        # Both generators give out only what was sampled before an error; what is complete by then is an answer.
        self._given_back = {one.uid: one for one in responses if one.finish_reason is not None}
        for response in responses:
            self._take(response, now_s)
        self._given_back = {}
        for sequence in [one for one in self._by_uid.values() if one.error is not None]:
            self.remove(sequence.ticket, _explain_error(sequence))
        return len(responses)

    def recover(self, failed: Failed) -> None:
        """Start all sequences again after a step that raised; end those suspected twice with `failed`."""
        filling = self._prefilling
        ran = [one for one in self._list_running() if one not in self._queue]
        decoding = [one for one in ran if one not in filling]
        suspects = filling if filling and self._decoded else decoding
        self._generator = self._new_generator()
        self._by_uid, self._prefilling = {}, []
        ended = {one.ticket for one in suspects if one.suspected}
        for sequence in suspects:
            sequence.suspected = True
        # Those that were being prefilled come last: if one of them did it, the others are safe by then.
        again = [one for one in (*decoding, *filling) if one.ticket not in ended]
        self._queue.extendleft(reversed(again))
        for ticket in ended:
            self._sequences.pop(ticket).fail(failed)

    def fail_all(self, failed: Failed) -> None:
        sequences, self._sequences, self._by_uid = list(self._sequences.values()), {}, {}
        self._queue.clear()
        self._preempted.clear()
        self._prefilling = []
        self._generator = self._new_generator()
        for sequence in sequences:
            sequence.fail(failed)

    def _advance(self) -> tuple[list[Any], list[Any]]:
        decoding = len(self._by_uid) > len(self._prefilling)
        # Several share a chunk only where all of them fit into it.
        self._generator.prefill_step_size = self.pace.tokens if len(self._prefilling) < 2 else self.pace.tokens_max
        spent: Any = None
        try:
            with self._generator.stats() as spent:
                progress, responses = self._generator.next()
        finally:
            self._decoded = not decoding or bool(spent and spent.generation_tokens)
        self.pace.learn(spent.prompt_tokens, spent.prompt_time)
        return progress, responses

    def _list_running(self) -> list[SequenceState]:
        return [one for one in self._sequences.values() if one not in self._preempted]

    def _list_lengths(self, more: int = 0) -> list[int]:
        return [one.tokens_kept(self._ahead + more) for one in self._list_running()]

    def _preempt_or_resume(self) -> None:
        """Preempt the youngest while not all fit; resume the oldest preempted once it fits."""
        while len(self._list_running()) > 1 and not self._budget.fits(self._list_lengths()):
            sequence = self._list_running()[-1]
            self._take_out(sequence, keep=False)  # a copy of its cache is what there is no memory for
            self._preempted.appendleft(sequence)
        if self._preempted:
            more = self._ahead
            lengths = [*self._list_lengths(more), self._preempted[0].tokens_kept(2 * more)]
            if self._budget.fits(lengths) or not self._list_running():
                self._queue.append(self._preempted.popleft())
        self._shrink_prompts()

    def _shrink_prompts(self) -> None:
        self.prompts.shrink(max(0, self._budget.spare_bytes(self._list_lengths())))

    def _feed(self) -> None:
        """Give the idle generator the first prompt that waits, and those behind it that fit into one chunk with it."""
        if self._prefilling or not self._queue:
            return
        crowded = len(self._queue) > len(self._by_uid)  # then a step may prefill twice as much
        tokens_max, longest = min((1 + crowded) * self.pace.tokens, self.pace.tokens_max), 0
        while self._queue:
            sequence = self._queue[0]
            record, reuse = sequence.record, sequence.job.reuse
            if self.prompts.fetch(record, reuse, alone=not self._by_uid):
                break
            cache, held = self.prompts.take(record, reuse.owner)
            longest = max(longest, len(record) - held)
            if self._prefilling and (sequence.suspected or longest * (len(self._prefilling) + 1) > tokens_max):
                break
            self._queue.popleft()
            try:
                self._insert(sequence, record, cache, held)
            except Exception as error:  # the generator won't take it: that harms no other sequence
                del self._sequences[sequence.ticket]
                sequence.fail(_build_failed("take the request", error))
            if sequence.suspected or self._sharing is not Sharing.ALL:
                break

    def _insert(self, sequence: SequenceState, tokens: list[int], cache: Any, held: int) -> None:
        """Put a sequence into the generator. `cache` holds the first `held` of its tokens."""
        job, written = sequence.job, len(sequence.tokens)
        cuts = [held, *(c for c in job.reuse.checkpoints if held < c < len(tokens)), len(tokens)]
        # One shared object for equal unseeded settings: the whole batch is then sampled in one call.
        unseeded = job.sampling.seed is None
        sampler = self._samplers(job.sampling) if unseeded else make_sampler(job.sampling, written)
        (uid,) = self._generator.insert_segments(
            [[tokens[a:b] for a, b in itertools.pairwise(cuts)]],
            max_tokens=[job.max_tokens - written],
            caches=None if cache is None else [cache],
            all_tokens=[tokens[:held]],
            samplers=[sampler],
            logits_processors=[sequence.build_processors(build_penalties(job.sampling, len(job.prompt)))],
        )
        sequence.cached_tokens = held if sequence.cached_tokens is None else sequence.cached_tokens
        sequence.begin_prefill(held, time.monotonic())
        self._by_uid[uid] = sequence
        self._prefilling.append(sequence)

    def _note_progress(self, response: Any, now_s: float) -> None:
        sequence = self._by_uid.get(response.uid)
        if sequence is None:
            return
        if response.end_of_prompt:
            self._prefilling.remove(sequence)
            return
        done, of = response.progress
        job, here = sequence.job, len(sequence.job.prompt) + len(sequence.tokens) - of + done
        sequence.report_prefill(here, now_s)
        if not response.end_of_segment or here not in job.reuse.checkpoints:
            return
        if not self.prompts.memory.holds(job.prompt[:here], job.reuse.owner):
            cache, tokens = self._generator.extract_cache([response.uid])[response.uid]
            self._keep(sequence, tokens, cache)

    def _take(self, response: Any, now_s: float) -> None:
        sequence = self._by_uid.get(response.uid)
        if sequence is None:
            return
        if response.finish_reason == "stop" and sequence.has_only_thought:
            self._close_thought(sequence, ThoughtEnd.MODEL, now_s)
            return
        try:
            lead = getattr(response, "lead", None)  # mlx-lm's own generator, for caches of other kinds, tells none
            reason = sequence.take(response.token, response.finish_reason, response.logprobs, lead)
        except Exception as error:  # reading one answer's text harms no other answer
            self.remove(sequence.ticket, _build_failed("read the answer", error))
            return
        ended = response.finish_reason is not None
        if ended:  # the generator has let go of it by itself
            del self._by_uid[response.uid]
        if reason is not None:
            self._deliver(sequence, reason, now_s)
        else:
            sequence.flush(now_s)
        if ended:
            self._keep(sequence, response.all_tokens, response.prompt_cache)
        elif reason is None and sequence.job.reader.thoughts.thinking and (why := sequence.thought.due):
            self._close_thought(sequence, why, now_s)

    def _deliver(self, sequence: SequenceState, reason: FinishReason, now_s: float) -> None:
        """Send the last event before anything else that may take time, or go wrong."""
        del self._sequences[sequence.ticket]
        sequence.flush(now_s, last=sequence.build_finish(reason, self._label))
        self._take_out(sequence)

    def _close_thought(self, sequence: SequenceState, why: ThoughtEnd, now_s: float) -> None:
        """Write the end of the thought for the model, if it hasn't, which goes on behind it from its kept cache."""
        self._take_out(sequence)
        close = sequence.job.thought.close if sequence.job.reader.thoughts.thinking else ()
        sequence.thought.close(why, len(sequence.tokens) + len(close))
        for token in close:
            full = len(sequence.tokens) + 1 >= sequence.job.max_tokens
            reason = sequence.take(token, "length" if full else None)
            if reason is not None:
                self._deliver(sequence, reason, now_s)
                return
        self._queue.appendleft(sequence)

    def _take_out(self, sequence: SequenceState, *, keep: bool = True) -> None:
        """Take it out of the queue or the generator; `keep` what it has computed."""
        for line in (self._queue, self._preempted):
            if sequence in line:
                line.remove(sequence)
        uid = next((uid for uid, one in self._by_uid.items() if one is sequence), None)
        if uid is None:
            return
        del self._by_uid[uid]
        self._prefilling = [one for one in self._prefilling if one is not sequence]
        kept: dict[int, Any] = {}
        if keep and sequence.error is None:
            # Of an answer that ends before the last token of its step, the generator may have let go already.
            last = self._given_back.get(uid)
            kept = {uid: (last.prompt_cache, last.all_tokens)} if last else self._generator.extract_cache([uid])
        self._generator.remove([uid])
        for cache, tokens in kept.values():
            self._keep(sequence, tokens, cache)

    def _keep(self, sequence: SequenceState, tokens: list[int], cache: Any) -> None:
        if tokens:
            self.prompts.put(tokens, detach(cache), sequence.job.reuse)
            self._shrink_prompts()

    def _new_generator(self) -> Any:
        return build_generator(
            self._model,
            self._tokenizer.eos_token_ids,
            self._sharing,
            running_max=self.running_max,
            step_tokens_max=STEP_TOKENS_MAX,
            policy=self._policy if self._drafts else None,
            step=self._step,
        )


def _explain_error(sequence: SequenceState) -> Failed:
    if isinstance(sequence.error, BrokenGrammar) and sequence.job.constraint is not None:
        param = "tools" if sequence.job.constraint.demand.schema is None else "response_format"
        return refuse(param, f"this tier can't enforce {param}: {sequence.error}", Fault.UNSUPPORTED).failed
    return _build_failed("choose the next token", sequence.error)


def _build_failed(what: str, error: Exception | None) -> Failed:
    _LOG.error("the engine could not %s", what, exc_info=error)
    return Failed(fault=Fault.SERVER_ERROR, message=f"the engine could not {what} ({type(error).__name__})")
