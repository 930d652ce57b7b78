"""Measure what a model's caches of keys and values take. Engine thread only.

Run as a program, this module measures a model's cache from its config.json, without weights (`models/needs.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from deployments.models.weights import estimate_scores, find_held_dtype, read_number
from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.mlx.memory_budget import Layer, Layout
from deployments.tiers.mlx.prompt_cache.prompt_cache import flatten

_FLOATS = ("float32", "bfloat16", "float16")
# A cache of an unknown kind is measured at two lengths. Both are whole steps of growth and whole compressed groups.
_FEW, _MANY = 256, 512
_SCRATCH_UNKNOWN_BYTES = 256 << 20  # where the model's configuration doesn't say its sizes


def build_unloaded(config: Mapping[str, Any]) -> Any:
    """Build mlx-lm's model of a config.json, with weights that aren't computed. Raises what mlx-lm raises."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(dict(config))
    model = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    held = find_held_dtype(config)
    model.set_dtype(getattr(mx, held if held in _FLOATS else "bfloat16"))
    model.eval()  # mlx-lm's way to say that it isn't trained; it computes nothing
    return model


def measure_layout(model: Any) -> Layout:
    """Measure what each layer keeps, without computing anything."""
    cache = read_zeros(model, 2)
    if all(hasattr(one, "keys") or not hasattr(one, "offset") for one in flatten(cache)):
        return Layout(tuple(_measure_layer(one, 2) for one in flatten(cache)))
    layers = []
    few_tokens, many_tokens = (flatten(read_zeros(model, tokens)) for tokens in (_FEW, _MANY))
    for few, many in zip(few_tokens, many_tokens, strict=True):
        token_bytes = (many.nbytes - few.nbytes) // (_MANY - _FEW)
        layers.append(Layer(token_bytes, getattr(many, "max_size", None), many.nbytes - _MANY * token_bytes))
    return Layout(tuple(layers))


def read_zeros(model: Any, tokens: int) -> list[Any]:
    """Return the cache of a prompt of so many tokens, which isn't computed yet."""
    cache: list[Any] = mlx_caches.make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=cache)
    return cache


def find_context(model: Any) -> int | None:
    """Find the context length in the arguments of mlx-lm's model, which have defaults; None where they have none."""
    for module in model.modules():
        for name in ("args", "config"):
            if tokens := read_number(getattr(module, name, None), "max_position_embeddings"):
                return tokens
    return None


def _make_zeros(one: Any) -> Any:
    """Return zeros in place of an array's numbers: DBRX reads the numbers of its experts, which would compute all."""

    def fill(shape: tuple[int, ...]) -> Any:
        return [fill(shape[1:]) for _ in range(shape[0])] if shape else 0

    return fill(one.shape)


def _measure_layer(one: Any, tokens: int) -> Layer:
    """Measure what a layer keeps, on its cache of `tokens` tokens."""
    if not hasattr(one, "offset"):  # a recurrent state
        return Layer(0, fixed_bytes=int(one.nbytes))
    window = getattr(one, "max_size", None)
    if hasattr(one, "chunk_size"):  # Llama 4's, which grows by a step before it is cut
        window = one.chunk_size + one.step
    # There may be more places than tokens, since caches grow by steps, and fewer, in a window.
    keys = getattr(one, "keys", None)
    places = tokens if keys is None else keys.shape[2]
    return Layer(-(-int(one.nbytes) // places), int(window) if window else None)


def scratch_bytes(model: Any, step_tokens: int, *, forced: bool = False) -> tuple[int, int]:
    """Estimate the most that one prefill step needs for values in between, in float32: in any case (a few rows of the
    widest layers), and for each token of the context (the attention's scores: `memory/room.py`). `forced`: Metal's
    kernels that must be asked for are used."""
    args = getattr(model, "args", None)
    hidden = read_number(args, "hidden_size")
    if not hidden or not read_number(args, "num_attention_heads"):
        return _SCRATCH_UNKNOWN_BYTES, 0
    step_bytes = 4 * step_tokens * (8 * hidden + 3 * (read_number(args, "intermediate_size") or 4 * hidden))
    fixed_bytes, token_bytes = estimate_scores(args, step_tokens, forced=forced)
    return step_bytes + fixed_bytes, token_bytes


def _main() -> None:
    """Print the bytes of `sys.argv[1]` tokens, at most the model's context, for a config.json on standard input."""
    numbers: Any = mx.array
    numbers.tolist = numbers.item = _make_zeros
    model = build_unloaded(json.load(sys.stdin))
    tokens = int(sys.argv[1])
    tokens = min(tokens, find_context(model) or tokens)
    sys.stdout.write(f"{measure_layout(model).sequence_bytes(tokens)}\n")


if __name__ == "__main__":
    _main()
