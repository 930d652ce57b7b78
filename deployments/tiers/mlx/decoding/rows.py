"""The sequences that are read in one step, each a row with caches of its own length (`ragged.py`)."""

from __future__ import annotations

import abc
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.tiers.mlx.decoding.draft_policy import Record
from deployments.tiers.mlx.decoding.lookup import Lookup
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache, build_caches

__all__ = ["Computer", "Intake", "Processor", "Row", "Rows", "Work"]


class Processor(Protocol):
    """What changes a sequence's logits. It never raises; `error` is what it would have."""

    error: Exception | None

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Return other logits, by the tokens so far."""


@dataclass(slots=True, eq=False)
class Row:
    """One sequence. `prompt` is what is to be read, `read` how much of it has been, `ends` where its segments end;
    `tokens` is what its caches hold, and `last` was drawn behind them, read by nobody yet."""

    uid: int
    prompt: list[int]
    ends: list[int]
    max_tokens: int
    tokens: list[int]
    sampler: Any
    processors: Sequence[Processor]
    read: int = 0
    given: int = 0
    last: int | None = None
    lookup: Lookup | None = None
    record: Record = field(default_factory=Record)
    context: Any = None  # its tokens as the processors want them, made where there are any

    @property
    def plain(self) -> bool:
        """Whether its next token is the most likely one, whatever came before."""
        return self.sampler is None and not self.processors

    @property
    def pending(self) -> int:
        """What was drawn last. Only where no step is under way behind it."""
        assert self.last is not None
        return self.last

    @property
    def failed(self) -> bool:
        """Whether one of its processors has raised."""
        return any(one.error is not None for one in self.processors)

    @property
    def left(self) -> int:
        """How much of the prompt is to be read before the first token can be drawn: all but its last token."""
        return len(self.prompt) - 1 - self.read

    def cut_chunk(self, tokens_max: int) -> list[int]:
        """Cut the next chunk of the prompt: up to the end of a segment, without the last token."""
        end = min(next(end for end in self.ends if end > self.read), len(self.prompt) - 1)
        return self.prompt[self.read : min(end, self.read + tokens_max)]


@dataclass(slots=True)
class Work:
    """The work of a stretch of time, as `batch.py` reads it."""

    generation_tokens: int = 0
    prompt_tokens: int = 0
    prompt_time: float = 0.0


class Intake(abc.ABC):
    """The part of mlx-lm's `BatchGenerator` that takes sequences and counts work. `stop_tokens` end a sequence."""

    def __init__(self, model: Any, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        self._model, self._stops = model, frozenset(stop_tokens)
        self.prefill_step_size = prefill_step_size
        self._uids = itertools.count()
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
        logits_processors: Sequence[Sequence[Processor]],
    ) -> list[int]:
        """Take one sequence; return its number. `caches`: of the tokens in `all_tokens`. Raises ValueError where it can
        draw nothing."""
        from mlx_lm.models.cache import make_prompt_cache

        (parts,), (held,) = segments, all_tokens
        prompt = [token for part in parts for token in part]
        if not prompt or max_tokens[0] < 1:
            raise ValueError("a sequence needs a prompt, and room for a token")
        row = Row(
            uid=next(self._uids),
            prompt=prompt,
            ends=list(itertools.accumulate(map(len, parts))),
            max_tokens=max_tokens[0],
            tokens=list(held),
            sampler=samplers[0],
            processors=logits_processors[0],
        )
        self._put(row, make_prompt_cache(self._model) if caches is None else caches[0])
        return [row.uid]

    @abc.abstractmethod
    def _put(self, row: Row, cache: Any) -> None:
        """Put a row behind the others, with the cache of its tokens."""


class Computer(Protocol):
    """Computes a model's steps at once, in its place (`cpu/step.py`)."""

    def read(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache]) -> Any:
        """Return the logits behind each token."""

    def fill(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: Sequence[int]) -> Any:
        """Compute their keys and values, and the logits behind the `wanted`, by their numbers among all tokens."""


class Rows:
    """Rows and their caches, changed together. `step` computes in the model's place, where there is one."""

    def __init__(self, model: Any, step: Computer | None = None) -> None:
        self._model, self._step = model, step
        self.rows: list[Row] = []
        self.lengths = Lengths([])
        self.caches: list[RaggedCache] = []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Row, cache: Sequence[Any]) -> None:
        """Put a row behind the others. `cache`: mlx-lm's, which holds its tokens."""
        lengths = Lengths([len(row.tokens)])
        self._extend([row], lengths, build_caches(lengths, cache))

    def move(self, places: Sequence[int], target: Rows) -> None:
        """Let the rows at these places go over to another batch."""
        if not places:
            return
        going = Rows(self._model, self._step)
        going._extend(self.rows, self.lengths, [RaggedCache(self.lengths, c.keys, c.values) for c in self.caches])
        going.keep(places)
        self.keep([place for place in range(len(self)) if place not in set(places)])
        target._extend(going.rows, going.lengths, going.caches)

    def keep(self, places: Sequence[int]) -> None:
        """Let all other rows go."""
        values = [self.lengths.values[place] for place in places]
        self.rows = [self.rows[place] for place in places]
        if not places:
            self.lengths, self.caches = Lengths([]), []
            return
        for cache in self.caches:
            cache.select(places, max(values))
        self.lengths.set(values)

    def read(self, tokens: Any) -> Any:
        """Let the model read these, one line for each row; return its logits. The lengths stay as they are."""
        if self._step is not None:
            return self._step.read(tokens, self.lengths, self.caches)
        return self._model(tokens, cache=self.caches)

    def fill(self, tokens: Any, wanted: Sequence[int] = ()) -> Any:
        """Let the model read these; return its logits behind the `wanted` ones, by their numbers among all of them, and
        None for none. Some may be wanted only where it `picks` them."""
        if self._step is not None:
            return self._step.fill(tokens, self.lengths, self.caches, wanted)
        assert not wanted
        self._model(tokens, cache=self.caches)
        return None

    @property
    def picks(self) -> bool:
        """Whether the logits of a few tokens can be computed, and not all: for a long chunk they would cost as much as
        the rest."""
        return self._step is not None

    def advance(self, counts: Sequence[int]) -> None:
        """Keep so many of the tokens that were read last, in each row."""
        self.lengths.set([held + count for held, count in zip(self.lengths.values, counts, strict=True)])

    def extract(self, place: int) -> list[Any]:
        """Copy what was computed for a row into caches of mlx-lm's."""
        return [cache.extract(place) for cache in self.caches]

    @property
    def state(self) -> list[Any]:
        """What has to be computed for all caches to be there."""
        return [cache.state for cache in self.caches if not cache.empty()]

    def _extend(self, rows: Sequence[Row], lengths: Lengths, caches: Sequence[RaggedCache]) -> None:
        if not self.rows:
            self.rows, self.lengths = list(rows), Lengths(lengths.values)
            self.caches = [RaggedCache(self.lengths, one.keys, one.values) for one in caches]
            return
        for mine, other in zip(self.caches, caches, strict=True):
            mine.extend(other)
        self.rows += rows
        self.lengths.set([*self.lengths.values, *lengths.values])
