"""Read the probabilities of tokens, from a model's own output or from an upstream's chunks.

They are what the token was sampled from before temperature, top-p and the like, and after penalties, bias and grammar.
JSON has no minus infinity: an impossible token has -9999, as at OpenAI.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from deployments.tiers.lazy_mlx import mx
from reliability.types import TokenLogprob

_NEVER = -9999.0
# Bounds on what an upstream may send in one chunk.
_TOKENS_MAX = 4096
_TOP_MAX = 20
_TOKEN_BYTES_MAX = 1024


class LogprobReader:
    """Reads the log-probability of a sampled token and of the `top` likeliest. `spell` gives a token's bytes."""

    def __init__(self, spell: Callable[[int], bytes], top: int) -> None:
        self._spell, self._top = spell, top

    def read(self, token: int, logprobs: Any) -> TokenLogprob:
        """Read them out of `logprobs`, an evaluated MLX array over the vocabulary. Engine thread only."""
        import numpy as np

        # Within numpy: an operation of MLX would queue behind the next step, which is under way already.
        numbers = np.array(logprobs.astype(mx.float32) if logprobs.dtype == mx.bfloat16 else logprobs, dtype=np.float32)
        top = min(self._top, numbers.size)
        likely = np.argpartition(-numbers, top - 1)[:top] if top else ()
        ranked = sorted(((float(numbers[i]), int(i)) for i in likely), key=lambda one: (-one[0], one[1]))
        others = tuple((self._spell(i), _make_finite(number)) for number, i in ranked)
        return TokenLogprob(self._spell(token), _make_finite(float(numbers[token])), others)


def _make_finite(number: float) -> float:
    return number if math.isfinite(number) else _NEVER


def read_logprobs(value: Any) -> tuple[TokenLogprob, ...]:
    """Read an upstream's `logprobs` of one choice. Entries that aren't as OpenAI writes them are left out."""
    content = value.get("content") if isinstance(value, Mapping) else None
    if not isinstance(content, list):
        return ()
    return tuple(_read_entry(one) for one in content[:_TOKENS_MAX] if isinstance(one, Mapping))


def _read_entry(one: Mapping[str, Any]) -> TokenLogprob:
    top = one.get("top_logprobs")
    others = [other for other in top[:_TOP_MAX] if isinstance(other, Mapping)] if isinstance(top, list) else []
    ranked = tuple((_read_bytes(other), _read_logprob(other)) for other in others)
    return TokenLogprob(_read_bytes(one), _read_logprob(one), ranked)


def _read_bytes(one: Mapping[str, Any]) -> bytes:
    values, text = one.get("bytes"), one.get("token")
    if isinstance(values, list) and len(values) <= _TOKEN_BYTES_MAX:
        with suppress(TypeError, ValueError):
            return bytes(values)
    return text[:_TOKEN_BYTES_MAX].encode(errors="replace") if isinstance(text, str) else b""


def _read_logprob(one: Mapping[str, Any]) -> float:
    number = one.get("logprob")
    if isinstance(number, int | float) and abs(number) <= sys.float_info.max:  # some integers are no floats
        return min(float(number), 0.0)  # of a probability
    return _NEVER
