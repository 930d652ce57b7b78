"""The cells of an evaluation in the order of their worth, and whose turn it is.

A cell is one case, fixture or measurement of one model on one variant of the server; its result is kept once. A phase
may use the time up to its share of the budget; the next phase gets what it leaves. `_CORE` is what every part of the
report needs. The shares fit three models on two cores in 20 minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.evaluate.figures.tables import Cell
from deployments.evaluate.tasks.fixtures import FIXTURES

AUTO = "auto"
RULES = "rules"
# The length that the thresholds are held against, and a short one, come first.
LENGTHS_CORE, LENGTHS_MORE = (1024, 64), (256, 2048, 4096, 8192, 16_384)
_LENGTH_UNKNOWN = 1024
REPEATS = 3
TOGETHER = (1, 8, 4, 2)
# Tool-call cases that each part of the report is first to have: enough for the learned chain.
_CORE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says of the size."""

    seed: int = 1
    cases: int = 24
    budget_minutes: float = 20.0
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class PlanPhase:
    """Cells that share a part of the time: they may begin until `until` of the budget (a share) is used. `by_time`: the
    models take turns by the time that each has used, not by count. `batch_max`: so many cells run at once."""

    variant: str
    title: str
    until: float
    cells: Sequence[Cell]
    batch_max: int = 1
    by_time: bool = False


def read_contexts(models: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Read how many tokens each model takes, of those whose server says so."""
    contexts = {name: entry.get("context_length") for name, entry in models.items()}
    return {name: value for name, value in contexts.items() if isinstance(value, int) and value > 0}


def plan_variants(
    tiers: Sequence[str], contexts: dict[str, int], settings: Settings, *, chain: bool, constrained: Sequence[str]
) -> list[PlanPhase]:
    """Plan an evaluation on servers of our own. `tiers` are those that may answer; `contexts` how long their prompts
    may be, in tokens; `chain`: there is more than one tier to try; `constrained`: those that hold a grammar."""
    many = settings.at_once
    core, more = _split_cases(settings)
    phases = _plan_alone("layers", tiers, contexts, settings, (0.23, 0.46, 0.60, 0.62, 0.64, 0.66))
    if chain:
        phases += [
            PlanPhase("chain", "tool calls, the chain", 0.78, _calls("chain", [AUTO], core), many),
            PlanPhase("chain", "tasks, the chain", 0.82, _tasks("chain", [AUTO], 1), many),
            PlanPhase("chain", "more tool calls, the chain", 0.82, _calls("chain", [AUTO], more), many),
            PlanPhase("chain", "more tasks, the chain", 0.82, _tasks("chain", [AUTO], 2), many),
        ]
    return [
        *phases,
        PlanPhase("constrain", "tool calls, grammar at once", 0.88, _calls("constrain", constrained, core), many),
        PlanPhase("constrain", "more tool calls, grammar at once", 0.88, _calls("constrain", constrained, more), many),
        PlanPhase("unchecked", "tasks, unchecked", 1.0, _tasks("unchecked", tiers, 1), many, by_time=True),
        PlanPhase("unchecked", "more tasks, unchecked", 1.0, _tasks("unchecked", tiers, 2), many, by_time=True),
    ]


def plan_served(models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
    """Plan an evaluation of a server that runs already: as it is, and nothing else."""
    return _plan_alone("served", models, contexts, settings, (0.25, 0.5, 0.8, 0.9, 0.95, 1.0))


def _plan_alone(
    variant: str, models: Sequence[str], contexts: dict[str, int], settings: Settings, until: Sequence[float]
) -> list[PlanPhase]:
    """Plan the rules, and what each model does by itself; `until` is the share of the time of each of its phases."""
    many = settings.at_once
    core, more = _split_cases(settings)
    longer = _lengths(variant, models, contexts, LENGTHS_MORE, range(REPEATS))
    each = ", each tier alone" if variant == "layers" else ""
    return [
        PlanPhase("none", "rules", 1.0, _tasks("none", [RULES], 1), many),
        PlanPhase(variant, "speed", until[0], _speeds(variant, models, contexts)),
        PlanPhase(variant, f"tool calls{each}", until[1], _calls(variant, models, core), many, by_time=True),
        PlanPhase(variant, f"tasks{each}", until[2], _tasks(variant, models, 1), many, by_time=True),
        PlanPhase(variant, "more tool calls", until[3], _calls(variant, models, more), many, by_time=True),
        PlanPhase(variant, "more speed", until[4], longer, by_time=True),
        PlanPhase(variant, "more tasks", until[5], _tasks(variant, models, 2), many, by_time=True),
    ]


def _split_cases(settings: Settings) -> tuple[range, range]:
    return range(min(_CORE, settings.cases)), range(_CORE, settings.cases)


def _calls(variant: str, models: Sequence[str], cases: range) -> list[Cell]:
    return [Cell(variant, "call", model, str(number)) for number in cases for model in models]


def _tasks(variant: str, models: Sequence[str], number: int) -> list[Cell]:
    """List the tasks of one round; `make_fixture` reads the round from the name."""
    names = [name if number == 1 else f"{name}#{number}" for name in FIXTURES]
    return [Cell(variant, "task", model, name) for name in names for model in models]


def _speeds(variant: str, models: Sequence[str], contexts: dict[str, int]) -> list[Cell]:
    """List what is measured of every model: two lengths once, several at once, and what the cache saves."""
    return [
        *_lengths(variant, models, contexts, LENGTHS_CORE, range(1)),
        *(Cell(variant, "together", model, str(count)) for count in TOGETHER for model in models),
        *(Cell(variant, "cache", model, "twice") for model in models),
        *_lengths(variant, models, contexts, LENGTHS_CORE[::-1], range(1, REPEATS)),
    ]


def _lengths(
    variant: str, models: Sequence[str], contexts: dict[str, int], lengths: Sequence[int], repeats: range
) -> list[Cell]:
    return [
        Cell(variant, "length", model, f"{length}-{repeat}")
        for length in lengths
        for repeat in repeats
        for model in models
        if length + 256 <= contexts.get(model, _LENGTH_UNKNOWN + 256)
    ]


class _Turn:
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
        """Count the cells that fit its part of the time; one that fits all of it, or is only guessed not to, is
        tried."""
        if not self.pace_s:
            return self.batch_max
        enough = 1 if left_s >= self.pace_s or not self.done else 0
        return min(self.batch_max, max(int(part_s / self.pace_s), enough))


class PhaseSchedule:
    """The open cells of a phase. `guesses_s`: seconds a cell by model; `late`: models with no time for one cell."""

    def __init__(self, cells: Sequence[Cell], guesses_s: Mapping[str, float], *, batch_max: int, by_time: bool) -> None:
        self._by_time = by_time
        self.late: set[str] = set()
        self._turns: dict[str, _Turn] = {}
        for cell in cells:
            turn = self._turns.setdefault(cell.model, _Turn(batch_max, guesses_s.get(cell.model, 0.0)))
            turn.cells.append(cell)

    def draw(self, left_s: float) -> list[Cell]:
        """Draw the next batch, all of one model, for which `left_s` should suffice; nothing where nobody is left."""
        while left_s > 0 and (waiting := [turn for turn in self._turns.values() if turn.cells]):
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
        if late:
            turn.batch_max = len(batch) // 2
            turn.cells.extendleft(reversed(late))
        if not turn.batch_max:
            turn.cells.clear()
            self.late.add(batch[0].model)
