"""Run the suites of others against the servers, and print the table.

    python -m loadtests.scoreboard run [--model small|large] [--arms ...] [--suites ...] [--seeds 5] [--part 0.1]
    python -m loadtests.scoreboard table [--model small|large] [--write]
    python -m loadtests.scoreboard pack

`run` takes hours on a CPU: it goes on where the last one stopped, seed by seed, and `--minutes` ends each suite of a
server in time. Rows, with the raw answers, are kept in `loadtests/results/scoreboard`, which isn't in the repository;
`pack` writes them into one compressed file for a release. `table` compares only what every server was asked.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sys
from pathlib import Path

from loadtests.running import handle_end_signals, short_folder
from loadtests.scoreboard.arms import ARMS, MODEL, MODELS, start_arm
from loadtests.scoreboard.figures import Standing, build_table, compute_standing, keep_common, read_rows
from loadtests.scoreboard.suites import SUITES, install_suite, run_suite
from loadtests.table import put, stamp

RESULTS = Path(__file__).parents[1] / "results" / "scoreboard"
CACHE = Path.home() / ".cache" / "mlx-stack-agents"
Standings = dict[tuple[str, str], dict[str, Standing]]


def find_rows(model: str, arm: str, suite: str) -> Path:
    """Name the file of the rows. The chain has both models, so it is the same for either."""
    return RESULTS / f"{'both' if arm == 'chain' else model}.{arm}.{suite}.jsonl"


def run(args: argparse.Namespace) -> None:
    """Run what is asked, server by server."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in args.suites:
        install_suite(SUITES[name].packages, args.cache)
    for arm in args.arms:
        with short_folder() as folder, start_arm(arm, args.model, args.cache, folder) as url:
            for name in args.suites:
                suite = SUITES[name]
                cases = math.ceil(suite.cases * args.part)
                print(f"{arm}, {args.model}: {suite.what}", flush=True)
                rows = find_rows(args.model, arm, name)
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


def collect_standings(model: str) -> Standings:
    """Collect the figures of a model's servers, by suite and kind, over what all of them were asked."""
    found: Standings = {}
    for suite in SUITES:
        by_arm = {arm: rows for arm in ARMS if (rows := read_rows(find_rows(model, arm, suite)))}
        for arm, rows in keep_common(by_arm).items():
            for kind in dict.fromkeys(row["kind"] for row in rows):
                some = [row for row in rows if row["kind"] == kind]
                found.setdefault((suite, kind), {})[arm] = compute_standing(some)
    return found


def print_table(args: argparse.Namespace) -> None:
    """Print the table, and put it into its place."""
    table = build_table(collect_standings(args.model), ARMS)
    print(table)
    if args.write:
        command = f"python -m loadtests.scoreboard table --model {args.model}"
        put(f"scoreboard-{args.model}", f"{stamp(command)}\n\n{table}")


def pack(_: argparse.Namespace) -> None:
    """Write all rows into one compressed file."""
    target = RESULTS / "scoreboard.jsonl.gz"
    with gzip.open(target, "wt", encoding="utf-8") as file:
        for path in sorted(RESULTS.glob("*.jsonl")):
            model, arm, suite = path.name.split(".")[:3]
            head = f'{{"model": "{model}", "arm": "{arm}", "suite": "{suite}", '
            file.writelines(f"{head}{line[1:]}\n" for line in path.read_text(encoding="utf-8").splitlines())
    print(f"{target}: {target.stat().st_size:,} bytes")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.scoreboard", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run suites against servers")
    runs.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    runs.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    runs.add_argument("--seeds", type=int, default=5)
    runs.add_argument("--part", type=float, default=1.0, help="of the cases of each suite (default: all)")
    runs.add_argument(
        "--minutes", type=float, default=600.0, help="for each suite of each server (default: %(default)g)"
    )
    runs.add_argument("--cache", type=Path, default=CACHE, help="where packages are installed (default: %(default)s)")
    runs.set_defaults(run=run)
    tables = commands.add_parser("table", help="print the table of what has run")
    tables.add_argument("--write", action="store_true", help="put it into loadtests/README.md")
    tables.set_defaults(run=print_table)
    for one in (runs, tables):
        one.add_argument("--model", choices=MODELS, default="small")
    commands.add_parser("pack", help="write all rows, with the raw answers, into one file").set_defaults(run=pack)
    args = parser.parse_args()
    handle_end_signals()
    args.run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
