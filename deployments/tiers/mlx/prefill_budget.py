"""Choose how many prompt tokens one step reads: everything else on the engine thread waits for it.

On a GPU, `choose_chunk` measures once a machine which chunk reads fastest: a chunk of 512 costs some models 6 to 16 %
of their prefill, and larger ones take memory. The figure is kept in the cache folder, by model, MLX and GPU. While the
engine runs, `PrefillBudget` keeps each step short.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.models.cache_folder import keep_text

_LOG = logging.getLogger(__name__)

STEP_TOKENS_MAX = 512
CHUNKS = (256, 512, 1024, 2048)
_BUDGET_S = 1.0
_GAIN = 0.03  # the smallest chunk within this share of the fastest is taken


@dataclass(slots=True)
class PrefillBudget:
    """How many prompt tokens fit into one step, learned from the last one. Never less than `tokens_min`: a step has a
    cost of its own (the weights are read once), which on a busy machine is all that a smaller one would measure, and it
    would never grow again."""

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
        # One reading changes the budget by a bounded factor: a lucky one must not stall the others.
        bounded = max(self.tokens // 2, min(fits, 4 * self.tokens))
        self.tokens = max(self.tokens_min, min(bounded, self.tokens_max))


def choose_chunk(
    model: Any,
    facts: Mapping[str, Any],
    cache_dir: Path,
    usual_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Return the chunk for this model on this machine, measured where that was never done. `facts` name the model and
    the packages that compute it. `usual_tokens` stand where nothing can be measured."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu):
        return usual_tokens
    key = json.dumps({**facts, "gpu": mx.device_info().get("device_name")}, sort_keys=True)
    file = cache_dir / "prefill-chunks" / hashlib.sha256(key.encode()).hexdigest()
    kept = _read_kept(file)
    if kept is None:
        try:
            kept = measure_chunk(lambda tokens: _read_zeros(model, tokens), clock) or usual_tokens
        except Exception as error:  # a model that can't read so many at once, or a GPU without the memory
            _LOG.warning("the chunk of a prompt isn't measured: %s", error)
            return usual_tokens
        keep_text(file, str(kept))
    return kept


def measure_chunk(read: Callable[[int], None], clock: Callable[[], float], budget_s: float = _BUDGET_S) -> int | None:
    """Time `read`, which reads so many tokens, for about `budget_s`; None where not even two sizes can be tried. No
    size is begun that would take longer than the time that is left."""
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


def _read_kept(file: Path) -> int | None:
    try:
        kept = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return kept if kept in CHUNKS else None
