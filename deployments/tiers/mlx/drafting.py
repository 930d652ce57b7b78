"""Speculative decoding: a small model drafts a few tokens, the large one reads them in one step and keeps what it would
have drawn itself.

    read in one step     y   d1   d2   d3      y: drawn last; d: the draft's guesses
    drawn behind each    e1  e2   e3           e1 = d1 and e2 = d2, so their places stand; e3 differs from d3: the end

It has the part of `BatchGenerator`'s interface that `batch.py` uses, so nothing else knows of it; mlx-lm's own
generator takes no draft. Sequences take turns within a step instead of sharing one, since each keeps another number of
its guesses: what a draft gains is for one agent, what a batch gains for eight.

At each place one token is drawn, once, in order, by the sequence's own sampler behind its own processors. So the answer
is the one that there would be without a draft, under a grammar and with a seed too; a bad draft costs time and nothing
else. The draft itself guesses greedily, without the grammar: where it is wrong, nothing of it stands.

Not measured: what it gains. That takes two models of one family, and here there is one (as its own draft it takes a
fifth of the steps at four guesses, and no less time).

What must never happen: a token that is drawn behind a processor's error, without the grammar. A turn ends there, and
the batch ends its sequence.

Nor a cache that holds other tokens than it says. After each step the model's cache holds `tokens`,
and the draft's the first `drafted` of them; what was read beyond is cut off, so both must be caches
that can be cut (`is_cuttable`). A cache for two is the layers of both, one list: it is kept,
measured and shortened as one.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.tiers.mlx.decoding.generator import Drawn, Progress, Work
from deployments.tiers.mlx.sampling import Guarded

__all__ = ["Draft", "DraftGenerator", "is_cuttable"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A small model that drafts for a large one, `tokens` at a time. `label` is fit for clients."""

    model: Any
    tokens: int
    label: str


@dataclass(slots=True, eq=False)
class _Sequence:
    """`prompt` is what is to be read, `read` how much of it has been, `ends` where its segments end."""

    uid: int
    prompt: list[int]
    ends: list[int]
    max_tokens: int
    cache: list[Any]
    draft_cache: list[Any]
    tokens: list[int]
    sampler: Any
    processors: Sequence[Guarded]
    drafted: int
    read: int = 0
    given: int = 0
    last: int | None = None  # drawn, and read by nobody yet
    spoiled: bool = False  # a step broke off in it: its caches hold nobody knows what


def is_cuttable(cache: Sequence[Any]) -> bool:
    """Return whether every layer can be cut back by any number of tokens, at whatever length."""
    return all(hasattr(one, "offset") and getattr(one, "max_size", None) is None for one in cache)


class DraftGenerator:
    """Sequences that decode with a draft. Engine thread only."""

    def __init__(self, model: Any, draft: Draft, *, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        self._model, self._draft, self._draft_tokens = model, draft.model, draft.tokens
        self._stops = frozenset(stop_tokens)
        self.prefill_step_size = prefill_step_size
        self._layers = len(self._new_cache(model))
        self._sequences: dict[int, _Sequence] = {}
        self._prefilling: deque[_Sequence] = deque()
        self._next_uid = 0
        self._work = Work()

    @contextlib.contextmanager
    def stats(self) -> Iterator[Work]:
        """Count the work that is done while the block runs."""
        self._work = Work()
        yield self._work

    def insert_segments(
        self,
        segments: Sequence[Sequence[Sequence[int]]],
        *,
        max_tokens: Sequence[int],
        caches: Sequence[Any] | None,
        all_tokens: Sequence[Sequence[int]],
        samplers: Sequence[Any],
        logits_processors: Sequence[Sequence[Guarded]],
    ) -> list[int]:
        """Take one sequence; return its number.

        `caches`: of both models, for the tokens in `all_tokens`.
        """
        (parts,), (held,) = segments, all_tokens
        prompt = [token for part in parts for token in part]
        if not prompt or max_tokens[0] < 1:
            raise ValueError("a sequence needs a prompt, and room for a token")
        ends = list(itertools.accumulate(map(len, parts)))
        cache = caches[0] if caches is not None else [*self._new_cache(self._model), *self._new_cache(self._draft)]
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        sequence = _Sequence(
            uid=uid,
            prompt=prompt,
            ends=ends,
            max_tokens=max_tokens[0],
            cache=cache[: self._layers],
            draft_cache=cache[self._layers :],
            tokens=list(held),
            sampler=samplers[0],
            processors=logits_processors[0],
            drafted=len(held),
        )
        self._sequences[uid] = sequence
        self._prefilling.append(sequence)
        return [uid]

    def next(self) -> tuple[list[Progress], list[Drawn]]:
        """Make a turn for each that decodes, and prefill a chunk of the first prompt that waits."""
        drawn: list[Drawn] = []
        for sequence in [one for one in self._sequences.values() if one.last is not None]:
            drawn += self._decode(sequence)
        # Counted when all have had their turn: it says that what may raise from here on is a prompt's.
        self._work.generation_tokens += len(drawn)
        return self._prefill(), drawn

    def extract_cache(self, uids: Sequence[int]) -> dict[int, tuple[Any, list[int]]]:
        """Copy what was computed for these, with the tokens that it holds.

        Nothing of a sequence whose step broke off.
        """
        found = [self._sequences[uid] for uid in uids if uid in self._sequences]
        return {s.uid: (copy.deepcopy(self._join_caches(s)), list(s.tokens)) for s in found if not s.spoiled}

    def remove(self, uids: Sequence[int]) -> None:
        """End these sequences here."""
        for uid in uids:
            sequence = self._sequences.pop(uid, None)
            if sequence is not None and sequence in self._prefilling:
                self._prefilling.remove(sequence)

    def _prefill(self) -> list[Progress]:
        if not self._prefilling:
            return []
        sequence, began_s = self._prefilling[0], time.perf_counter()
        total = len(sequence.prompt)
        if sequence.read == total - 1:  # the last token is what the first one of the answer is drawn behind
            sequence.last = sequence.prompt[-1]
            self._prefilling.popleft()
            return [Progress(sequence.uid, (total, total), True, True)]
        end = min(next(e for e in sequence.ends if e > sequence.read), total - 1)
        count = min(self.prefill_step_size, end - sequence.read)
        tokens = sequence.prompt[sequence.read : sequence.read + count]
        self._read(sequence, tokens)
        sequence.read += count
        self._work.prompt_tokens += count
        self._work.prompt_time += time.perf_counter() - began_s
        return [Progress(sequence.uid, (sequence.read, total), sequence.read == end, False)]

    def _read(self, sequence: _Sequence, tokens: list[int]) -> None:
        """Let both models read a part of a prompt."""
        import mlx.core as mx

        with self._spoil_on_error(sequence):
            inputs = mx.array([tokens])
            self._model(inputs, cache=sequence.cache)
            self._draft(inputs, cache=sequence.draft_cache)
            mx.eval([one.state for one in (*sequence.cache, *sequence.draft_cache)])
            sequence.tokens += tokens
            sequence.drafted = len(sequence.tokens)

    def _decode(self, sequence: _Sequence) -> list[Drawn]:
        """Make one step of the model.

        It gives what the model would draw behind its last token, and behind each guess that was
        right.
        """
        import mlx.core as mx

        assert sequence.last is not None
        with self._spoil_on_error(sequence):
            guesses = self._guess(sequence, min(self._draft_tokens, sequence.max_tokens - sequence.given - 1))
            fed = [sequence.last, *guesses]
            before = len(sequence.tokens)
            logits = self._model(mx.array([fed]), cache=sequence.cache)[0]
            out: list[Drawn] = []
            for place, token in enumerate(fed):
                sequence.tokens.append(token)
                drawn = self._draw(sequence, logits[place : place + 1])
                if drawn is None:
                    break
                out.append(drawn)
                if drawn.finish_reason or drawn.token not in guesses[place : place + 1]:
                    break
            self._cut_back(
                sequence, read=before + len(fed), guessed=before + len(guesses) if guesses else sequence.drafted
            )
            if out and out[-1].finish_reason:
                out[-1] = replace(out[-1], prompt_cache=self._join_caches(sequence), all_tokens=sequence.tokens)
                del self._sequences[sequence.uid]
        sequence.last = None if drawn is None else drawn.token
        return out

    def _guess(self, sequence: _Sequence, count: int) -> list[int]:
        """Return the draft's next tokens; it first reads what it has missed."""
        import mlx.core as mx

        inputs = mx.array([[*sequence.tokens[sequence.drafted :], sequence.last]])
        guesses = []
        for _ in range(count):
            inputs = mx.argmax(self._draft(inputs, cache=sequence.draft_cache)[:, -1, :], axis=-1)[None]
            guesses.append(inputs)
        if not guesses:
            return []
        found: list[list[int]] = mx.concatenate(guesses, axis=1).tolist()  # type: ignore[assignment]
        return found[0]

    def _draw(self, sequence: _Sequence, logits: Any) -> Drawn | None:
        """Draw the token behind all that the sequence has; None where a processor failed on it."""
        import mlx.core as mx

        if sequence.processors:
            context = mx.array(sequence.tokens)
            for processor in sequence.processors:
                logits = processor(context, logits)
            if any(processor.error is not None for processor in sequence.processors):
                return None
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        chosen = mx.argmax(logprobs, axis=-1) if sequence.sampler is None else sequence.sampler(logprobs)
        token = int(chosen.tolist()[0])  # type: ignore[index,arg-type]
        sequence.given += 1
        reason = None
        if token in self._stops:
            reason = "stop"
        elif sequence.given >= sequence.max_tokens:
            reason = "length"
        return Drawn(sequence.uid, token, logprobs[0], reason)

    def _cut_back(self, sequence: _Sequence, *, read: int, guessed: int) -> None:
        """Take off both caches what was read of wrong guesses.

        The model's has `read` tokens, the draft's `guessed`.
        """
        kept = len(sequence.tokens)
        for one in sequence.cache:
            one.trim(read - kept)
        sequence.drafted = min(guessed, kept)
        for one in sequence.draft_cache:
            one.trim(guessed - sequence.drafted)

    def _join_caches(self, sequence: _Sequence) -> list[Any]:
        """Join the caches of both models into one, for the same tokens.

        The draft reads what it has missed.
        """
        import mlx.core as mx

        missed = sequence.tokens[sequence.drafted :]
        if missed:
            self._draft(mx.array([missed]), cache=sequence.draft_cache)
            sequence.drafted = len(sequence.tokens)
        return [*sequence.cache, *sequence.draft_cache]

    @contextlib.contextmanager
    def _spoil_on_error(self, sequence: _Sequence) -> Iterator[None]:
        sequence.spoiled = True
        yield
        sequence.spoiled = False

    @staticmethod
    def _new_cache(model: Any) -> list[Any]:
        from mlx_lm.models.cache import make_prompt_cache

        made: list[Any] = make_prompt_cache(model)
        return made
