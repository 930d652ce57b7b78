"""Records of runs: a line of JSON for each request, with its body and what was answered. What the replay of
`tests/evals/loops_eval.py` needs of them is its fixture."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.real_agents.runs import Run
from loadtests.real_agents.trials import TRIALS, Trial
from loadtests.real_agents.verdicts import LAPS_MAX, is_lap
from loadtests.running import ROOT

FIXTURE = ROOT / "tests" / "evals" / "fixtures" / "agent_laps.jsonl.gz"
# No rule on loops reads a system prompt, and Hermes' is 30 kB long.
SYSTEM_CHARS = 300


def write_record(folder: Path, run: Run) -> None:
    """Write a run's exchanges and its output; of two runs of a trial, the second."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{run.trial.name}.jsonl").open("w", encoding="utf-8") as out:
        for one in run.exchanges:
            line = {"at_s": round(one.at_s, 2), "status": one.status, "loop": one.loop, "session": one.session}
            out.write(f"{json.dumps(line | {'body': one.body, 'answer': one.answer})}\n")
    (folder / f"{run.trial.name}.txt").write_text(run.output, encoding="utf-8")


def write_fixture(folder: Path, fixture: Path) -> int:
    """Write the records of all trials as one fixture, as many as there are; return its size in bytes."""
    lines = []
    for trial in TRIALS:
        path = folder / f"{trial.name}.jsonl"
        records = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines += [_hide_folders(json.dumps(lap)) for lap in reduce_record(trial, map(json.loads, records))]
    packed = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)
    return fixture.write_bytes(packed)


def reduce_record(trial: Trial, exchanges: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Reduce a trial's record to its first laps: the history and the answer of each. `last`: the agent asked for
    nothing more."""
    laps = [one for one in exchanges if is_lap(trial, one["body"])]
    for number, one in enumerate(laps[:LAPS_MAX], 1):
        messages = [_shorten(message) for message in one["body"]["messages"]]
        last = number == len(laps)
        yield {"trial": trial.name, "lap": number, "last": last, "messages": messages, "answer": one["answer"]}


def _shorten(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] != "system":
        return message
    text = message["content"] if isinstance(message["content"], str) else json.dumps(message["content"])
    return {"role": "system", "content": text[:SYSTEM_CHARS]}


def _hide_folders(line: str) -> str:
    """Name the folders of the machine on which it was recorded as any machine might."""
    return re.sub(r"/tmp/ms-[^/\"]+/run-\d+", "/home/user", line).replace(str(Path.home()), "/home/user")
