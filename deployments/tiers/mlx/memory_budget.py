"""Whether one more sequence fits into this replica's memory, asked before anything of it is computed.

MLX refuses no allocation: on a Mac the machine swaps or a GPU command fails, on Linux the kernel kills. So the bound is
kept here. Four things make up the bill, and the bill must never be over `budget_bytes`:

    weights  +  scratch of one prefill step  +  keys and values of all rows  +  prompts kept for reuse

Rows that decode together are padded to the longest of them, so the bill for rows is their count times the longest, with
each row at the length that is set aside for it: what there is of it and a stretch ahead (`batch.py`). Each row must fit
alone at its full length, with every token that it may still generate. What is kept for reuse is what gives way: it may
only have what the rows leave over.

Where nobody says a budget it is the weights and a third of what the machine has left once they are loaded: three tiers
that start at the same moment see the same free memory, and may not take more of it than there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layer", "Layout", "Room", "default_budget_bytes"]

# mlx-lm lets a cache grow by this many tokens at a time.
_GROWTH_TOKENS = 256
_SHARE = 3
_KEPT_SHARE = 4
TOKENS_MIN = 256


def default_budget_bytes(weight_bytes: int, available_bytes: int) -> int:
    """`available_bytes`: what the machine has left with the weights loaded."""
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

    def row_bytes(self, tokens: int) -> int:
        """Of one sequence of so many tokens."""
        grown = -(-tokens // _GROWTH_TOKENS) * _GROWTH_TOKENS
        return sum(
            layer.fixed_bytes + layer.token_bytes * min(grown, layer.window_tokens or grown) for layer in self.layers
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The budget and what goes off it before any row."""

    budget_bytes: int
    weight_bytes: int
    scratch_bytes: int
    layout: Layout
    # What a prefill step needs beside that for each token of the longest row.
    scratch_token_bytes: int = 0

    def spare_bytes(self, lengths: Sequence[int]) -> int:
        """What is left beside rows of these lengths (prompt and answer, in tokens); negative where they don't fit."""
        longest = max(lengths, default=0)
        rows_bytes = len(lengths) * self.layout.row_bytes(longest) + longest * self.scratch_token_bytes
        return self.budget_bytes - self.weight_bytes - self.scratch_bytes - rows_bytes

    def fits(self, lengths: Sequence[int]) -> bool:
        """Whether rows of these lengths may run together."""
        return self.spare_bytes(lengths) >= 0

    def kept_bytes_max(self) -> int:
        """What prompts kept for reuse may have at most, however empty the rest is."""
        return max(0, self.spare_bytes(())) // _KEPT_SHARE

    def tokens_max(self, tokens: int) -> int:
        """The longest row up to `tokens` that fits alone; 0 where none does."""
        if self.fits([tokens]):
            return tokens
        low, high = 0, tokens // _GROWTH_TOKENS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits([middle * _GROWTH_TOKENS]) else (low, middle - 1)
        return low * _GROWTH_TOKENS
