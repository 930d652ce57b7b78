"""Rows into figures: how many were right, within which interval, and what a right one took."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.evaluate.figures.tables import describe_share

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """How one server did in one kind of a suite. `low` and `high`: Wilson's interval of the share that is right, 95 %;
    `tokens` and `seconds`: all that were spent, for each right one."""

    right: int
    cases: int
    low: float
    high: float
    calls: float
    tokens: float
    seconds: float

    @property
    def share(self) -> float:
        """The share that is right."""
        return self.right / self.cases


Standings = dict[tuple[str, str], dict[str, Standing]]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file; none where it isn't there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows of a file anew."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _compute_standing(rows: Sequence[Row]) -> Standing:
    """Compute the figures of some rows; there is at least one."""
    right, cases = sum(row["right"] for row in rows), len(rows)
    share = describe_share(right, cases)
    calls = sum(row.get("calls", 0) for row in rows) / cases
    tokens, seconds = sum(row["in"] + row["out"] for row in rows), sum(row["seconds"] for row in rows)
    least = max(1, right)
    return Standing(right, cases, share["low"], share["high"], calls, tokens / least, seconds / least)


def keep_common(by_arm: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Keep the cases and seeds that every server was asked, so that unfinished runs compare like with like."""
    keys = [{(row["case"], row["seed"]) for row in rows} for rows in by_arm.values()]
    common = set.intersection(*keys) if keys else set()
    return {arm: [row for row in rows if (row["case"], row["seed"]) in common] for arm, rows in by_arm.items()}


def collect_standings(
    by_suite: Mapping[str, Mapping[str, Sequence[Row]]], name: Callable[[str], str] = str
) -> Standings:
    """Collect the figures of all servers, by suite and what `name` makes of its kinds, over what every one of them was
    asked."""
    found: Standings = {}
    for suite, by_arm in by_suite.items():
        for arm, rows in keep_common(by_arm).items():
            for kind in dict.fromkeys(name(row["kind"]) for row in rows):
                some = [row for row in rows if name(row["kind"]) == kind]
                found.setdefault((suite, kind), {})[arm] = _compute_standing(some)
    return found


def name_sum(kind: str) -> str:
    """Name the sum that a kind is counted in: where no call is wanted, a server that makes none is right."""
    return "no call wanted" if "irrelevance" in kind else "the others"


def find_lost(now: Standings, last: Standings) -> list[str]:
    """Find where a server is worse than it was: its interval lies below the last share."""
    lost = []
    for key, by_arm in now.items():
        for arm, one in by_arm.items():
            before = last.get(key, {}).get(arm)
            if before and one.high < before.share:
                text = f"{one.right} of {one.cases}, last time {before.right} of {before.cases}"
                lost.append(f"{', '.join(key)}, {arm}: {text}")
    return lost


def build_table(standings: Standings, arms: Iterable[str]) -> str:
    """Build the table: a row for each suite and kind, a column for each server."""
    arms = list(arms)
    lines = [f"| suite | kind | cases | {' | '.join(arms)} |", "|---|---|---" + "|---" * len(arms) + "|"]
    for (suite, kind), by_arm in standings.items():
        cells = [_write_cell(by_arm[arm]) if arm in by_arm else "" for arm in arms]
        lines.append(f"| {suite} | {kind} | {next(iter(by_arm.values())).cases} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _write_cell(one: Standing) -> str:
    share = f"{one.share:.0%} ({one.low:.0%} to {one.high:.0%})"
    return f"{share}; {one.tokens:,.0f} tokens, {one.seconds:.0f} s" if one.tokens else f"{share}; {one.seconds:.0f} s"
