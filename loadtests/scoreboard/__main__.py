"""Run the suites of others against the servers, and print the table.

    python -m loadtests.scoreboard run [--model small|large] [--arms ...] [--suites ...] [--seeds 5] [--part 0.1]
    python -m loadtests.scoreboard table [--model small|large] [--write]
    python -m loadtests.scoreboard check [--model small|large] [--arms on] [--part 0.1]
    python -m loadtests.scoreboard pack

`run` takes hours on a CPU: it goes on where the last one stopped, seed by seed, and `--minutes` ends each suite of a
server in time. Rows, with the raw answers, are kept in `loadtests/results/scoreboard`, which isn't in the repository;
`pack` writes them into one compressed file for a release. `table` compares only what every server was asked; `check`
runs a tenth anew and fails where it is worse than the figures that `table --write` left in `figures.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

from loadtests.running import handle_end_signals, short_folder
from loadtests.scoreboard.arms import ARMS, MODEL, MODELS, start_arm
from loadtests.scoreboard.figures import build_table, collect_standings, find_lost, read_rows
from loadtests.scoreboard.suites import SUITES, install_suite, run_suite
from loadtests.table import put, stamp

RESULTS = Path(__file__).parents[1] / "results" / "scoreboard"
CACHE = Path.home() / ".cache" / "mlx-stack-agents"
LAST = Path(__file__).with_name("figures.json")


def find_rows(folder: Path, model: str, arm: str, suite: str) -> Path:
    """Name the file of the rows. The chain has both models, so it is the same for either."""
    return folder / f"{'both' if arm == 'chain' else model}.{arm}.{suite}.jsonl"


def run(args: argparse.Namespace) -> None:
    """Run what is asked, server by server."""
    args.results.mkdir(parents=True, exist_ok=True)
    for name in args.suites:
        install_suite(SUITES[name].packages, args.cache)
    for arm in args.arms:
        with short_folder() as folder, start_arm(arm, args.model, args.cache, folder) as url:
            for name in args.suites:
                suite = SUITES[name]
                cases = math.ceil(suite.cases * args.part)
                print(f"{arm}, {args.model}: {suite.what}", flush=True)
                rows = find_rows(args.results, args.model, arm, name)
                run_suite(
                    suite,
                    url,
                    MODEL,
                    rows,
                    args.cache,
                    cases=cases,
                    seeds=min(args.seeds, suite.seeds),
                    minutes=args.minutes,
                )


def read_all(model: str, folder: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Read the rows of a model's servers, by suite."""
    return {
        suite: {arm: rows for arm in ARMS if (rows := read_rows(find_rows(folder, model, arm, suite)))}
        for suite in SUITES
    }


def print_table(args: argparse.Namespace) -> None:
    """Print the table; put it into its place, and its figures beside it for `check`."""
    standings = collect_standings(read_all(args.model, args.results))
    table = build_table(standings, ARMS)
    print(table)
    if args.write:
        command = f"python -m loadtests.scoreboard table --model {args.model}"
        put(f"scoreboard-{args.model}", f"{stamp(command)}\n\n{table}")
        figures = {
            f"{suite}/{kind}": {arm: [one.right, one.cases] for arm, one in by_arm.items()}
            for (suite, kind), by_arm in standings.items()
        }
        text = json.dumps(_read_last() | {args.model: figures}, indent=1)
        LAST.write_text(f"{text}\n", encoding="utf-8")


def check(args: argparse.Namespace) -> None:
    """Run anew what is asked, and fail where it is worse than the figures that were last written."""
    with short_folder() as results:
        args.results = results
        run(args)
        now = collect_standings(read_all(args.model, results))
    print(build_table(now, args.arms))
    if lost := find_lost(now, _read_last().get(args.model, {})):
        sys.exit("worse than the last figures:\n" + "\n".join(lost))


def _read_last() -> dict[str, Any]:
    return dict(json.loads(LAST.read_text(encoding="utf-8"))) if LAST.exists() else {}


def pack(args: argparse.Namespace) -> None:
    """Write all rows into one compressed file."""
    target = args.results / "scoreboard.jsonl.gz"
    with gzip.open(target, "wt", encoding="utf-8") as file:
        for path in sorted(args.results.glob("*.jsonl")):
            model, arm, suite = path.name.split(".")[:3]
            head = f'{{"model": "{model}", "arm": "{arm}", "suite": "{suite}", '
            file.writelines(f"{head}{line[1:]}\n" for line in path.read_text(encoding="utf-8").splitlines())
    print(f"{target}: {target.stat().st_size:,} bytes")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.scoreboard", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run suites against servers")
    runs.set_defaults(run=run)
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
    tables.add_argument("--write", action="store_true", help="put it into loadtests/README.md")
    tables.set_defaults(run=print_table)
    packs = commands.add_parser("pack", help="write all rows, with the raw answers, into one file")
    packs.set_defaults(run=pack)
    for one in (runs, checks, tables):
        one.add_argument("--model", choices=MODELS, default="small")
    for one in (runs, tables, packs):
        one.add_argument("--results", type=Path, default=RESULTS, help="the folder of the rows (default: %(default)s)")
    args = parser.parse_args()
    handle_end_signals()
    args.run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
