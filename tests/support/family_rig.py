"""A batch on a model of `random_models.build_family`, each answer of which is compared with plain mlx-lm."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.batch_check import choose_sharing
from deployments.tiers.mlx.cache_size import MlxCaches
from deployments.tiers.mlx.memory_budget import Layout, MemoryBudget
from deployments.tiers.mlx.prompt_cache.prompt_store import PromptStore
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob, PromptReuse
from deployments.tiers.stream_matchers import AnswerReader
from reliability.types import Event, Finish, TokenLogprob

PLENTY_BYTES = 1 << 40
_TICKETS = itertools.count()


class Numbers:
    """A tokenizer without text: any text is some tokens of the model's, none of which ends an answer."""

    eos_token_ids = ()
    last_segment = ""

    @property
    def detokenizer(self) -> Numbers:
        return self

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        dice = random.Random(text)
        return [dice.randrange(4, 120) for _ in text]

    def add_token(self, token: int) -> None:
        pass

    def finalize(self) -> None:
        pass


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


def load(model: Any) -> Any:
    """What the check takes of a loaded model."""
    return SimpleNamespace(model=model, tokenizer=Numbers(), artifact=SimpleNamespace(source="here"), step=None)


def begin(model: Any) -> Scheduler:
    """A batch as an engine makes it, which keeps prompts for reuse."""
    batch = Scheduler(model, Numbers(), running_max=4, label="t")
    batch.share(choose_sharing(load(model), 4))
    budget = MemoryBudget(budget_bytes=PLENTY_BYTES, weight_bytes=0, scratch_bytes=0, layout=Layout(()))
    batch.set_budget(budget, PromptStore(MlxCaches(), bytes_max=PLENTY_BYTES))
    return batch


def add(batch: Scheduler, prompt: Sequence[int], max_tokens: int, checkpoints: Sequence[int] = ()) -> Asked:
    """Let a request run."""
    asked = Asked(list(prompt))
    job = EngineJob(
        prompt=asked.prompt,
        max_tokens=max_tokens,
        sampling=Sampling(),
        reader=AnswerReader(),
        sink=asked.events.extend,
        logprob_reader=asked,
        reuse=PromptReuse(checkpoints=checkpoints),
    )
    batch.add(next(_TICKETS), job)
    return asked


def run(batch: Scheduler) -> None:
    """To the end."""
    while batch:
        batch.step()


def measure(model: Any, asked: Asked) -> list[float]:
    """How far the log-probability of each drawn token is from plain mlx-lm's, in standard deviations of the logits. It
    reads the prompt whole, then a token at a time."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache, apart = make_prompt_cache(model), []
    lines = [asked.prompt, *([token] for token in asked.tokens[:-1])]
    for line, token, logprobs in zip(lines, asked.tokens, asked.logprobs, strict=True):
        logits = model(mx.array([line]), cache=cache)[0, -1]
        right = logits[token] - mx.logsumexp(logits)
        apart.append((mx.abs(right - logprobs[token]) / mx.std(logits)).item())
    return apart
