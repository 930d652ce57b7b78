"""The probabilities of tokens, out of a model's own output or out of an upstream's chunks.

They are those that the token was drawn from before temperature, top-p and the like: after penalties, bias and grammar.
JSON has no minus infinity: what can't be drawn stands as -9999, as it does at OpenAI.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from reliability.types import TokenLogprob

__all__ = ["NEVER", "LogprobTeller", "read_logprobs"]

NEVER = -9999.0
# Bounds on what an upstream may send in one chunk.
TOKENS_MAX = 4096
TOP_MAX = 20
TOKEN_BYTES_MAX = 1024


class LogprobTeller:
    """Tells what one drawn token was worth. `spell` gives a token's bytes; `top` is how many others to name."""

    def __init__(self, spell: Callable[[int], bytes], top: int) -> None:
        self._spell, self._top = spell, top

    def tell(self, token: int, logprobs: Any) -> TokenLogprob:
        """`logprobs`: an evaluated MLX array over the vocabulary. Engine thread only."""
        import mlx.core as mx
        import numpy as np

        # Within numpy: an operation of MLX would queue behind the next step, which is under way already.
        row = np.array(logprobs.astype(mx.float32) if logprobs.dtype == mx.bfloat16 else logprobs, dtype=np.float32)
        top = min(self._top, row.size)
        likely = np.argpartition(-row, top - 1)[:top] if top else ()
        ranked = sorted(((float(row[i]), int(i)) for i in likely), key=lambda one: (-one[0], one[1]))
        return TokenLogprob(
            self._spell(token), _finite(float(row[token])), tuple((self._spell(i), _finite(p)) for p, i in ranked)
        )


def read_logprobs(value: Any) -> tuple[TokenLogprob, ...]:
    """An upstream's `logprobs` of one choice. What isn't as OpenAI writes it is left out."""
    content = value.get("content") if isinstance(value, Mapping) else None
    if not isinstance(content, list):
        return ()
    return tuple(_entry(one) for one in content[:TOKENS_MAX] if isinstance(one, Mapping))


def _entry(one: Mapping[str, Any]) -> TokenLogprob:
    top = one.get("top_logprobs")
    others = [other for other in top[:TOP_MAX] if isinstance(other, Mapping)] if isinstance(top, list) else []
    return TokenLogprob(_raw(one), _logprob(one), tuple((_raw(other), _logprob(other)) for other in others))


def _raw(one: Mapping[str, Any]) -> bytes:
    """The token's bytes where they are told, else those of its text."""
    told, text = one.get("bytes"), one.get("token")
    if (
        isinstance(told, list)
        and len(told) <= TOKEN_BYTES_MAX
        and all(isinstance(n, int) and 0 <= n < 256 for n in told)
    ):
        return bytes(told)
    return text[:TOKEN_BYTES_MAX].encode(errors="replace") if isinstance(text, str) else b""


def _logprob(one: Mapping[str, Any]) -> float:
    number = one.get("logprob")
    if isinstance(number, int | float) and abs(number) <= sys.float_info.max:  # some integers are no floats
        return min(float(number), 0.0)  # of a probability
    return NEVER


def _finite(number: float) -> float:
    return number if math.isfinite(number) else NEVER
