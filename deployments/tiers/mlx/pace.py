"""How much of a prompt one step may prefill: everything else on the engine thread has to wait for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STEP_TOKENS_MAX", "PrefillPace"]

STEP_TOKENS_MAX = 512


@dataclass(slots=True)
class PrefillPace:
    """How many prompt tokens fit into one step, learned from the last one.

    Never less than `tokens_min`: a step has a cost of its own (the weights are read once), which on a busy machine is
    all that a smaller one would measure, and it would never grow again.
    """

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
        # One reading counts for so much only: a lucky one must not stall everybody, a busy moment not slow us down.
        bounded = max(self.tokens // 2, min(fits, 4 * self.tokens))
        self.tokens = max(self.tokens_min, min(bounded, self.tokens_max))
