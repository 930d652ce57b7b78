"""Measure the cache that a model keeps of a sequence. Run as a program: from its config.json alone (`models/needs.py`).

MLX is lazy: the shapes and types of arrays are known before anything is computed. The program builds mlx-lm's own class
of the model with weights that are never computed, lets it read a few tokens, and measures its caches; the engine does
that with the loaded model (`starting.py`). So each architecture is known that mlx-lm has, and the defaults of what the
configuration leaves out. For DeepSeek-V3 (671 billion weights) it takes 0.2 s and 92 MiB, after 2.2 s of processor time
to import mlx-lm (2026-11-26, 2 cores, Linux).

Invariants:
    - No weight is computed.
    - A server's process never runs the program, which loads MLX before the matrix library that `loading.py` puts first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from deployments.models.precision import find_held_dtype
from deployments.tiers.mlx.kv import flatten, layout_of
from deployments.tiers.mlx.memory_budget import Layer, Layout

__all__ = ["build_unloaded", "find_context", "measure_layout"]

_FLOATS = ("float32", "bfloat16", "float16")
# A cache of an unknown kind is measured at two lengths. Both are whole steps of growth and whole compressed groups.
_FEW, _MANY = 256, 512


def build_unloaded(config: Mapping[str, Any]) -> Any:
    """Build mlx-lm's model of a config.json, with random weights that aren't computed.

    Raises what mlx-lm raises for an architecture or a configuration that it doesn't know.
    """
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(dict(config))
    model = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    held = find_held_dtype(config)
    model.set_dtype(getattr(mx, held if held in _FLOATS else "bfloat16"))
    model.eval()  # mlx-lm's way to say that it isn't trained; it computes nothing
    return model


def measure_layout(model: Any) -> Layout:
    """Measure what each layer keeps, without computing anything."""
    cache = _read_tokens(model, 2)
    if all(hasattr(one, "keys") or not hasattr(one, "offset") for one in flatten(cache)):
        return layout_of(cache, 2)
    pairs = zip(*(flatten(_read_tokens(model, tokens)) for tokens in (_FEW, _MANY)), strict=True)
    return Layout(tuple(_compare(few, many) for few, many in pairs))


def _read_tokens(model: Any, tokens: int) -> list[Any]:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache: list[Any] = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=cache)
    return cache


def _compare(few: Any, many: Any) -> Layer:
    token_bytes = (many.nbytes - few.nbytes) // (_MANY - _FEW)
    return Layer(token_bytes, getattr(many, "max_size", None), many.nbytes - _MANY * token_bytes)


def find_context(model: Any) -> int | None:
    """Find the context length in the arguments of mlx-lm's model, which have defaults; None where they have none."""
    for module in model.modules():
        for name in ("args", "config"):
            tokens = getattr(getattr(module, name, None), "max_position_embeddings", None)
            if type(tokens) is int and tokens > 0:
                return tokens
    return None


def _make_zeros(one: Any) -> Any:
    """Return zeros in place of an array's numbers: DBRX reads the numbers of its experts, which would compute all."""

    def fill(shape: tuple[int, ...]) -> Any:
        return [fill(shape[1:]) for _ in range(shape[0])] if shape else 0

    return fill(one.shape)


def main() -> None:
    """Print the bytes of `sys.argv[1]` tokens, or of the model's own context if it is shorter, for the config.json on
    standard input."""
    import mlx.core as mx

    numbers: Any = mx.array
    numbers.tolist = numbers.item = _make_zeros
    model = build_unloaded(json.load(sys.stdin))
    tokens = int(sys.argv[1])
    tokens = min(tokens, find_context(model) or tokens)
    sys.stdout.write(f"{measure_layout(model).sequence_bytes(tokens)}\n")


if __name__ == "__main__":
    main()
