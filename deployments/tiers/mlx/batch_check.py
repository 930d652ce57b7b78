"""Find out which steps sequences of a model may share and still get what each gets alone.

Some of mlx-lm's models leave a wrong state behind padding, depend on their neighbors' lengths, or have caches that
can't be put together. So before the first request three short prompts are computed as a batch and compared with plain
mlx-lm (`Sharing`).

A difference is the root mean square over the vocabulary, in standard deviations of the logits, the median of a
sequence: 1e-6 by float32's rounding, 1e-2 to 3e-1 by the known faults. In 16 bits `_UNITS_MAX` units in the last place
are none; padding could hide in that, so recurrent states are compared there too.
"""

from __future__ import annotations

import importlib
import logging
import statistics
from collections.abc import Sequence
from typing import Any

from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.decoding.generators import Sharing
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache
from deployments.tiers.mlx.decoding.ragged_batch import Computer
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.prompt_cache.prompt_cache import flatten
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from reliability.types import TokenLogprob

_LOG = logging.getLogger(__name__)

_TEXT = (
    "The quick brown fox jumps over the lazy dog, while 1, 2, 3 sleepy cats look on and wonder what it is all about. "
)
# Where in the text each prompt begins and ends, and how many tokens are sampled behind it. The last one comes later.
_PROMPTS = ((0, 16, 5), (16, 22, 3), (22, 32, 4))
_TOLERANCE, _UNITS_MAX = 0.002, 16
_STATE = 0.25  # of its size
_LEAST = -100.0  # what a model rules out doesn't widen the spread


def choose_sharing(loaded: Loaded, running_max: int) -> Sharing:
    """Return the most that sequences may share."""
    if running_max > 1 and _cuts_places_into_blocks(loaded.model):
        return Sharing.NONE
    tokens = loaded.tokenizer.encode(_TEXT, add_special_tokens=False)
    prompts = [(tokens[begin:end], count) for begin, end, count in _PROMPTS[: 1 if running_max == 1 else None]]
    for sharing in (Sharing.ALL, Sharing.DECODING):
        try:
            differences = _measure_all(loaded, sharing, prompts)
        except Exception as error:  # whatever its caches can't do
            _LOG.info("%s: sequences that share %s steps raise", loaded.artifact.source, sharing.value, exc_info=error)
            continue
        if all(one <= 1 for one in differences):
            return sharing
        _LOG.info("%s: sequences that share %s steps differ: %s", loaded.artifact.source, sharing.value, differences)
    return Sharing.NONE


def _cuts_places_into_blocks(model: Any) -> bool:
    """Return whether attention chooses among blocks of the cache's places, as MiniMax-M3's does: padding shifts them.
    The fault shows behind 2,048 tokens, too many to read at each start. Such layers name the size of their blocks."""
    return any(name.endswith("block_size") for module in model.modules() for name in vars(module))


class _Watch(LogprobReader):
    """Notes the tokens of an answer and the log-probabilities of all tokens there."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.logprobs: list[Any] = []

    def read(self, token: int, logprobs: Any) -> TokenLogprob:
        self.tokens.append(token)
        self.logprobs.append(logprobs)
        return TokenLogprob(b"", 0.0)


class _Mute:
    """A tokenizer, and its detokenizer: its tokens are no text, and none ends an answer."""

    eos_token_ids = ()
    last_segment = ""

    @property
    def detokenizer(self) -> _Mute:
        return self

    def add_token(self, token: int) -> None:
        """Take a token."""

    def finalize(self) -> None:
        """End the text."""


def _measure_all(loaded: Loaded, sharing: Sharing, prompts: Sequence[tuple[list[int], int]]) -> list[float]:
    from mlx.utils import tree_flatten

    model, step = loaded.model, loaded.step
    kinds = {array.dtype for _, array in tree_flatten(loaded.model.parameters())}
    # One unit in the last place of the coarsest numbers that the model computes with.
    unit = max(float(mx.finfo(kind).eps) for kind in kinds if mx.issubdtype(kind, mx.floating))
    found = _compute_together(model, step, sharing, prompts)
    right = [_compute_alone(model, step, prompt, one.tokens) for (prompt, _), one in zip(prompts, found, strict=True)]
    apart = [_measure(one.logprobs, by_itself, unit) for one, by_itself in zip(found, right, strict=True)]
    if unit * _UNITS_MAX > _TOLERANCE and sharing is Sharing.ALL:
        apart.append(_measure_states(model, [prompt for prompt, _ in prompts[:2]]))
    return apart


def _measure_states(model: Any, prompts: Sequence[Sequence[int]]) -> float:
    """Measure how far the padded prompt's recurrent states are from its own; 0 for a model without."""
    alone = mlx_caches.make_prompt_cache(model)
    if not any(hasattr(one, "cache") for one in flatten(alone)):
        return 0.0
    module: Any = importlib.import_module("mlx_lm.generate")
    caches = [mlx_caches.make_prompt_cache(model) for _ in prompts]
    batch = module.PromptProcessingBatch(model, list(range(len(prompts))), caches)
    batch.prompt([list(prompt) for prompt in prompts])
    model(mx.array([prompts[-1]]), cache=alone)
    pairs = zip(flatten(batch.extract_cache(len(prompts) - 1)), flatten(alone), strict=True)
    worst = 0.0
    for one, other in pairs:
        for found, right in zip(one.cache, other.cache, strict=True) if hasattr(other, "cache") else ():
            size = mx.maximum(_STATE * mx.linalg.norm(right.astype(mx.float32)), mx.finfo(mx.float32).eps)
            apart = mx.linalg.norm(found.astype(mx.float32) - right.astype(mx.float32)) / size
            worst = max(worst, float(mx.nan_to_num(apart, nan=mx.inf).item()))
    return worst


def _compute_together(
    model: Any, step: Computer | None, sharing: Sharing, prompts: Sequence[tuple[list[int], int]]
) -> list[_Watch]:
    """Sample so many tokens behind each prompt; those after the second come once the first has two tokens."""
    batch = Scheduler(model, _Mute(), running_max=len(prompts), label="", step=step)
    batch.share(sharing)
    watches = [_Watch() for _ in prompts]
    for ticket, ((prompt, count), watch) in enumerate(zip(prompts, watches, strict=True)):
        while ticket == 2 and batch and len(watches[0].tokens) < 2:
            batch.step()
        batch.add(ticket, EngineJob(prompt=prompt, max_tokens=count, sink=lambda _: None, logprob_reader=watch))
    while batch:
        batch.step()
    if any(len(watch.tokens) < count for (_, count), watch in zip(prompts, watches, strict=True)):
        raise ValueError("a sequence ended early")
    return watches


def _compute_alone(model: Any, step: Computer | None, prompt: Sequence[int], tokens: Sequence[int]) -> list[Any]:
    """Compute the log-probabilities that each token was sampled from in one step, by plain mlx-lm or by `step`."""
    line = mx.array([[*prompt, *tokens[:-1]]])
    if step is None:
        logits = model(line, cache=mlx_caches.make_prompt_cache(model))
    else:
        lengths = Lengths([0])
        logits = step.read(line, lengths, [RaggedCache(lengths) for _ in model.layers])
    logits = logits[0, len(prompt) - 1 :]
    return list(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def _measure(some: Sequence[Any], others: Sequence[Any], unit: float) -> float:
    one, other = (mx.stack(list(those)).astype(mx.float32) for those in (some, others))
    apart = mx.where(one == other, 0.0, one - other)  # some models rule tokens out: -inf
    other = mx.maximum(other, _LEAST)
    allowed = max(_TOLERANCE, _UNITS_MAX * unit) * mx.std(other, axis=-1) + unit * _average(other)
    shares: Any = mx.nan_to_num(_average(apart) / allowed, nan=mx.inf).tolist()
    return float(statistics.median(shares))


def _average(numbers: Any) -> Any:
    return mx.sqrt(mx.mean(numbers**2, axis=-1))
