"""Decide whether one more sequence fits into this replica's memory, before it is computed.

MLX refuses no allocation, so weights, scratch of one prefill step, keys and values of all sequences (their count times
the longest, since they are padded) and prompts kept for reuse never exceed `budget_bytes` (`warm_up.py` chooses it).
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# mlx-lm lets a cache grow by this many tokens at a time.
_GROWTH_TOKENS = 256
_KEPT_SHARE = 4
STEP_TOKENS_MAX = 512


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
        steps = range(_GROWTH_TOKENS, tokens + 1, _GROWTH_TOKENS)
        return _GROWTH_TOKENS * bisect.bisect_left(steps, True, key=lambda length: not self.fits([length]))


UNBOUNDED = MemoryBudget(budget_bytes=sys.maxsize, weight_bytes=0, scratch_bytes=0, layout=Layout(()))


@dataclass(slots=True)
class PrefillBudget:
    """How many prompt tokens fit into one step, learned from the last one. Less than `tokens_min` would measure on a
    busy machine only what a step costs by itself, and never grow again."""

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
