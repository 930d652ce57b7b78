"""How many tokens of a prompt a GPU reads best at once, measured on the machine itself.

A chunk of 512 costs some models nothing and others 6 to 16 % of their prefill, and what one takes of memory grows with
it. So sizes are tried from the smallest on, for about a second: the smallest within `_GAIN` of the fastest is taken.
The figure is kept in the cache folder, by model, MLX and GPU, so a machine measures once.

On a processor there is nothing to measure: the usual size stands, and `PrefillPace` keeps each step short.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deployments.models.cache_folder import keep_text

__all__ = ["CHUNKS", "choose_chunk", "measure_chunk"]

_LOG = logging.getLogger(__name__)

CHUNKS = (256, 512, 1024, 2048)
_BUDGET_S = 1.0
_GAIN = 0.03


def choose_chunk(
    model: Any,
    facts: Mapping[str, Any],
    cache_dir: Path,
    usual_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Choose the size of a chunk for this model on this machine; measure it where that was never done. `facts`: what
    names the model and the packages that compute it. `usual_tokens`: where it can't be measured."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu):
        return usual_tokens
    key = json.dumps({**facts, "gpu": mx.device_info().get("device_name")}, sort_keys=True)
    file = cache_dir / "prefill-chunks" / hashlib.sha256(key.encode()).hexdigest()
    kept = _read(file)
    if kept is None:
        try:
            kept = measure_chunk(lambda tokens: _read_zeros(model, tokens), clock) or usual_tokens
        except Exception as error:  # a model that can't read so many at once, or a GPU without the memory
            _LOG.warning("the chunk of a prompt isn't measured: %s", error)
            return usual_tokens
        keep_text(file, str(kept))
    return kept


def measure_chunk(read: Callable[[int], None], clock: Callable[[], float], budget_s: float = _BUDGET_S) -> int | None:
    """Measure with `read`, which reads so many tokens, for about `budget_s`: no size is begun that would take longer
    than what is left. None where not even the second size can be tried."""
    read(CHUNKS[0])  # compiles the kernels
    began_s, per_token_s = clock(), dict[int, float]()
    for tokens in CHUNKS:
        left_s = budget_s - (clock() - began_s)
        if per_token_s and min(per_token_s.values()) * tokens > left_s:
            break
        at_s = clock()
        read(tokens)
        per_token_s[tokens] = (clock() - at_s) / tokens
    if len(per_token_s) < 2:
        return None
    best = min(per_token_s.values())
    return next(tokens for tokens, took in per_token_s.items() if took <= best * (1 + _GAIN))


def _read_zeros(model: Any, tokens: int) -> None:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    model(mx.zeros((1, tokens), mx.int32), cache=cache)
    mx.eval([layer.state for layer in cache])
    mx.clear_cache()


def _read(file: Path) -> int | None:
    try:
        kept = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return kept if kept in CHUNKS else None
