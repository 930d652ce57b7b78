"""Whether one more sequence fits into this replica's memory: checked before it is computed.

MLX refuses no allocation: on a Mac the machine swaps or a GPU command fails, on Linux the kernel kills. So the bound is
kept here. Four things make up the bill, and the bill must never be over `budget_bytes`:

    weights  +  scratch of one prefill step  +  keys and values of all sequences  +  prompts kept for reuse

Sequences that decode together are padded to the longest of them, so the bill for them is their
count times the longest, with each at the length that is set aside for it: what there is of it and a
stretch ahead (`batch.py`). Each sequence must fit alone at its full length, with every token that
it may still generate. What is kept for reuse is what gives way: it may only have what the sequences
leave over.

Where nobody names a budget it is the weights and a third of what the machine has left once they are
loaded: three tiers that start at the same moment see the same free memory, and may not take more of
it than there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layer", "Layout", "MemoryBudget", "default_budget_bytes"]

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
        """Return what is left beside sequences of these lengths (prompt and answer, in tokens).

        Negative where they don't fit.
        """
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
