"""Which generator decodes a model: what turns tokens into tokens for many sequences at once. Engine thread only.

    plain keys and values in every layer    `decoding.LookupGenerator`: guesses from prompt and answer, in the batch
    windows, recurrent states               mlx-lm's `BatchGenerator`: what was read can't be taken back, so no guesses
    none of them right (`batch_check.py`)   `decoding.SingleGenerator`: one sequence at a time

All have the part of `BatchGenerator`'s interface that `batch.py` uses.

There is no draft model, a small one whose guesses the large one checks. Qwen2.5-Coder 0.5B for 1.5B, float32, answers
of 48 tokens, if it cost nothing but its steps: 1.01 and 1.12 times plain decoding on two questions of prose and 1.19 on
a program from nothing, with two guesses a step, and no more than 1.05 with four; on edits 1.49 at most, where prompt
lookup makes 2.2 and 2.9 times on two of three. A step of the draft takes a third of the model's (96 against 263 ms),
and reading three tokens 1.6 times what reading one does. For that it would take 2.5 GB beside 7.1, and read every
prompt as well. Where reading some tokens costs no more than one, as on a GPU, it may be otherwise: nobody has measured
that. (2 × Xeon, Linux, Python 3.11.7, two threads, 2026-11-24: `python -m loadtests.draft_bench --seconds 240`)
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from enum import Enum
from typing import Any

from deployments.tiers.mlx.decoding.draft_policy import DraftPolicy
from deployments.tiers.mlx.decoding.generator import LookupGenerator
from deployments.tiers.mlx.decoding.ragged import is_ragged
from deployments.tiers.mlx.decoding.rows import Computer
from deployments.tiers.mlx.decoding.single import SingleGenerator
from deployments.tiers.mlx.pace import STEP_TOKENS_MAX

__all__ = ["Sharing", "build_generator"]


class Sharing(Enum):
    """Which steps of the model sequences share: all, those of decoding only, or none."""

    ALL = "all"
    DECODING = "decoding"
    NONE = "none"


def build_generator(
    model: Any,
    ends: Iterable[int],
    sharing: Sharing,
    *,
    running_max: int,
    policy: DraftPolicy | None,
    step: Computer | None = None,
) -> Any:
    """Build one. `policy`: what was learned of guesses so far; None: no guesses from the text. `step` computes at once
    what the model would compute late."""
    if sharing is Sharing.NONE:
        return SingleGenerator(model, stop_tokens=ends, prefill_step_size=STEP_TOKENS_MAX)
    cache = importlib.import_module("mlx_lm.models.cache")
    if is_ragged(cache.make_prompt_cache(model)):
        return LookupGenerator(model, stop_tokens=ends, prefill_step_size=STEP_TOKENS_MAX, policy=policy, step=step)
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
