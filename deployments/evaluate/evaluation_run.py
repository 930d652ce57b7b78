"""Run an evaluation: a server for each variant with open cells, then its cells in order, each result into the journal.

A cell that is late alone ends its model's cells of that kind in the variant. Cells that run concurrently share the
time: each is charged its part of the seconds, so a price is the time that the machine was busy.
Invariants: no server of ours outlives this, however it ends; the journal has finished cells only.
"""

from __future__ import annotations

import functools
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.asking.machine_facts import Footprint, describe_machine, list_versions
from deployments.evaluate.asking.speed_run import measure_speed, run_side_by_side, warm_up
from deployments.evaluate.calls.call_cases import draw_cases
from deployments.evaluate.calls.call_run import run_case
from deployments.evaluate.cell_journal import CellJournal
from deployments.evaluate.evaluation_plan import AUTO, LENGTHS_CORE, PhaseSchedule, PlanPhase, Settings
from deployments.evaluate.evaluation_target import NoServer, Target
from deployments.evaluate.figures.tables import Cell
from deployments.evaluate.tasks.bounded_tests import describe_confinement
from deployments.evaluate.tasks.strategies import Strategy, work_as_agent, work_by_rules
from deployments.evaluate.tasks.task_run import run_task

WIDTH = 118


class ProgressLine:
    """Says what is done, what runs, and how much time there is."""

    def __init__(self, budget_s: float, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._began_s, self._budget_s = time.monotonic(), budget_s
        self._rewrites = self._out.isatty()

    def show(self, done: int, total: int, what: str) -> None:
        """Show the cell that begins now: one line, rewritten on a terminal."""
        used_s = time.monotonic() - self._began_s
        left_s = max(0.0, self._budget_s - used_s)
        line = f"[{done}/{total}] {_take_out_controls(what)} · {_write_clock(used_s)} used, {_write_clock(left_s)} left"
        self._write(line[:WIDTH], "\r" if self._rewrites else "\n")

    def say(self, words: str) -> None:
        """Say something that stays."""
        self._write(_take_out_controls(words), "\n")

    def _write(self, line: str, end: str) -> None:
        self._out.write((line.ljust(WIDTH) if self._rewrites else line) + end)
        self._out.flush()


def _take_out_controls(words: str) -> str:
    """Take out what a terminal would obey: a server names its models as it likes."""
    return "".join(one if one.isprintable() else " " for one in words)


def _write_clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


# What one cell may take, in seconds, and as a share of the budget: a model that doesn't end one leaves time for others.
# One of several at once may take a quarter more for each.
CELL_S = {"call": 120.0, "task": 420.0, "length": 240.0, "cache": 240.0, "together": 240.0}
_CELL_SHARE = 0.25
WAKE_S = 400.0
# What a task is thought to take, in tokens read and written, before a model has worked on any.
_TASK_TOKENS = (2_000, 300)
LOAD_S = 180.0


def run_evaluation(target: Target, settings: Settings, journal: CellJournal, line: ProgressLine) -> list[PlanPhase]:
    """Run what the journal doesn't have yet; return the whole plan."""
    return _Evaluation(target, settings, journal, line).run()


class _Evaluation:
    def __init__(self, target: Target, settings: Settings, journal: CellJournal, line: ProgressLine) -> None:
        self._target, self._settings, self._journal, self._line = target, settings, journal, line
        self._began_s, self._budget_s = time.monotonic(), settings.budget_minutes * 60
        self._cases = draw_cases(settings.seed, settings.cases)
        self._first_mark = 1000 * (1_000 + secrets.randbelow(99_000))
        self._phases: list[PlanPhase] = []
        self._start_s = 0.0
        self._asleep: dict[str, Any] = {}

    def run(self) -> list[PlanPhase]:
        first, done = self._target.first, set()
        if "models" in self._journal.facts:
            self._phases = self._target.plan(self._journal.facts["models"], self._settings)
        else:
            self._run_variant(first)
            done.add(first)
        for variant in dict.fromkeys(phase.variant for phase in self._phases):
            if variant == "constrain":
                for phase in self._select_phases(variant):
                    _copy_answered(self._journal, phase.cells)
            if variant == "none":
                self._run_phases(None, variant)
            elif variant not in done and self._is_due(variant):
                self._run_variant(variant)
        return self._phases

    def _count_left_s(self, until: float = 1.0) -> float:
        """Return the seconds that are left of a share of the budget."""
        return self._budget_s * until - (time.monotonic() - self._began_s)

    def _bound(self, most_s: float) -> float:
        """Return how long a request may take: what is left, but not more than that."""
        return min(most_s, max(2.0, self._count_left_s()))

    def _is_due(self, variant: str) -> bool:
        """Tell whether the variant has open cells, and time for some after a start that takes as long as the last."""
        phases = self._select_phases(variant)
        is_open = any(cell.key not in self._journal.cells for phase in phases for cell in phase.cells)
        return is_open and any(self._count_left_s(phase.until) > self._start_s for phase in phases)

    def _select_phases(self, variant: str) -> list[PlanPhase]:
        return [phase for phase in self._phases if phase.variant == variant]

    def _run_variant(self, variant: str) -> None:
        self._line.say(f"starting the server: variant {variant}")
        began_s = time.monotonic()
        try:
            with self._target.open(variant) as (client, pid):
                self._journal.note(f"failed/{variant}", "")
                footprint = Footprint(pid) if pid else None
                try:
                    self._prepare(client, variant)
                    self._start_s = time.monotonic() - began_s
                    if not self._phases:
                        self._phases = self._target.plan(self._journal.facts["models"], self._settings)
                        self._run_phases(None, "none")
                    self._run_phases(client, variant)
                finally:
                    self._note_memory(client, variant, footprint)
        except NoServer as error:
            self._line.say(f"variant {variant}: {error}")
            self._journal.note(f"failed/{variant}", str(error))
            if variant == self._target.first:
                raise

    def _prepare(self, client: ChatClient, variant: str) -> None:
        """Find the models that can be asked. The first variant wakes each by itself, a figure of the report, and notes
        why others are unavailable; later ones wake a model when its first cell comes."""
        entries, obstacles = self._list_ready(client)
        if "models" in self._journal.facts:
            self._asleep = entries
            return
        warm = {}
        for name in entries:
            self._line.show(0, 0, f"{variant}: waking {name}")
            warm[name] = warm_up(client, name, within_s=self._bound(WAKE_S))
        obstacles |= {name: result["error"] for name, result in warm.items() if result["error"]}
        now = {entry["id"]: entry for entry in client.models()}
        models = {name: now.get(name, entry) for name, entry in entries.items() if name not in obstacles}
        facts = {"machine": describe_machine(), "versions": list_versions(), "confinement": describe_confinement()}
        for name, fact in {"models": models, **facts, "unavailable": obstacles, f"warm/{variant}": warm}.items():
            self._journal.note(name, fact)

    def _list_ready(self, client: ChatClient) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """List the models that may be asked, and why others may not, or can't answer."""
        entries, obstacles = {}, self._target.find_obstacles()
        for entry in _await_loads(client):
            name = entry["id"]
            if entry.get("starts_at") or name in obstacles:
                continue
            if entry.get("state") == "unavailable":
                obstacles[name] = str(entry.get("reason") or "unavailable")
            else:
                entries[name] = entry
        return entries, obstacles

    def _wake(self, client: ChatClient | None, variant: str, model: str) -> None:
        """Wake a model, or all of them for the chain, so that no figure has a start in it."""
        names = [name for name in self._asleep if model in (name, AUTO)]
        if client is None or not names:
            return
        self._line.show(0, 0, f"{variant}: waking {', '.join(names)}")
        jobs = [functools.partial(warm_up, client, name, within_s=self._bound(WAKE_S)) for name in names]
        for number, _ in run_side_by_side(jobs):
            self._asleep.pop(names[number])

    def _run_phases(self, client: ChatClient | None, variant: str) -> None:
        late: set[tuple[str, str]] = set()
        for phase in self._select_phases(variant):
            cells = [cell for cell in phase.cells if cell.key not in self._journal.cells]
            cells = [cell for cell in cells if (cell.kind, cell.model) not in late]
            guesses = {cell.model: self._guess_pace(cell) for cell in cells}
            schedule = PhaseSchedule(cells, guesses, batch_max=phase.batch_max, by_time=phase.by_time)
            while batch := schedule.draw(self._count_left_s(phase.until)):
                self._wake(client, variant, batch[0].model)
                began_s = time.monotonic()
                missed = self._run_batch(client, phase, batch)
                schedule.settle(batch, missed, time.monotonic() - began_s)
                if batch[0].model in schedule.late:
                    late.add((batch[0].kind, batch[0].model))

    def _guess_pace(self, cell: Cell) -> float:
        """Guess what such a cell takes of this model: as those before it, else by the model's speed; 0: who knows."""
        known = [(Cell.read_key(key), result) for key, result in self._journal.cells.items()]
        alike = [result for one, result in known if (one.kind, one.model) == (cell.kind, cell.model)]
        if alike:
            return statistics.fmean(result.get("seconds", 0.0) for result in alike)
        speed = self._journal.cells.get(f"{self._target.first}/length/{cell.model}/{LENGTHS_CORE[0]}-0") or {}
        if cell.kind != "task" or not all(speed.get(name) for name in ("first_s", "tokens_s", "prompt_tokens")):
            return 0.0
        return float(_TASK_TOKENS[0] * speed["first_s"] / speed["prompt_tokens"] + _TASK_TOKENS[1] / speed["tokens_s"])

    def _run_batch(self, client: ChatClient | None, phase: PlanPhase, batch: Sequence[Cell]) -> list[Cell]:
        """Run cells at once, and keep those that finish, whatever ends this; return those that were late."""
        total = sum(len(each.cells) for each in self._phases)
        names = _name(batch[0]) + (f" to {_name(batch[-1])}" if len(batch) > 1 else "")
        self._line.show(len(self._journal.cells), total, f"{phase.title} · {batch[0].model} · {names}")
        most_s = min(CELL_S[batch[0].kind], self._budget_s * _CELL_SHARE) * (1 + (len(batch) - 1) / 4)
        within_s = self._bound(most_s)
        jobs = [functools.partial(self._run_cell, client, cell, within_s, len(batch)) for cell in batch]
        finished: dict[Cell, Any] = {}
        began_s = time.monotonic()
        try:
            for number, result in run_side_by_side(jobs):
                if result is not None:
                    finished[batch[number]] = result
        finally:
            if len(batch) > 1:
                _share_time(list(finished.values()), time.monotonic() - began_s)
            for cell, result in finished.items():
                self._journal.add(cell.key, result)
        return [cell for cell in batch if cell not in finished]

    def _run_cell(self, client: ChatClient | None, cell: Cell, within_s: float, at_once: int) -> Any:
        seed = self._settings.seed
        if cell.kind == "task":
            work: Strategy = work_by_rules
            if client is not None:
                work = functools.partial(work_as_agent, client=client, model=cell.model, seed=seed, at_once=at_once)
            return run_task(work, cell.name, seed=seed, until_s=time.monotonic() + within_s)
        assert client is not None
        if cell.kind == "call":
            case, hasty = self._cases[int(cell.name)], cell.variant == "constrain"
            return run_case(client, cell.model, case, seed=seed, within_s=within_s, hasty=hasty)
        return measure_speed(client, cell.model, cell.kind, cell.name, mark=self._first_mark, within_s=within_s)

    def _note_memory(self, client: ChatClient, variant: str, footprint: Footprint | None) -> None:
        known = {entry["id"]: entry.get("mlx_peak_bytes") for entry in client.models()}
        mlx = {name: size for name, size in known.items() if isinstance(size, int) and size > 0}
        peaks = {"process": footprint.close() if footprint else {}, "mlx": mlx}
        # Of two peaks (`|` of counters) the larger: an evaluation that is taken up again has seen both.
        before = self._journal.facts.get(f"memory/{variant}") or {}
        merged = {name: Counter(before.get(name)) | Counter(now) for name, now in peaks.items()}
        self._journal.note(f"memory/{variant}", merged)


def _copy_answered(journal: CellJournal, cells: Sequence[Cell]) -> None:
    """Take over the cases that a tier answered at the first attempt: no re-ask, so no difference."""
    for cell in cells:
        known = journal.cells.get(f"layers/call/{cell.model}/{cell.name}")
        if not known or cell.key in journal.cells or known["error"]:
            continue
        if sum(attempt["ran"] for attempt in known["attempts"] or ()) == 1:
            journal.add(cell.key, known)


def _share_time(results: Sequence[dict[str, Any]], seconds: float) -> None:
    """Charge each cell with a part of its time, so that they add up to `seconds`; by the clock: `latency_s`."""
    whole = sum(result["seconds"] for result in results)
    part = min(1.0, seconds / whole) if whole else 1.0
    for result in results:
        result["latency_s"] = result["seconds"]
        for charged in (result, *(result.get("attempts") or ())):
            charged["seconds"] = round(charged["seconds"] * part, 3)


def _await_loads(client: ChatClient) -> list[dict[str, Any]]:
    """List the models once none of them loads any more, or after `LOAD_S`."""
    deadline_s = time.monotonic() + LOAD_S
    while True:
        models = client.models()
        if time.monotonic() > deadline_s or not any(entry.get("state") == "loading" for entry in models):
            return models
        time.sleep(0.5)


def _name(cell: Cell) -> str:
    return f"case {cell.name}" if cell.kind == "call" else f"{cell.kind} {cell.name}"
