"""Choose the generator of a model: it turns tokens into tokens for many sequences at once. Engine thread only.

    plain keys and values in every layer    `LookupGenerator`: drafts from prompt and answer, in the batch
    windows, recurrent states               mlx-lm's `BatchGenerator`: tokens can't be taken back, so no drafts
    none of them right (`batch_check.py`)   `SingleGenerator`: one sequence at a time, as plain mlx-lm does

All have the part of `BatchGenerator`'s interface that `scheduler.py` uses. There is no draft model: it gained 1.0 to
1.2 times where prompt lookup makes 2.2 to 2.9 (`docs/decisions/050-mlx-engine.md`).

Invariant: `SingleGenerator` never reads two sequences or padding in one step, and gives caches away as copies.
"""

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from deployments.tiers.mlx.decoding.draft_policy import DraftPolicy
from deployments.tiers.mlx.decoding.generator import LookupGenerator, Progress
from deployments.tiers.mlx.decoding.ragged import is_ragged
from deployments.tiers.mlx.decoding.ragged_batch import ActiveSequence, Computer, Drawn, Intake, draw_lines

__all__ = ["Sharing", "SingleGenerator", "build_generator"]


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
    step_tokens_max: int,
    policy: DraftPolicy | None,
    step: Computer | None = None,
) -> Any:
    """Build one. `policy`: what was learned of drafts so far; None: no drafts. `step` computes in the model's place."""
    if sharing is Sharing.NONE:
        return SingleGenerator(model, stop_tokens=ends, prefill_step_size=step_tokens_max)
    cache = importlib.import_module("mlx_lm.models.cache")
    if is_ragged(cache.make_prompt_cache(model)):
        return LookupGenerator(model, stop_tokens=ends, prefill_step_size=step_tokens_max, policy=policy, step=step)
    # By name: the package's attribute `generate` is a function that hides the module.
    module: Any = importlib.import_module("mlx_lm.generate")
    # Otherwise each generator wires 75 % of the machine's memory for itself, and there is one in every tier.
    module.maybe_set_recommended_wired_limit = lambda: None
    return module.BatchGenerator(
        model,
        stop_tokens=[[token] for token in ends],
        completion_batch_size=running_max,
        prefill_batch_size=running_max,
        prefill_step_size=step_tokens_max,
    )


class SingleGenerator(Intake):
    """The sequences of one model. Engine thread only."""

    def __init__(self, model: Any, *, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        super().__init__(model, stop_tokens, prefill_step_size)
        self._rows: dict[int, tuple[ActiveSequence, Any]] = {}  # with their caches, in order of arrival

    def _put(self, row: ActiveSequence, cache: Any) -> None:
        self._rows[row.uid] = row, cache

    def next(self) -> tuple[list[Progress], list[Drawn]]:
        """Read a chunk of the first sequence's prompt, or draw its next token."""
        if not self._rows:
            return [], []
        row, cache = next(iter(self._rows.values()))
        if row.left:
            return [self._prefill(row, cache)], []
        done = []
        if row.last is None:
            row.last = row.prompt[-1]
            done.append(Progress(row.uid, (len(row.prompt), len(row.prompt)), True, True))
        return done, self._decode(row, cache)

    def extract_cache(self, uids: Sequence[int]) -> dict[int, tuple[Any, list[int]]]:
        """Copy what was computed for these, with the tokens that it holds."""
        found = {uid: self._rows[uid] for uid in uids if uid in self._rows}
        return {uid: (copy.deepcopy(cache), list(row.tokens)) for uid, (row, cache) in found.items()}

    def remove(self, uids: Sequence[int]) -> None:
        """End these sequences here."""
        for uid in uids:
            self._rows.pop(uid, None)

    def _prefill(self, row: ActiveSequence, cache: Any) -> Progress:
        import mlx.core as mx

        began_s, chunk = time.perf_counter(), row.cut_chunk(self.prefill_step_size)
        self._model(mx.array([chunk]), cache=cache)
        mx.eval([one.state for one in cache])
        mx.clear_cache()
        row.read += len(chunk)
        row.tokens += chunk
        self._work.prompt_tokens += len(chunk)
        self._work.prompt_time += time.perf_counter() - began_s
        return Progress(row.uid, (row.read, len(row.prompt)), row.read in row.ends, False)

    def _decode(self, row: ActiveSequence, cache: Any) -> list[Drawn]:
        import mlx.core as mx

        line = [row.pending]
        drawn = draw_lines([row], [line], self._model(mx.array([line]), cache=cache), self._stops)
        self._work.generation_tokens += len(drawn)
        if drawn and drawn[-1].finish_reason:
            self.remove([row.uid])
            drawn = [replace(drawn[-1], prompt_cache=cache, all_tokens=row.tokens)]
        return drawn
