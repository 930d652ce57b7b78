"""Decide whether one more sequence fits into this replica's memory, before it is computed.

MLX refuses no allocation, so weights, scratch of one prefill step, keys and values of all sequences (their count times
the longest, since they are padded) and prompts kept for reuse never exceed `budget_bytes`: the configured one, a Mac's
part of the working set (`memory/room.py`), or the weights and a third of the memory that is free once they are loaded.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deployments.memory.room import AGENT_TOKENS, Room
from deployments.models.cache_folder import keep_text

# mlx-lm lets a cache grow by this many tokens at a time.
_GROWTH_TOKENS = 256
_SHARE = 3
_KEPT_SHARE = 4
TOKENS_MIN = 256


def default_budget_bytes(weight_bytes: int, available_bytes: int) -> int:
    """Return the budget where nobody names one. `available_bytes`: left with the weights loaded."""
    return weight_bytes + max(0, available_bytes) // _SHARE


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps: so many bytes a token, of at most `window_tokens`, and `fixed_bytes` in any case."""

    token_bytes: int
    window_tokens: int | None = None
    fixed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What a model keeps of a sequence."""

    layers: tuple[Layer, ...]

    @property
    def cuttable(self) -> bool:
        """Whether what is kept can always be cut back: no layer forgets what its window has left behind."""
        return all(layer.window_tokens is None and not layer.fixed_bytes for layer in self.layers)

    def sequence_bytes(self, tokens: int) -> int:
        """Return the bytes of one sequence of so many tokens."""
        grown = -(-tokens // _GROWTH_TOKENS) * _GROWTH_TOKENS
        return sum(
            layer.fixed_bytes + layer.token_bytes * min(grown, layer.window_tokens or grown) for layer in self.layers
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The budget and what goes off it before any sequence."""

    budget_bytes: int
    weight_bytes: int
    scratch_bytes: int
    layout: Layout
    # What a prefill step needs beside that for each token of the longest sequence.
    scratch_token_bytes: int = 0

    def spare_bytes(self, lengths: Sequence[int]) -> int:
        """Return what is left next to sequences of these lengths, in tokens; negative where they don't fit."""
        longest = max(lengths, default=0)
        sequences_bytes = len(lengths) * self.layout.sequence_bytes(longest) + longest * self.scratch_token_bytes
        return self.budget_bytes - self.weight_bytes - self.scratch_bytes - sequences_bytes

    def fits(self, lengths: Sequence[int]) -> bool:
        """Return whether sequences of these lengths may run together."""
        return self.spare_bytes(lengths) >= 0

    @property
    def kept_bytes_max(self) -> int:
        """What prompts kept for reuse may have at most, however empty the rest is."""
        return max(0, self.spare_bytes(())) // _KEPT_SHARE

    def fit_tokens(self, tokens: int) -> int:
        """Return the longest sequence up to `tokens` that fits alone; 0 where none does."""
        if self.fits([tokens]):
            return tokens
        low, high = 0, tokens // _GROWTH_TOKENS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits([middle * _GROWTH_TOKENS]) else (low, middle - 1)
        return low * _GROWTH_TOKENS


def count_needed(context_tokens: int) -> int:
    """Return the context that an agent needs of a model with so much."""
    return min(AGENT_TOKENS, context_tokens)


def share_budget(budget: MemoryBudget, room: Room, context_tokens: int) -> MemoryBudget:
    """Return the budget with its part of a Mac's working set. `context_tokens`: the model's own."""
    needed_bytes = replace(budget, budget_bytes=0).spare_bytes([count_needed(context_tokens)])
    return replace(budget, budget_bytes=room.share_bytes(-needed_bytes))


def explain_short(budget: MemoryBudget, context_tokens: int) -> str:
    """Explain why a tier is left out whose budget doesn't hold what an agent needs; empty where it does."""
    needed_tokens = count_needed(context_tokens)
    short_bytes = -budget.spare_bytes([needed_tokens])
    if short_bytes <= 0:
        return ""
    return (
        f"left out: with the {needed_tokens:,} tokens of context that an agent needs, the model takes "
        f"{(budget.budget_bytes + short_bytes) / 2**30:.1f} GiB, and {budget.budget_bytes / 2**30:.1f} are left beside "
        "the other tiers. Name a smaller model, leave a tier out, or set memory_bytes or context_tokens for less"
    )


_LOG = logging.getLogger(__name__)

STEP_TOKENS_MAX = 512
CHUNKS = (256, 512, 1024, 2048)
_BUDGET_S = 1.0
_GAIN = 0.03  # the smallest chunk within this share of the fastest is taken


@dataclass(slots=True)
class PrefillBudget:
    """How many prompt tokens fit into one step, learned from the last one. Never less than `tokens_min`: a step has a
    cost of its own (the weights are read once), which on a busy machine is all that a smaller one would measure, and it
    would never grow again."""

    target_s: float = 0.5
    tokens_min: int = 32
    tokens_max: int = STEP_TOKENS_MAX
    tokens: int = 32

    def estimate_s(self, tokens: int) -> float:
        """Estimate how long so many tokens take, one step after the other."""
        return tokens / self.tokens * self.target_s

    def learn(self, tokens: int, seconds: float) -> None:
        """Learn from a chunk. A short one says little about speed, unless even it took too long."""
        if seconds <= 0 or (tokens < self.tokens // 2 and seconds < self.target_s):
            return
        fits = int(tokens / seconds * self.target_s)
        # One reading changes the budget by a bounded factor: a lucky one must not stall the others.
        bounded = max(self.tokens // 2, min(fits, 4 * self.tokens))
        self.tokens = max(self.tokens_min, min(bounded, self.tokens_max))


def choose_chunk(
    model: Any,
    facts: Mapping[str, Any],
    cache_dir: Path,
    usual_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Return the chunk for this model on this machine, measured where that was never done. `facts` name the model and
    the packages that compute it. `usual_tokens` stand where nothing can be measured."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu):
        return usual_tokens
    key = json.dumps({**facts, "gpu": mx.device_info().get("device_name")}, sort_keys=True)
    file = cache_dir / "prefill-chunks" / hashlib.sha256(key.encode()).hexdigest()
    kept = _read_kept(file)
    if kept is None:
        try:
            kept = measure_chunk(lambda tokens: _read_zeros(model, tokens), clock) or usual_tokens
        except Exception as error:  # a model that can't read so many at once, or a GPU without the memory
            _LOG.warning("the chunk of a prompt isn't measured: %s", error)
            return usual_tokens
        keep_text(file, str(kept))
    return kept


def measure_chunk(read: Callable[[int], None], clock: Callable[[], float], budget_s: float = _BUDGET_S) -> int | None:
    """Time `read`, which reads so many tokens, for about `budget_s`; None where not even two sizes can be tried. No
    size is begun that would take longer than the time that is left."""
    read(CHUNKS[0])  # compiles the kernels
    began_s, per_token_s = clock(), dict[int, float]()
    for tokens in CHUNKS:
        left_s = budget_s - (clock() - began_s)
        if per_token_s and min(per_token_s.values()) * tokens > left_s:
            break
        at_s = clock()
        read(tokens)
        per_token_s[tokens] = (clock() - at_s) / tokens
    if len(per_token_s) < 2:
        return None
    best = min(per_token_s.values())
    return next(tokens for tokens, took in per_token_s.items() if took <= best * (1 + _GAIN))


def _read_zeros(model: Any, tokens: int) -> None:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=cache)
    mx.eval([layer.state for layer in cache])
    mx.clear_cache()


def _read_kept(file: Path) -> int | None:
    try:
        kept = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return kept if kept in CHUNKS else None
