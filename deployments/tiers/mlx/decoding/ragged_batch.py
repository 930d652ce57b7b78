"""Read sequences in one step, each a row with caches of its own length, and sample behind them.

Sampling follows the usual order: processors, log-probabilities, the sampler.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.mlx.decoding.lookup import Record
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token of an answer. `lead`: how far it was before the likeliest other one, in nats. With the last one come
    the cache and the tokens that it holds."""

    uid: int
    token: int
    logprobs: Any
    lead: float
    finish_reason: str | None = None
    prompt_cache: Any = None
    all_tokens: list[int] | None = None


@dataclass(slots=True, eq=False)
class ActiveSequence:
    """One sequence. `prompt` is what is to be read, `read` how much of it has been, `ends` where its segments end;
    `tokens` is what its caches hold, and `last` was drawn behind them, read by nobody yet."""

    uid: int
    prompt: list[int]
    ends: list[int]
    max_tokens: int
    tokens: list[int]
    sampler: Any
    processors: Sequence[Any]  # `sampling.Guarded`
    read: int = 0
    given: int = 0
    last: int | None = None
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

    def note_drawn(self, token: int, logprobs: Any, lead: float, stops: Container[int]) -> SampledToken:
        """Count a token as given; it is the last one where it is in `stops`, or there is no room for more."""
        self.given += 1
        if self.record.lookup is not None:
            self.record.lookup.append(token)
        reason = "stop" if token in stops else "length" if self.given >= self.max_tokens else None
        return SampledToken(self.uid, token, logprobs, lead, reason)


@dataclass(slots=True)
class _Work:
    """The work of a stretch of time, as `scheduler.py` reads it."""

    generation_tokens: int = 0
    prompt_tokens: int = 0
    prompt_time: float = 0.0


class Intake(abc.ABC):
    """The part of mlx-lm's `BatchGenerator` that takes sequences and counts work. `stop_tokens` end a sequence."""

    def __init__(self, model: Any, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        self._model, self._stops = model, frozenset(stop_tokens)
        self.prefill_step_size = prefill_step_size
        self._uids = itertools.count()
        self._work = _Work()

    @contextlib.contextmanager
    def stats(self) -> Iterator[_Work]:
        """Count the work that is done while the block runs."""
        self._work = _Work()
        yield self._work

    def insert_segments(
        self,
        segments: Sequence[Sequence[Sequence[int]]],
        *,
        max_tokens: Sequence[int],
        caches: Sequence[Any] | None,
        all_tokens: Sequence[Sequence[int]],
        samplers: Sequence[Any],
        logits_processors: Sequence[Sequence[Any]],
    ) -> list[int]:
        """Take one sequence; return its number. Raises ValueError where it can't sample anything."""
        (parts,), (held,) = segments, all_tokens
        prompt = [token for part in parts for token in part]
        if not prompt or max_tokens[0] < 1:
            raise ValueError("a sequence needs a prompt, and room for a token")
        row = ActiveSequence(
            uid=next(self._uids),
            prompt=prompt,
            ends=list(itertools.accumulate(map(len, parts))),
            max_tokens=max_tokens[0],
            tokens=list(held),
            sampler=samplers[0],
            processors=logits_processors[0],
        )
        self._put(row, mlx_caches.make_prompt_cache(self._model) if caches is None else caches[0])
        return [row.uid]

    @abc.abstractmethod
    def _put(self, row: ActiveSequence, cache: Any) -> None:
        """Put a row behind the others, with the cache of its tokens."""


class Computer(Protocol):
    """Computes a model's steps at once, in its place (`cpu/step.py`)."""

    def read(
        self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: Sequence[int] | None = None
    ) -> Any:
        """Read tokens; return the logits behind each, or behind the `wanted`, by their numbers among all tokens."""


class RaggedBatch:
    """Rows and their caches, changed together. `step` computes in the model's place, where there is one."""

    def __init__(self, model: Any, step: Computer | None = None) -> None:
        self._model, self._step = model, step
        self.rows: list[ActiveSequence] = []
        self.lengths = Lengths([])
        self.caches: list[RaggedCache] = []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: ActiveSequence, cache: Sequence[Any]) -> None:
        """Put a row behind the others. `cache`: mlx-lm's, which holds its tokens."""
        lengths = Lengths([len(row.tokens)])
        self._extend([row], lengths, [RaggedCache.of(one, lengths) for one in cache])

    def move(self, places: Sequence[int], target: RaggedBatch) -> None:
        """Let the rows at these places go over to another batch."""
        if not places:
            return
        going = RaggedBatch(self._model, self._step)
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

    def read(self, tokens: Any, wanted: Sequence[int] | None = None) -> Any:
        """Let the model read these, one line for each row; return the logits behind each, or behind the `wanted` ones,
        of which there may be some only with a `step`. The lengths stay as they are."""
        if self._step is not None:
            return self._step.read(tokens, self.lengths, self.caches, wanted)
        assert not wanted
        return self._model(tokens, cache=self.caches)

    def read_lines(self, lines: Sequence[Sequence[int]], wanted: Sequence[int] | None = None) -> Any:
        """Read lines of different lengths; what is behind a line is read and never kept."""
        longest = max(map(len, lines))
        return self.read(mx.array([[*line, *[0] * (longest - len(line))] for line in lines]), wanted)

    def begin_drawing(self, tokens: Any) -> tuple[Any, Any, Any]:
        """Read a token in each row; return the tokens, log-probabilities and leads behind it, computed meanwhile."""
        logits = self.read(tokens[:, None])[:, -1, :]
        self.advance([1] * len(self))
        if any(row.processors for row in self.rows):
            lines = [logits[place : place + 1] for place in range(len(self))]
            for place, row in enumerate(self.rows):
                lines[place] = _process(row, tokens[place : place + 1], lines[place])
            logits = mx.concatenate(lines)
        logprobs = _normalise(logits)
        sampled = _sample([row.sampler for row in self.rows], logits, logprobs)
        leads = _measure_leads(logits, sampled)
        mx.async_eval(sampled, leads, logits)
        return sampled, logprobs, leads

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

    def _extend(self, rows: Sequence[ActiveSequence], lengths: Lengths, caches: Sequence[RaggedCache]) -> None:
        if not self.rows:
            self.rows, self.lengths = list(rows), Lengths(lengths.values)
            self.caches = [RaggedCache(self.lengths, one.keys, one.values) for one in caches]
            return
        for mine, other in zip(self.caches, caches, strict=True):
            mine.extend(other)
        self.rows += rows
        self.lengths.set([*self.lengths.values, *lengths.values])


def _process(row: ActiveSequence, tokens: Any, logits: Any) -> Any:
    """Let the row's processors see these tokens behind those it has."""
    if row.processors:
        if row.context is None:
            row.context = mlx_caches.TokenBuffer(row.tokens)
        context = row.context.update_and_fetch(tokens)
        for processor in row.processors:
            logits = processor(context, logits)
        if not row.failed and any(one.over for one in row.processors):
            row.processors = [one for one in row.processors if not one.over]
    return logits


def _normalise(logits: Any) -> Any:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def _sample(samplers: Sequence[Any], logits: Any, logprobs: Any) -> Any:
    """Draw one token a row: in one call for those that share a sampler's object; the likeliest without a sampler."""
    first = samplers[0]
    if all(one is first for one in samplers):
        return mx.argmax(logits, axis=-1) if first is None else first(logprobs)
    return mx.concatenate(
        [
            mx.argmax(logits[place : place + 1], axis=-1) if one is None else one(logprobs[place : place + 1])
            for place, one in enumerate(samplers)
        ]
    )


def _measure_leads(logits: Any, tokens: Any) -> Any:
    """Measure how far each token is before the likeliest other one, in nats; `logits` have one more axis."""
    at = tokens[..., None]
    others = mx.put_along_axis(logits, at, mx.array(-mx.inf, dtype=logits.dtype), axis=-1)
    return (mx.take_along_axis(logits, at, axis=-1)[..., 0] - mx.max(others, axis=-1)).astype(mx.float32)


def draw_lines(
    rows: Sequence[ActiveSequence], lines: Sequence[Sequence[int]], logits: Any, stops: Container[int]
) -> list[SampledToken]:
    """Sample behind the tokens of each row's line. `logits`: (rows, tokens, vocabulary)."""
    logprobs: Any = None
    likely: Any = None
    if any(row.plain for row in rows):
        tokens = mx.argmax(logits, axis=-1)
        leads = _measure_leads(logits, tokens)
        mx.eval(tokens, leads)
        logprobs = _normalise(logits)  # computed where they are asked for
        likely = [list(zip(*pair, strict=True)) for pair in zip(tokens.tolist(), leads.tolist(), strict=True)]
    drawn: list[SampledToken] = []
    for place, (row, line) in enumerate(zip(rows, lines, strict=True)):
        if row.plain:
            drawn += _draw_line(row, line, logprobs[place], likely[place], stops)
        else:  # a penalty that divides wants them as the model gave them
            drawn += _draw_line(row, line, logits[place], None, stops)
    return drawn


def _draw_line(
    row: ActiveSequence,
    line: Sequence[int],
    logits: Any,
    likely: Sequence[tuple[int, float]] | None,
    stops: Container[int],
) -> list[SampledToken]:
    """Sample behind each token of the line, up to the first draft that is wrong; the row holds what stands. `logits`:
    behind each; of a row that takes the `likely` ones, each with its lead, their log-probabilities."""
    out: list[SampledToken] = []
    row.last = None
    for place, token in enumerate(line):
        if likely is None:
            behind = _process(row, mx.array([token]), logits[place : place + 1])
            if row.failed:
                return out
            normal = _normalise(behind)
            tokens = _sample([row.sampler], behind, normal)
            drawn, lead, logprobs = tokens.tolist()[0], _measure_leads(behind, tokens).tolist()[0], normal[0]
        else:
            (drawn, lead), logprobs = likely[place], logits[place]
        row.tokens.append(token)
        out.append(row.note_drawn(drawn, logprobs, lead, stops))
        row.last = drawn
        if out[-1].finish_reason or drawn not in line[place + 1 : place + 2]:
            break
    return out
