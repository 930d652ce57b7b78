"""Which generator decodes a model: what turns tokens into tokens for many sequences at once. Engine thread only.

    plain keys and values in every layer    `decoding.LookupGenerator`: guesses from prompt and answer, in the batch
    a draft model beside it                 `DraftGenerator`: its guesses, one sequence after another
    windows, recurrent states               mlx-lm's `BatchGenerator`: what was read can't be taken back, so no guesses

All have the part of `BatchGenerator`'s interface that `batch.py` uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from deployments.tiers.mlx.decoding.draft_policy import DraftPolicy
from deployments.tiers.mlx.decoding.generator import LookupGenerator
from deployments.tiers.mlx.decoding.ragged import is_ragged
from deployments.tiers.mlx.drafting import Draft, DraftGenerator
from deployments.tiers.mlx.pace import STEP_TOKENS_MAX

__all__ = ["build_generator"]


def build_generator(
    model: Any, ends: Iterable[int], *, running_max: int, draft: Draft | None, policy: DraftPolicy | None
) -> Any:
    """Build one. `policy`: what was learned of guesses so far; None: no guesses from the text."""
    if draft is not None:
        return DraftGenerator(model, draft, stop_tokens=ends, prefill_step_size=STEP_TOKENS_MAX)
    cache = importlib.import_module("mlx_lm.models.cache")
    if is_ragged(cache.make_prompt_cache(model)):
        return LookupGenerator(model, stop_tokens=ends, prefill_step_size=STEP_TOKENS_MAX, policy=policy)
    # By name: the package's attribute `generate` is a function that hides the module.
    module: Any = importlib.import_module("mlx_lm.generate")
    # Otherwise each generator wires 75 % of the machine's memory for itself, and there is one in every tier.
    module.maybe_set_recommended_wired_limit = lambda: None
    return module.BatchGenerator(
        model,
        stop_tokens=[[token] for token in ends],
        completion_batch_size=running_max,
        prefill_batch_size=running_max,
        prefill_step_size=STEP_TOKENS_MAX,
    )
