"""What an evaluation does, cell by cell, in the order in which it is worth most.

A cell is one case, fixture or measurement of one model on one variant of the server; its result is kept once, so that
an evaluation can be taken up again. Cells of a phase go round the models: whenever time runs out, each has as many.

Each phase may use the time up to its share of the whole budget; what one leaves is the next one's. So a slow model
costs the later phases cells, never all of them, and the report says how many were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.evaluate.tasks.fixtures import FIXTURES

__all__ = ["AUTO", "Cell", "Phase", "Settings", "plan_served", "plan_variants"]

AUTO = "auto"
RULES = "rules"
LENGTHS = (64, 256, 1024, 2048, 4096, 8192, 16_384)
REPEATS = 3
TOGETHER = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says of the size."""

    seed: int = 1
    cases: int = 24
    budget_minutes: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing to do. `name` is a case's number, a fixture's name, or a length and its repetition."""

    variant: str
    kind: str
    model: str
    name: str

    @property
    def key(self) -> str:
        """What the journal calls it."""
        return f"{self.variant}/{self.kind}/{self.model}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Cells that share a part of the time: they may begin until `until` of the budget (a share) is used."""

    variant: str
    title: str
    until: float
    cells: tuple[Cell, ...]


def plan_variants(
    tiers: Sequence[str], contexts: dict[str, int], settings: Settings, *, chain: bool, constrained: Sequence[str]
) -> list[Phase]:
    """Plan an evaluation on servers of our own. `tiers` are those that may answer; `contexts` how long their prompts
    may be, in tokens; `chain`: there is more than one tier to try; `constrained`: those that hold a grammar."""
    models, cases = list(tiers), range(settings.cases)
    phases = [
        Phase(variant="none", title="rules", until=1.0, cells=tuple(_tasks("none", [RULES]))),
        _phase("layers", "tool calls, each tier alone", 0.28, _calls("layers", models, cases)),
        _phase("layers", "tasks, each tier alone", 0.52, _tasks("layers", models)),
        _phase("layers", "speed", 0.66, _speeds("layers", models, contexts)),
    ]
    if chain:
        phases += [
            _phase("chain", "tool calls, the chain", 0.74, _calls("chain", [AUTO], cases)),
            _phase("chain", "tasks, the chain", 0.84, _tasks("chain", [AUTO])),
        ]
    phases += [
        _phase("constrain", "tool calls, grammar at once", 0.92, _calls("constrain", constrained, cases)),
        _phase("unchecked", "tasks, unchecked", 1.0, _tasks("unchecked", models)),
    ]
    return phases


def plan_served(models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[Phase]:
    """Plan an evaluation of a server that runs already: as it is, and nothing else."""
    cases = range(settings.cases)
    return [
        Phase(variant="none", title="rules", until=1.0, cells=tuple(_tasks("none", [RULES]))),
        _phase("served", "tool calls", 0.45, _calls("served", models, cases)),
        _phase("served", "tasks", 0.8, _tasks("served", models)),
        _phase("served", "speed", 1.0, _speeds("served", models, contexts)),
    ]


def _phase(variant: str, title: str, until: float, cells: Sequence[Cell]) -> Phase:
    return Phase(variant=variant, title=title, until=until, cells=tuple(cells))


def _cell(variant: str, kind: str, model: str, name: str) -> Cell:
    return Cell(variant=variant, kind=kind, model=model, name=name)


def _calls(variant: str, models: Sequence[str], cases: range) -> list[Cell]:
    return [_cell(variant, "call", model, str(number)) for number in cases for model in models]


def _tasks(variant: str, models: Sequence[str]) -> list[Cell]:
    return [_cell(variant, "task", model, name) for name in FIXTURES for model in models]


def _speeds(variant: str, models: Sequence[str], contexts: dict[str, int]) -> list[Cell]:
    """List the short lengths first, all their repetitions; then how it goes together, then what is long."""
    short, long = LENGTHS[:3], LENGTHS[3:]
    cells = _lengths(variant, models, contexts, short)
    cells += [_cell(variant, "cache", model, "twice") for model in models]
    cells += [_cell(variant, "together", model, str(count)) for count in TOGETHER for model in models]
    return cells + _lengths(variant, models, contexts, long)


def _lengths(variant: str, models: Sequence[str], contexts: dict[str, int], lengths: Sequence[int]) -> list[Cell]:
    return [
        _cell(variant, "length", model, f"{length}-{repeat}")
        for length in lengths
        for repeat in range(REPEATS)
        for model in models
        if length + 256 <= contexts.get(model, LENGTHS[2] + 256)
    ]
