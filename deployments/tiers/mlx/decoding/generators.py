"""Generate tokens for many sequences at once, with draft tokens where they pay. Engine thread only.

    plain keys and values in every layer    `_LookupGenerator`: drafts from prompt and answer, in the batch
    windows, recurrent states               mlx-lm's `BatchGenerator`: tokens can't be taken back, so no drafts
    none of them right (`batch_check.py`)   `_SingleGenerator`: one sequence at a time, as plain mlx-lm does

At each place of a step one token is sampled, in order, by the sequence's own sampler behind its own processors, so the
answer is the one that there would be without drafts. Where no draft pays, the next step is begun before the last one is
read; with a `step` that computes at once (`cpu/step.py`), none is. Invariants:
- No token is sampled behind a processor's error: the row's turn ends there, and the scheduler ends its sequence.
- A cache holds the tokens that its row says: tokens count as held once they stand (`RaggedBatch.advance`).
- `_SingleGenerator` never reads two sequences or padding in one step, and gives caches away as copies.
"""

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.mlx.decoding.lookup import COUNT_MAX, DraftPolicy, Guess, Offer, PromptLookup
from deployments.tiers.mlx.decoding.ragged_batch import (
    ActiveSequence,
    Computer,
    Intake,
    RaggedBatch,
    SampledToken,
    draw_lines,
)


class Sharing(Enum):
    """Which steps of the model sequences share: all, those of decoding only, or none."""

    ALL = "all"
    DECODING = "decoding"
    NONE = "none"


def build_generator(
    model: Any,
    ends: Iterable[int],
    sharing: Sharing,
    *,
    running_max: int,
    step_tokens_max: int,
    policy: DraftPolicy | None,
    step: Computer | None = None,
) -> Any:
    """Build one. `policy`: what was learned of drafts so far; None: no drafts. `step` computes in the model's place."""
    if sharing is Sharing.NONE:
        return _SingleGenerator(model, stop_tokens=ends, prefill_step_size=step_tokens_max)
    # Whether the model reads rows of different lengths rightly, `batch_check.py` finds out: AFM-7 and GPTBigCode don't.
    if all(type(one) is mlx_caches.KVCache for one in mlx_caches.make_prompt_cache(model)):
        return _LookupGenerator(model, stop_tokens=ends, prefill_step_size=step_tokens_max, policy=policy, step=step)
    # By name: the package's attribute `generate` is a function that hides the module.
    module: Any = importlib.import_module("mlx_lm.generate")
    # Otherwise each generator wires 75 % of the machine's memory for itself, and there is one in every tier.
    module.maybe_set_recommended_wired_limit = lambda: None
    return module.BatchGenerator(
        model,
        stop_tokens=[[token] for token in ends],
        completion_batch_size=running_max,
        prefill_batch_size=running_max,
        prefill_step_size=step_tokens_max,
    )


class _SingleGenerator(Intake):
    """The sequences of one model. Engine thread only."""

    def __init__(self, model: Any, *, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        super().__init__(model, stop_tokens, prefill_step_size)
        self._rows: dict[int, tuple[ActiveSequence, Any]] = {}  # with their caches, in order of arrival

    def _put(self, row: ActiveSequence, cache: Any) -> None:
        self._rows[row.uid] = row, cache

    def next(self) -> tuple[list[_PrefillProgress], list[SampledToken]]:
        """Read a chunk of the first sequence's prompt, or draw its next token."""
        if not self._rows:
            return [], []
        row, cache = next(iter(self._rows.values()))
        if row.left:
            return [self._prefill(row, cache)], []
        done = []
        if row.last is None:
            row.last = row.prompt[-1]
            done.append(_PrefillProgress(row.uid, (len(row.prompt), len(row.prompt)), True, True))
        return done, self._decode(row, cache)

    def extract_cache(self, uids: Sequence[int]) -> dict[int, tuple[Any, list[int]]]:
        found = {uid: self._rows[uid] for uid in uids if uid in self._rows}
        return {uid: (copy.deepcopy(cache), list(row.tokens)) for uid, (row, cache) in found.items()}

    def remove(self, uids: Sequence[int]) -> None:
        for uid in uids:
            self._rows.pop(uid, None)

    def _prefill(self, row: ActiveSequence, cache: Any) -> _PrefillProgress:
        began_s, chunk = time.perf_counter(), row.cut_chunk(self.prefill_step_size)
        self._model(mx.array([chunk]), cache=cache)
        mx.eval([one.state for one in cache])
        mx.clear_cache()
        row.read += len(chunk)
        row.tokens += chunk
        self._work.prompt_tokens += len(chunk)
        self._work.prompt_time += time.perf_counter() - began_s
        return _PrefillProgress(row.uid, (row.read, len(row.prompt)), row.read in row.ends, False)

    def _decode(self, row: ActiveSequence, cache: Any) -> list[SampledToken]:
        line = [row.pending]
        drawn = draw_lines([row], [line], self._model(mx.array([line]), cache=cache), self._stops)
        self._work.generation_tokens += len(drawn)
        if drawn and drawn[-1].finish_reason:
            self.remove([row.uid])
            drawn = [replace(drawn[-1], prompt_cache=cache, all_tokens=row.tokens)]
        return drawn


@dataclass(frozen=True, slots=True)
class _PrefillProgress:
    """How far a prompt is: `progress` is (tokens read, tokens in all)."""

    uid: int
    progress: tuple[int, int]
    end_of_segment: bool
    end_of_prompt: bool


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A step that was begun and not read yet. `failed`: the rows in which a processor failed on it."""

    tokens: Any
    logprobs: Any
    leads: Any
    failed: frozenset[int] = frozenset()

    def keep(self, places: Any) -> _Ahead:
        """Return the part of the rows at these places."""
        return _Ahead(self.tokens[places], self.logprobs[places], self.leads[places], self.failed)


class _LookupGenerator(Intake):
    """The sequences of one model. Engine thread only. `policy` outlives it; without one it doesn't guess."""

    def __init__(
        self,
        model: Any,
        *,
        stop_tokens: Iterable[int],
        prefill_step_size: int,
        policy: DraftPolicy | None,
        step: Computer | None = None,
    ) -> None:
        super().__init__(model, stop_tokens, prefill_step_size)
        self._at_once = step is not None  # a step begun ahead would then only keep the last token waiting
        self._policy, self._drafts = policy or DraftPolicy(), policy is not None
        self._parts = tuple(RaggedBatch(model, step) for _ in range(3))
        self._filling, self._filled, self._decoding = self._parts
        self._ahead: _Ahead | None = None
        self._undisturbed = False  # whether nothing but decoding was computed since the last step
        self.guessed_tokens = self.right_tokens = 0

    def _put(self, row: ActiveSequence, cache: Any) -> None:
        self._filling.add(row, cache)

    def next(self) -> tuple[list[_PrefillProgress], list[SampledToken]]:
        """Make a step for all that decode, and prefill a chunk of what waits."""
        drawn = self._decode()
        # Counted at the end of decoding: it says that what may raise from here on is a prompt's.
        self._work.generation_tokens += len(drawn)
        done, first = self._prefill()
        return done, drawn + first

    def extract_cache(self, uids: Sequence[int]) -> dict[int, tuple[Any, list[int]]]:
        found = {}
        for rows in self._parts:
            for place, row in enumerate(rows.rows):
                if row.uid in uids:
                    found[row.uid] = (rows.extract(place), list(row.tokens))
        return found

    def remove(self, uids: Sequence[int]) -> None:
        for rows in self._parts:
            self._keep(rows, [place for place, row in enumerate(rows.rows) if row.uid not in uids])

    def _keep(self, rows: RaggedBatch, places: list[int]) -> None:
        if len(places) == len(rows):
            return
        if rows is self._decoding and self._ahead is not None:
            self._ahead = self._ahead.keep(mx.array(places)) if places else None
        rows.keep(places)

    # Prefill.

    def _prefill(self) -> tuple[list[_PrefillProgress], list[SampledToken]]:
        """Read a chunk of each prompt; return how far they are, and the first tokens of those that are read whole."""
        rows = self._filling
        began_s, done = time.perf_counter(), self._pass_on_filled()
        if not rows:
            return done, []
        chunks = self._cut_chunks()
        ends = [row.read + len(chunk) for row, chunk in zip(rows.rows, chunks, strict=True)]
        whole = [place for place, row in enumerate(rows.rows) if ends[place] == len(row.prompt)]
        width = max(map(len, chunks))
        logits = rows.read_lines(chunks, [place * width + len(chunks[place]) - 1 for place in whole])
        rows.advance([len(chunk) for chunk in chunks])
        mx.eval(rows.state)
        mx.clear_cache()
        for place, (row, chunk) in enumerate(zip(rows.rows, chunks, strict=True)):
            row.read += len(chunk)
            row.tokens += chunk[:-1] if place in whole else chunk
            done.append(_PrefillProgress(row.uid, (row.read, len(row.prompt)), row.read in row.ends, place in whole))
        self._work.prompt_tokens += sum(map(len, chunks))
        self._work.prompt_time += time.perf_counter() - began_s
        self._undisturbed = False
        read = [rows.rows[place] for place in whole]
        drawn = draw_lines(read, [row.prompt[-1:] for row in read], logits[:, None], self._stops) if read else []
        rows.move(whole, self._filled)
        return done + self._pass_on_filled(), self._let_go(self._filled, drawn)

    def _pass_on_filled(self) -> list[_PrefillProgress]:
        """Let those go on to decoding of which all is read but the last token: the first is drawn behind that."""
        rows = self._filling
        places = [place for place, row in enumerate(rows.rows) if not row.left]
        done = []
        for place in places:
            row = rows.rows[place]
            row.last = row.prompt[-1]
            done.append(_PrefillProgress(row.uid, (len(row.prompt), len(row.prompt)), True, True))
        rows.move(places, self._filled)
        return done

    def _cut_chunks(self) -> list[list[int]]:
        """Cut the next chunk of each prompt: with its last token only where the logits behind it can be had alone."""
        rows = self._filling
        chunks = [row.cut_chunk(self.prefill_step_size) for row in rows.rows]
        if self._at_once:  # it computes a few logits without all others
            for row, chunk in zip(rows.rows, chunks, strict=True):
                end = row.read + len(chunk)
                if end == len(row.prompt) - 1 and end not in row.ends:  # where a segment ends its cache may be wanted
                    chunk.append(row.prompt[-1])
        return chunks

    # Decoding.

    def _decode(self) -> list[SampledToken]:
        if self._ahead is None:
            self._join()
        rows = self._decoding
        if not rows:
            return []
        began_s, size = time.perf_counter(), len(rows)
        guesses = [None] * size if self._ahead is not None else [self._guess(row) for row in rows.rows]
        offers = [_build_offer(row, guess) for row, guess in zip(rows.rows, guesses, strict=True)]
        count = self._policy.choose_count(offers)
        if count:
            drawn, right = self._step_with([[] if one is None else one.tokens[:count] for one in guesses])
        else:
            drawn, right = self._step_plainly(), [0] * size
        spent_s = time.perf_counter() - began_s if self._undisturbed else None
        self._policy.learn(offers, count, right, spent_s)
        self._undisturbed = True
        drawn = self._let_go(rows, drawn)
        if self._filled and self._ahead is None and not self._at_once:
            self._join()  # their first tokens are under way before this thread goes on
            self._ahead = self._begin_last()
        return drawn

    def _join(self) -> None:
        self._filled.move(range(len(self._filled)), self._decoding)

    def _begin_last(self) -> _Ahead:
        rows = self._decoding.rows
        ahead = self._begin(mx.array([row.pending for row in rows]))
        for row in rows:
            row.tokens.append(row.pending)
            row.last = None
        return ahead

    def _guess(self, row: ActiveSequence) -> Guess | None:
        """Guess what comes next; None where nothing like it has stood before."""
        most = min(COUNT_MAX, row.max_tokens - row.given - 1)
        if not self._drafts or not row.given or most < 1:  # the first token isn't kept waiting for the table
            return None
        if row.record.lookup is None:
            row.record.lookup = PromptLookup(row.tokens if row.last is None else [*row.tokens, row.last])
        guess = row.record.lookup.find(most)
        if guess is None:
            return None
        end = next((place for place, token in enumerate(guess.tokens) if token in self._stops), None)
        return guess if end is None else Guess(guess.tokens[:end], guess.agreed)

    def _step_plainly(self) -> list[SampledToken]:
        """Read one token in each row, the next step begun already where that helps."""
        rows = self._decoding
        ahead = self._ahead or self._begin_last()
        # Where the step behind the next token will probably read drafts, that token has to be known first.
        follows = not self._at_once and not self._filled
        if follows:
            follows = not self._policy.choose_count([_build_offer(row, self._guess(row)) for row in rows.rows])
        self._ahead = self._begin(ahead.tokens) if follows else None
        drawn, leads = [], ahead.leads.tolist()
        for place, (row, token) in enumerate(zip(rows.rows, ahead.tokens.tolist(), strict=True)):
            row.last = None if follows else token
            row.tokens += [token] if follows else []
            if row.uid not in ahead.failed:
                drawn.append(row.note_drawn(token, ahead.logprobs[place], leads[place], self._stops))
        return drawn

    def _begin(self, tokens: Any) -> _Ahead:
        rows = self._decoding
        return _Ahead(*rows.begin_drawing(tokens), frozenset(row.uid for row in rows.rows if row.failed))

    def _step_with(self, guesses: Sequence[Sequence[int]]) -> tuple[list[SampledToken], list[int]]:
        """Read the last token of each row and its guesses; return what was drawn, and how many guesses were right."""
        rows = self._decoding
        lines = [[row.pending, *guess] for row, guess in zip(rows.rows, guesses, strict=True)]
        logits = rows.read_lines(lines)
        held = [len(row.tokens) for row in rows.rows]
        drawn = draw_lines(rows.rows, lines, logits, self._stops)
        counts = [len(row.tokens) - before for row, before in zip(rows.rows, held, strict=True)]
        rows.advance(counts)
        right = [max(0, count - 1) for count in counts]
        self.guessed_tokens += sum(map(len, guesses))
        self.right_tokens += sum(right)
        return drawn, right

    def _let_go(self, rows: RaggedBatch, drawn: list[SampledToken]) -> list[SampledToken]:
        """Let the rows go that are finished, each with its cache."""
        ended = {one.uid for one in drawn if one.finish_reason}
        if not ended:
            return drawn
        kept = {row.uid: (rows.extract(place), row.tokens) for place, row in enumerate(rows.rows) if row.uid in ended}
        self._keep(rows, [place for place, row in enumerate(rows.rows) if row.uid not in ended])
        return [
            replace(one, prompt_cache=kept[one.uid][0], all_tokens=kept[one.uid][1]) if one.finish_reason else one
            for one in drawn
        ]


def _build_offer(row: ActiveSequence, guess: Guess | None) -> Offer:
    return Offer(row.record) if guess is None else Offer(row.record, len(guess.tokens), guess.agreed)
