"""Run the suites of others against the servers, and print the table.

    python -m loadtests.scoreboard run [--model small|large] [--arms ...] [--suites ...] [--seeds 5] [--part 0.1]
    python -m loadtests.scoreboard table [--model small|large] [--write]
    python -m loadtests.scoreboard check [--model small|large] [--arms on] [--part 0.1]
    python -m loadtests.scoreboard pack

`run` takes hours on a CPU: it goes on where the last one stopped, seed by seed, and `--minutes` ends each suite of a
server in time. The verdicts are kept in `rows.jsonl`; the raw answers in `loadtests/results/scoreboard`, which isn't in
the repository, and `pack` writes them into one compressed file for a release. `table` compares only what every server
was asked; `check` runs a tenth anew and fails where it is worse than the rows that are kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadtests.real_agents.agents import CACHE
from loadtests.running import handle_end_signals, short_folder
from loadtests.scoreboard.arms import ARMS, MODEL, MODELS, start_arm
from loadtests.scoreboard.figures import (
    Standings,
    build_table,
    collect_standings,
    find_lost,
    name_sum,
    read_rows,
    write_rows,
)
from loadtests.scoreboard.suites import SUITES, install_suite, run_suite
from loadtests.table import put, stamp

RESULTS = Path(__file__).parents[1] / "results" / "scoreboard"
ROWS = Path(__file__).with_name("rows.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "scoreboard.md"
KEPT = ("case", "seed", "kind", "right", "valid", "calls", "wasted", "in", "out", "seconds", "wrong")


def run(args: argparse.Namespace) -> None:
    """Run what is asked, server by server, and keep the rows."""
    args.answers.mkdir(parents=True, exist_ok=True)
    for name in args.suites:
        install_suite(SUITES[name].packages, args.cache)
    for arm in args.arms:
        with short_folder() as folder, start_arm(arm, args.model, args.cache, folder) as url:
            for name in args.suites:
                print(f"{arm}, {args.model}: {SUITES[name].what}", flush=True)
                _run_suite(args, arm, name, url, args.answers / f"{_name_model(args.model, arm)}.{arm}.{name}.jsonl")


def _run_suite(args: argparse.Namespace, arm: str, name: str, url: str, answers: Path) -> None:
    """Run one suite behind the rows that are known; keep the new ones without their raw answers."""
    suite, head = SUITES[name], {"model": _name_model(args.model, arm), "arm": arm, "suite": name}
    kept = read_rows(args.rows)
    ours = [row for row in kept if {key: row[key] for key in head} == head]
    known = {(row["case"], row["seed"]) for row in ours}
    if not answers.exists():
        write_rows(answers, ours)
    cases, seeds = math.ceil(suite.cases * args.part), min(args.seeds, suite.seeds)
    try:
        run_suite(suite, url, MODEL, answers, args.cache, cases=cases, seeds=seeds, minutes=args.minutes)
    finally:
        new = [row for row in read_rows(answers) if (row["case"], row["seed"]) not in known]
        short = [head | {key: row[key] for key in KEPT if key in row} for row in new]
        write_rows(args.rows, [*kept, *short])


def _name_model(model: str, arm: str) -> str:
    """Name the weights of a server: the chain has both models, whichever is asked for."""
    return "both" if arm == "chain" else model


def collect(rows: list[dict[str, Any]], model: str, name: Callable[[str], str] = str) -> Standings:
    """Collect the standings of a model's servers over what all of them were asked; `name` is `collect_standings`'s."""
    by_suite: dict[str, dict[str, list[dict[str, Any]]]] = {suite: {} for suite in SUITES}
    for row in rows:
        if row["model"] == _name_model(model, row["arm"]):
            by_suite[row["suite"]].setdefault(row["arm"], []).append(row)
    return collect_standings(by_suite, name)


def print_table(args: argparse.Namespace) -> None:
    """Print the table, and put it into its place."""
    rows = read_rows(args.rows)
    sums, kinds = collect(rows, args.model, name_sum), collect(rows, args.model)
    table = f"{build_table(sums, ARMS)}\n\n{build_table(kinds, ARMS)}"
    print(table)
    if args.write:
        command = f"python -m loadtests.scoreboard table --model {args.model}"
        put(f"scoreboard-{args.model}", f"{stamp(command)}\n\n{table}", PAGE)


def check(args: argparse.Namespace) -> None:
    """Run a part anew, and fail where it is worse than the rows that are kept."""
    kept = read_rows(args.rows)
    with short_folder() as folder:
        args.rows, args.answers = folder / "rows.jsonl", folder
        run(args)
        now = collect(read_rows(args.rows), args.model)
    print(build_table(now, args.arms))
    asked = [row for row in kept if row["arm"] in args.arms]
    if lost := find_lost(now, collect(asked, args.model)):
        sys.exit("worse than the kept rows:\n" + "\n".join(lost))


def pack(_: argparse.Namespace) -> None:
    """Write all raw answers that are on this machine into one compressed file."""
    target = RESULTS / "scoreboard.jsonl.gz"
    with gzip.open(target, "wt", encoding="utf-8") as file:
        for path in sorted(RESULTS.glob("*.jsonl")):
            model, arm, suite = path.name.split(".")[:3]
            head = {"model": model, "arm": arm, "suite": suite}
            file.writelines(f"{json.dumps(head | row)}\n" for row in read_rows(path))
    print(f"{target}: {target.stat().st_size:,} bytes")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.scoreboard", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run suites against servers")
    runs.set_defaults(run=run, answers=RESULTS)
    checks = commands.add_parser("check", help="run a part anew, and compare it with the last figures")
    checks.set_defaults(run=check)
    for one, part in (runs, 1.0), (checks, 0.1):
        one.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
        one.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
        one.add_argument("--seeds", type=int, default=5)
        one.add_argument("--part", type=float, default=part, help="of the cases of each suite (default: %(default)g)")
        one.add_argument(
            "--minutes", type=float, default=600.0, help="for each suite of a server (default: %(default)g)"
        )
        one.add_argument("--cache", type=Path, default=CACHE, help="where packages are (default: %(default)s)")
    tables = commands.add_parser("table", help="print the table of what has run")
    tables.add_argument("--write", action="store_true", help="put it into docs/scoreboard.md")
    tables.set_defaults(run=print_table)
    packs = commands.add_parser("pack", help="write all rows, with the raw answers, into one file")
    packs.set_defaults(run=pack)
    for one in (runs, checks, tables):
        one.add_argument("--model", choices=MODELS, default="small")
    for one in (runs, checks, tables):
        one.add_argument("--rows", type=Path, default=ROWS, help="the file of the rows (default: %(default)s)")
    args = parser.parse_args()
    handle_end_signals()
    args.run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
