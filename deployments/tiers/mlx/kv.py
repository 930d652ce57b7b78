"""What this server does with mlx-lm's caches of keys and values: copy, cut, measure. Engine thread only.

mlx-lm computes lazily: a cache that was just taken out of a batch is a formula over the batch's own arrays, and keeps
all of them alive. `detach` computes it, so that what is kept is as large as it says and no more.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from deployments.tiers.mlx.memory_budget import Layer, Layout

__all__ = ["MlxCaches", "detach", "layout_of", "scratch_bytes"]

# Where the model's configuration doesn't say its sizes.
_SCRATCH_UNKNOWN_BYTES = 256 << 20


class MlxCaches:
    """`prompt_cache.CacheOps` over mlx-lm's caches."""

    def nbytes(self, cache: Any) -> int:
        """Return the memory of all layers."""
        return sum(int(layer.nbytes) for layer in cache)

    def is_trimmable(self, cache: Any) -> bool:
        """Return mlx-lm's own answer; a window that has moved on can't go back."""
        return all(layer.is_trimmable() for layer in cache)

    def copy_shortened(self, cache: Any, tokens: int) -> Any:
        """Copy and cut; the copy shares the original's arrays until one of them is written to."""
        shorter = copy.deepcopy(cache)
        for layer in shorter if tokens else ():
            layer.trim(tokens)
        return shorter

    def cut(self, cache: Any, tokens: int) -> Any:
        """Copy the first tokens of plain caches; others hold more than tokens."""
        import mlx.core as mx
        from mlx_lm.models.cache import KVCache

        if any(type(layer) is not KVCache for layer in cache):
            return None
        pairs = [[mx.contiguous(one[..., :tokens, :]) for one in (layer.keys, layer.values)] for layer in cache]
        return detach([KVCache.from_state((*pair, tokens)) for pair in pairs])


def detach(cache: Any) -> Any:
    """Compute the cache, and return it."""
    import mlx.core as mx

    mx.eval([layer.state for layer in cache])
    return cache


def layout_of(cache: Any, tokens: int) -> Layout:
    """Measure what each layer keeps, on a cache of `tokens` tokens."""
    return Layout(tuple(_measure_layer(one, tokens) for one in _flatten(cache)))


def _flatten(caches: Iterable[Any]) -> Iterator[Any]:
    for one in caches:
        yield from _flatten(one.caches) if hasattr(one, "caches") else (one,)


def _measure_layer(one: Any, tokens: int) -> Layer:
    if not hasattr(one, "offset"):  # a recurrent state
        return Layer(0, fixed_bytes=int(one.nbytes))
    window = getattr(one, "max_size", None)
    # mlx-lm's plain one may have more places than tokens.
    places = one.keys.shape[2] if type(one).__name__ == "KVCache" and one.keys is not None else tokens
    return Layer(-(-int(one.nbytes) // places), int(window) if window else None)


def scratch_bytes(model: Any, step_tokens: int) -> tuple[int, int]:
    """Estimate the most that one prefill step needs for values in between, in float32.

    That is a few rows of the widest layers; and, for each token of the context, the attention
    scores, where no fused kernel spares them (on a CPU).
    """
    import mlx.core as mx

    args = getattr(model, "args", None)
    hidden, heads = getattr(args, "hidden_size", None), getattr(args, "num_attention_heads", None)
    if not isinstance(hidden, int) or not isinstance(heads, int):
        return _SCRATCH_UNKNOWN_BYTES, 0
    wide = getattr(args, "intermediate_size", None) or 4 * hidden
    scores = 0 if mx.metal.is_available() else 2 * heads * step_tokens
    return 4 * step_tokens * (8 * hidden + 3 * int(wide)), 4 * scores
