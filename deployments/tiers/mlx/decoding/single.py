"""Decode one sequence at a time, with the model's own caches and nothing else, as plain mlx-lm does.

For a model whose caches can't be put together in a batch, or whose sequences get wrong answers there
(`batch_check.py`). It has the part of the interface of mlx-lm's `BatchGenerator` that `batch.py` uses. Sequences take
turns in order of arrival.

Invariants:
- The model never reads two sequences in one step, and no padding.
- A cache that leaves is a copy, or belongs to a sequence that has ended.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from deployments.tiers.mlx.decoding.drawing import Drawn, draw_lines
from deployments.tiers.mlx.decoding.generator import Progress
from deployments.tiers.mlx.decoding.rows import Intake, Row

__all__ = ["SingleGenerator"]


class SingleGenerator(Intake):
    """The sequences of one model. Engine thread only."""

    def __init__(self, model: Any, *, stop_tokens: Iterable[int], prefill_step_size: int) -> None:
        super().__init__(model, stop_tokens, prefill_step_size)
        self._rows: dict[int, tuple[Row, Any]] = {}  # with their caches, in order of arrival

    def _put(self, row: Row, cache: Any) -> None:
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

    def _prefill(self, row: Row, cache: Any) -> Progress:
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

    def _decode(self, row: Row, cache: Any) -> list[Drawn]:
        import mlx.core as mx

        line = [row.pending]
        drawn = draw_lines([row], [line], self._model(mx.array([line]), cache=cache), self._stops)
        self._work.generation_tokens += len(drawn)
        if drawn and drawn[-1].finish_reason:
            self.remove([row.uid])
            drawn = [replace(drawn[-1], prompt_cache=cache, all_tokens=row.tokens)]
        return drawn
