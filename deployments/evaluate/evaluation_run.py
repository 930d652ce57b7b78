"""Runs an evaluation: a server for each variant that still has cells to do, and the cells in their order.

    target ─▶ open a variant: start its server (or take the one that runs), wake its models, note what they are
           ─▶ plan ─▶ each cell that isn't in the journal yet, while its phase has time ─▶ journal

A cell that takes longer than it may is no result; its model is left out of the rest of that phase, since it would only
meet the same bound again. What is left out is shown by the report as not run.

What must never happen: a server of ours that runs on, whatever ends this; a cell in the journal that didn't finish.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deployments.config import AppConfig
from deployments.config_tiers import MlxTierConfig
from deployments.cost import is_cloud
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.asking.footprint import Footprint
from deployments.evaluate.asking.machine_facts import Energy, describe_machine, list_versions
from deployments.evaluate.asking.own_server import NoServer, OwnServer, patch_variant
from deployments.evaluate.asking.speed_run import measure_cache, measure_length, measure_together, warm_up
from deployments.evaluate.calls.call_cases import draw_cases
from deployments.evaluate.calls.call_run import run_case
from deployments.evaluate.cell_journal import CellJournal
from deployments.evaluate.evaluation_plan import Cell, Phase, Settings, plan_served, plan_variants
from deployments.evaluate.progress_line import ProgressLine
from deployments.evaluate.tasks.agent_strategy import AgentStrategy
from deployments.evaluate.tasks.bounded_tests import describe_confinement
from deployments.evaluate.tasks.rules_strategy import RulesStrategy
from deployments.evaluate.tasks.task_run import run_task

__all__ = ["OwnTarget", "Target", "UrlTarget", "run_evaluation"]

# What one cell may take, in seconds, whatever is left of the budget.
CELL_S = {"call": 120.0, "task": 420.0, "length": 240.0, "cache": 240.0, "together": 240.0}
WAKE_S = 400.0
LOAD_S = 180.0
NO_CLOUD = "it would leave this machine, and costs money: --cloud lets it"


class Target(Protocol):
    """What is evaluated."""

    first: str

    def open(self, variant: str) -> contextlib.AbstractContextManager[tuple[ChatClient, int | None]]:
        """Open a client to a variant, and say which process its server is (None: it isn't ours)."""
        ...

    def find_obstacles(self) -> dict[str, str]:
        """List the models that may not be asked, and why."""
        ...

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[Phase]:
        """Plan the cells."""
        ...


class OwnTarget:
    """A configuration: a server of our own is started for each variant."""

    first = "layers"

    def __init__(self, source: Path, config: AppConfig, *, cloud: bool) -> None:
        self._source, self._config, self._cloud = source, config, cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Start the server, and stop it at the end."""
        server = OwnServer(self._source, patch_variant(self._config, variant))
        try:
            server.start()
            client = ChatClient(server.url, local_only=not self._cloud)
            try:
                yield client, server.pid
            finally:
                client.close()
        finally:
            server.stop()

    def find_obstacles(self) -> dict[str, str]:
        """Leave out the tiers that aren't on this machine."""
        clouds = [name for name, tier in self._config.tiers.items() if is_cloud(tier)]
        return {} if self._cloud else dict.fromkeys(clouds, NO_CLOUD)

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[Phase]:
        """Plan all variants; the chain where there is one."""
        chain = [name for name in self._config.reliability.escalation.chain if name in models]
        held = [model for model in models if isinstance(self._config.tiers[model], MlxTierConfig)]
        tries = self._config.reliability.escalation.enabled and len(chain) > 1
        return plan_variants(models, contexts, settings, chain=tries, constrained=held)


class UrlTarget:
    """A server that runs already, ours or another one's, as it is."""

    first = "served"

    def __init__(self, url: str, key: str, models: Sequence[str], *, cloud: bool) -> None:
        self._url, self._key, self._models, self._cloud = url, key, list(models), cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Open a client."""
        client = ChatClient(self._url, key=self._key, local_only=not self._cloud)
        try:
            if client.get("/v1/models") is None:
                raise NoServer(f"no server with /v1/models answers at {client.url}")
            yield client, None
        finally:
            client.close()

    def find_obstacles(self) -> dict[str, str]:
        """Nothing is known of it."""
        return {}

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[Phase]:
        """Plan for it as it is."""
        wanted = self._models or list(models)
        return plan_served([model for model in wanted if model in models] or wanted, contexts, settings)


@dataclass(slots=True)
class _Clock:
    """The budget."""

    began_s: float
    budget_s: float

    def find_share(self) -> float:
        """Which share of the budget is used."""
        return (time.monotonic() - self.began_s) / self.budget_s

    def count_left_s(self) -> float:
        """How many seconds are left."""
        return self.budget_s - (time.monotonic() - self.began_s)


def run_evaluation(target: Target, settings: Settings, journal: CellJournal, line: ProgressLine) -> list[Phase]:
    """Run what the journal doesn't have yet; return the whole plan."""
    return _Evaluation(target, settings, journal, line).run()


class _Evaluation:
    def __init__(self, target: Target, settings: Settings, journal: CellJournal, line: ProgressLine) -> None:
        self._target, self._settings, self._journal, self._line = target, settings, journal, line
        self._clock = _Clock(time.monotonic(), settings.budget_minutes * 60)
        self._cases = draw_cases(settings.seed, settings.cases)
        self._phases: list[Phase] = []
        self._start_s = 0.0

    def run(self) -> list[Phase]:
        """Run all variants."""
        first, done = self._target.first, set()
        if "models" in self._journal.facts:
            self._phases = self._plan()
        else:
            self._run_variant(first)
            done.add(first)
        for variant in dict.fromkeys(phase.variant for phase in self._phases):
            if variant == "none":
                self._run_phases(None, variant)
            elif variant not in done and self._count_open(variant) and self._has_time(variant):
                self._run_variant(variant)
        return self._phases

    def _plan(self) -> list[Phase]:
        models = self._journal.facts["models"]
        contexts = {name: entry.get("context_length") or 0 for name, entry in models.items()}
        return self._target.plan(list(models), {k: v for k, v in contexts.items() if v}, self._settings)

    def _count_open(self, variant: str) -> int:
        cells = (cell for phase in self._phases if phase.variant == variant for cell in phase.cells)
        return sum(cell.key not in self._journal.cells for cell in cells)

    def _has_time(self, variant: str) -> bool:
        """Tell whether a phase of the variant would still have time once its server has started, as far as the last
        start tells."""
        share = self._clock.find_share() + self._start_s / self._clock.budget_s
        return any(share < phase.until for phase in self._phases if phase.variant == variant)

    def _run_variant(self, variant: str) -> None:
        self._line.say(f"starting the server: variant {variant}")
        began_s = time.monotonic()
        try:
            with self._target.open(variant) as (client, pid):
                self._journal.note(f"failed/{variant}", "")
                self._prepare(client, variant)
                self._start_s = time.monotonic() - began_s
                if not self._phases:
                    self._phases = self._plan()
                    self._run_phases(None, "none")
                footprint, energy = Footprint(pid) if pid else None, Energy()
                try:
                    self._run_phases(client, variant)
                finally:
                    self._note_use(client, variant, footprint, energy)
        except NoServer as error:
            self._line.say(f"variant {variant}: {error}")
            self._journal.note(f"failed/{variant}", str(error))
            if variant == self._target.first:
                raise

    def _prepare(self, client: ChatClient, variant: str) -> None:
        """Wake every model, and note what it is; who can't be woken is unavailable, with the reason."""
        obstacles = self._target.find_obstacles()
        found, warm = {}, {}
        for entry in _await_loads(client):
            name = entry["id"]
            if entry.get("starts_at") or name in obstacles:
                continue
            if entry.get("state") == "unavailable":
                obstacles[name] = entry.get("reason") or "unavailable"
                continue
            self._line.show(0, 0, f"{variant}: waking {name}")
            warm[name] = warm_up(client, name, within_s=WAKE_S)
            if warm[name]["error"]:
                obstacles[name] = warm[name]["error"]
            else:
                found[name] = entry
        if "models" not in self._journal.facts:
            now = {entry["id"]: entry for entry in client.models()}
            self._journal.note("models", {name: now.get(name, entry) for name, entry in found.items()})
            self._journal.note("unavailable", obstacles)
            self._journal.note("machine", describe_machine())
            self._journal.note("versions", list_versions())
            self._journal.note("confinement", describe_confinement())
        self._journal.note(f"warm/{variant}", warm)

    def _run_phases(self, client: ChatClient | None, variant: str) -> None:
        total = sum(len(phase.cells) for phase in self._phases)
        for phase in (phase for phase in self._phases if phase.variant == variant):
            late: set[str] = set()
            for cell in phase.cells:
                if cell.key in self._journal.cells or cell.model in late or self._clock.find_share() >= phase.until:
                    continue
                self._line.show(len(self._journal.cells), total, f"{phase.title} · {cell.model} · {_name(cell)}")
                result = self._run_cell(client, cell)
                if result is None:
                    late.add(cell.model)
                else:
                    self._journal.add(cell.key, result)

    def _run_cell(self, client: ChatClient | None, cell: Cell) -> Any:
        within_s = min(CELL_S[cell.kind], max(2.0, self._clock.count_left_s()))
        seed = self._settings.seed
        if cell.kind == "task":
            strategy = RulesStrategy() if client is None else AgentStrategy(client, cell.model)
            return run_task(strategy, cell.name, seed=seed, until_s=time.monotonic() + within_s)
        assert client is not None
        if cell.kind == "call":
            case, hasty = self._cases[int(cell.name)], cell.variant == "constrain"
            return run_case(client, cell.model, case, seed=seed, within_s=within_s, hasty=hasty)
        return _measure(client, cell, seed, within_s)

    def _note_use(self, client: ChatClient, variant: str, footprint: Footprint | None, energy: Energy) -> None:
        peaks = footprint.close() if footprint else {}
        mlx = {entry["id"]: entry["mlx_peak_bytes"] for entry in client.models() if entry.get("mlx_peak_bytes")}
        before: dict[str, Any] = self._journal.facts.get(f"memory/{variant}") or {"process": {}, "mlx": {}}
        merged = {"process": _keep_largest(before["process"], peaks), "mlx": _keep_largest(before["mlx"], mlx)}
        self._journal.note(f"memory/{variant}", merged)
        self._journal.note(f"energy/{variant}", energy.measure())


def _keep_largest(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """Keep the larger of two peaks, by name: an evaluation that is taken up again has seen both."""
    return {name: max(old.get(name, 0), new.get(name, 0)) for name in sorted({*old, *new})}


def _await_loads(client: ChatClient) -> list[dict[str, Any]]:
    """List the models once none of them loads any more, or after `LOAD_S`."""
    deadline_s = time.monotonic() + LOAD_S
    while True:
        models = client.models()
        if time.monotonic() > deadline_s or not any(entry.get("state") == "loading" for entry in models):
            return models
        time.sleep(0.5)


def _measure(client: ChatClient, cell: Cell, seed: int, within_s: float) -> Mapping[str, Any] | None:
    mark = 1000 * seed
    if cell.kind == "cache":
        return measure_cache(client, cell.model, mark + 900, within_s=within_s)
    if cell.kind == "together":
        return measure_together(client, cell.model, int(cell.name), mark + 10 * int(cell.name), within_s=within_s)
    length, _, repeat = cell.name.partition("-")
    return measure_length(client, cell.model, int(length), mark + int(length) + int(repeat), within_s=within_s)


def _name(cell: Cell) -> str:
    return f"case {cell.name}" if cell.kind == "call" else f"{cell.kind} {cell.name}"
