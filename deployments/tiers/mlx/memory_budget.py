"""Decide whether one more sequence fits into this replica's memory, before it is computed.

MLX refuses no allocation: a Mac swaps or a GPU command fails, on Linux the kernel kills. So this bill never exceeds
`budget_bytes`:

    weights  +  scratch of one prefill step  +  keys and values of all sequences  +  prompts kept for reuse

Sequences that decode together are padded to the longest, so they cost their count times the longest. Prompts kept for
reuse get only what the sequences leave over. Without a configured budget it is the weights and a third of the memory
that is free once they are loaded, since three tiers that start together see the same free memory. On a Mac, the working
set is shared out (`memory/room.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.memory.room import AGENT_TOKENS, Room

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
