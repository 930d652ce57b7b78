"""A small model with random weights, read by plain mlx-lm and by the engine, and the comparison of both.

What is compared are the log-probabilities of all tokens, wherever one was sampled: a model with random weights soon
repeats itself, so equal texts say little. They are compared in units of the deviation of plain mlx-lm's logits.
"""

import dataclasses
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from deployments.models.cache_folder import quiet
from deployments.models.sources import parse_source
from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.memory_budget import PrefillBudget
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from reliability.types import Event, Failed, Finish, TokenLogprob
from tests.support.random_models import build_family

# Rounding leaves 1e-5; a changed token of the prompt moves most models by 0.1 or more.
TOLERANCE = 0.002
CHUNK_TOKENS = 24  # of a prompt in a step: longer than a window, shorter than the prompts
ANY_BYTES = 1 << 30
_RANGE = 60.0  # of log-probabilities that are compared


class Difference(Exception):
    """The engine doesn't do what plain mlx-lm does."""


def make_prompt(tokens: int, seed: str) -> list[int]:
    """Make a prompt of random tokens, none of which ends an answer."""
    dice = random.Random(zlib.crc32(seed.encode()))
    return [dice.randrange(3, 250) for _ in range(tokens)]


def load_model(name: str, folder: Path) -> Loaded:
    """Return what `load` returns of the small model in `folder`, with a configuration's model in place of its own."""
    loaded = load(parse_source(f"path:{folder}"), cache_dir=None, context_tokens=4096, say=quiet)
    return dataclasses.replace(loaded, model=build_family(name, 1), step=None, context_tokens=4096)


def read(model: Any, tokens: Sequence[int], prompt: int, *, chunk: int = 0) -> Any:
    """Return plain mlx-lm's logits behind the first `prompt` tokens, read at once or in chunks, and each further."""
    cache, ends = make_prompt_cache(model), [prompt, *range(prompt + 1, len(tokens) + 1)]
    ends = [*range(chunk, prompt, chunk), *ends] if chunk else ends
    rows = []
    for start, end in zip([0, *ends], ends, strict=False):
        rows.append(model(mx.array([tokens[start:end]]), cache=cache)[0, -1].astype(mx.float32))
        mx.eval(rows[-1])
    return np.array(mx.stack(rows[-(len(tokens) - prompt) - 1 :]))


def compare(model: Any, prompt: Sequence[int], tokens: Sequence[int], logprobs: Sequence[Any]) -> float:
    """Return by how much these log-probabilities differ at most from plain mlx-lm's for the same tokens. Tokens that a
    grammar forbids, or a bias, are left out, and the others are compared among themselves."""
    worst = 0.0
    for one, logits in zip(logprobs, read(model, [*prompt, *tokens[:-1]], len(prompt)), strict=True):
        row = np.array(one.astype(mx.float32))
        allowed = row > row.max() - _RANGE
        likely = logits[allowed].max()
        plain = logits[allowed] - likely - np.log(np.exp(logits[allowed] - likely).sum())
        worst = max(worst, float(np.abs(row[allowed] - plain).max() / logits.std()))
    return worst if np.isfinite(worst) else float("inf")


@dataclass(frozen=True)
class Endless:
    """A tokenizer none of whose tokens ends an answer: random models end theirs at random."""

    inner: Any
    eos_token_ids: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass
class Asked(LogprobReader):
    """A request, and what was drawn for it."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def read(self, token: int, logprobs: Any) -> TokenLogprob:
        self.tokens.append(token)
        self.logprobs.append(logprobs)
        return TokenLogprob(b"", 0.0)

    @property
    def cached_tokens(self) -> int:
        last = self.events[-1]
        assert isinstance(last, Finish), last
        assert last.usage is not None
        return last.usage.cached_tokens


class Stage:
    """A batch of the engine, started as the engine starts it. `disk`: where its prompts go. `ends`: an answer may."""

    def __init__(self, loaded: Loaded, *, disk: Path | None = None, ends: bool = False) -> None:
        tokenizer = loaded.tokenizer if ends else Endless(loaded.tokenizer)
        self.batch = Scheduler(loaded.model, tokenizer, running_max=4, label="zoo")
        room = {"memory_bytes": ANY_BYTES, "prompt_cache_bytes": ANY_BYTES, "prompt_disk_bytes": ANY_BYTES}
        self.loaded = prepare_batch(self.batch, loaded, prompt_disk=disk, **room)
        self.batch.pace = PrefillBudget(tokens_min=CHUNK_TOKENS, tokens_max=CHUNK_TOKENS, tokens=CHUNK_TOKENS)
        self._asked: list[Asked] = []

    def ask(self, prompt: Sequence[int], tokens: int = 8, **fields: Any) -> Asked:
        job = EngineJob(prompt=list(prompt), max_tokens=tokens, sink=print)
        return self.add(dataclasses.replace(job, **fields))

    def add(self, job: EngineJob) -> Asked:
        """Begin a job's answer. Its `prompt` is what stands before its first sampled token."""
        made = Asked([*job.prompt, *job.written])
        self._asked.append(made)
        self.batch.add(len(self._asked), dataclasses.replace(job, sink=made.events.extend, logprob_reader=made))
        return made

    def abort(self, asked: Asked) -> None:
        self.batch.remove(1 + next(place for place, one in enumerate(self._asked) if one is asked))

    def answer(self, prompt: Sequence[int], tokens: int = 8, **fields: Any) -> Asked:
        made = self.ask(prompt, tokens, **fields)
        self.run()
        return made

    def run(self, steps: int | None = None) -> None:
        """Make so many steps; without a number, all."""
        while self.batch and steps != 0:
            self.batch.step()
            steps = None if steps is None else steps - 1

    def check(self, *answers: Asked) -> None:
        """Raise `Difference` where an answer failed, has no tokens, or isn't plain mlx-lm's."""
        for one in answers:
            if one.events and isinstance(one.events[-1], Failed):
                raise Difference(one.events[-1].message)
            if not one.tokens:
                raise Difference("an answer has no tokens")
            by = compare(self.loaded.model, one.prompt, one.tokens, one.logprobs)
            if by > TOLERANCE:
                raise Difference(f"an answer behind {len(one.prompt)} tokens differs by {by:.2g}")
