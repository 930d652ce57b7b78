"""Records of runs: a line of JSON for each lap, with the request's body and what was answered."""

from __future__ import annotations

import json
from pathlib import Path

from loadtests.real_agents.runs import Run

__all__ = ["write_record"]


def write_record(folder: Path, run: Run) -> None:
    """Write a run's exchanges and its output."""
    folder.mkdir(parents=True, exist_ok=True)
    name = run.trial.name
    while (folder / f"{name}.jsonl").exists() and run.twin:
        name += "-twin"
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as out:
        for one in run.exchanges:
            line = {
                "at_s": round(one.at_s, 2),
                "status": one.status,
                "loop": one.loop,
                "session": one.session,
                "body": one.body,
                "answer": one.answer,
                "scripted": run.trial.answer,
            }
            out.write(f"{json.dumps(line)}\n")
    (folder / f"{name}.txt").write_text(run.output, encoding="utf-8")
