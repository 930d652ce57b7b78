"""Whose turn it is in a phase: batches of cells of one model, so that a slow model doesn't eat the others' time. Pure.

    by count   each model has as many cells as the others: where every cell is needed of every model
    by time    the model that has used the least time is next: where more cells only narrow an interval

A batch runs at once, since an engine decodes several sequences in one step nearly as cheaply as one. It is as large as
the model's part of the time allows, at the pace that the model has shown, or is thought to have before it has shown
any. A model for whose next cell there is no time is through with the phase. Cells that were late come back in a batch
of half the size; late alone, the model is through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from deployments.evaluate.figures.cell import Cell

__all__ = ["PhaseSchedule"]


class _Turn:
    """One model in a phase."""

    def __init__(self, batch_max: int, guess_s: float) -> None:
        self.cells: deque[Cell] = deque()
        self.batch_max, self._guess_s = batch_max, guess_s
        self.spent_s = 0.0
        self.done = 0

    @property
    def pace_s(self) -> float:
        """Seconds a cell; 0 while nothing is known of it."""
        return self.spent_s / self.done if self.done else self._guess_s

    def count_next(self, part_s: float, left_s: float) -> int:
        """Say how many cells its part of the time takes; one that all of the time takes is enough, as is one that is
        only thought to take longer."""
        if not self.pace_s:
            return self.batch_max
        enough = 1 if left_s >= self.pace_s or not self.done else 0
        return min(self.batch_max, max(int(part_s / self.pace_s), enough))


class PhaseSchedule:
    """The open cells of one phase. `guesses_s`: what a cell of a model is thought to take; `late`: the models that had
    no time for one cell alone."""

    def __init__(self, cells: Sequence[Cell], guesses_s: Mapping[str, float], *, batch_max: int, by_time: bool) -> None:
        self._by_time = by_time
        self.late: set[str] = set()
        self._turns: dict[str, _Turn] = {}
        for cell in cells:
            turn = self._turns.setdefault(cell.model, _Turn(batch_max, guesses_s.get(cell.model, 0.0)))
            turn.cells.append(cell)

    def draw(self, left_s: float) -> list[Cell]:
        """Draw the next batch, all of one model, for which `left_s` should suffice; nothing where nobody is left."""
        while left_s > 0:
            waiting = [turn for turn in self._turns.values() if turn.cells]
            if not waiting:
                return []
            turn = min(waiting, key=lambda one: one.spent_s if self._by_time else one.done)
            count = turn.count_next(left_s / len(waiting), left_s)
            if count:
                return [turn.cells.popleft() for _ in range(min(count, len(turn.cells)))]
            turn.cells.clear()
        return []

    def settle(self, batch: Sequence[Cell], late: Sequence[Cell], seconds: float) -> None:
        """Note what became of a batch: which of its cells were late, and how long it took."""
        turn = self._turns[batch[0].model]
        turn.spent_s += seconds
        turn.done += len(batch) - len(late)
        if not late:
            return
        turn.batch_max = len(batch) // 2
        if turn.batch_max:
            turn.cells.extendleft(reversed(late))
        else:
            turn.cells.clear()
            self.late.add(batch[0].model)
