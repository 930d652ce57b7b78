"""The table of all runs, and whether runs at one time were sessions of their own."""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.real_agents.runs import Run
from loadtests.real_agents.verdicts import LAPS_MAX


def compare_sessions(runs: Sequence[Run]) -> list[str]:
    """Say what is wrong with the sessions: a run is one session, and no other run's."""
    wrong = [f"{run.verdict.name}: sessions {run.verdict.sessions}" for run in runs if len(run.verdict.sessions) != 1]
    twins = [run.verdict.sessions for run in runs if run.twin]
    if len(twins) == 2 and set(twins[0]) & set(twins[1]):
        wrong.append(f"two runs of aider at once are one session: {twins[0]}")
    return wrong


def build_table(runs: Sequence[Run], wrong: Sequence[str]) -> str:
    """Build the table, one row a run."""
    head = f"| trial | nudged at lap | ended at lap (≤ {LAPS_MAX}) | laps | sent again | end | s | met |\n|{'---|' * 8}"
    rows = [head]
    for run in runs:
        found = run.verdict
        name = f"{found.name}, two runs at once" if run.twin else found.name
        cells = [name, found.nudged_at or "never", found.ended_at or "never", found.laps, found.again, found.end]
        rows.append(f"| {' | '.join(map(str, cells))} | {found.seconds:.0f} | {'yes' if found.met else '**no**'} |")
    return "\n".join(rows) + "\n\nSessions: " + ("; ".join(wrong) or "each run is one of its own") + "."
