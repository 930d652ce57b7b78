"""Run the trials: `python -m loadtests.real_agents [--cache DIR] [--only NAME] [--record DIR] [--write]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from loadtests.real_agents.agents import AGENTS, CACHE, install
from loadtests.real_agents.records import FIXTURE, write_fixture, write_record
from loadtests.real_agents.results import build_table, compare_sessions
from loadtests.real_agents.runs import run_all
from loadtests.real_agents.trials import TRIALS, build_server_args
from loadtests.running import handle_end_signals, run_server, short_folder
from loadtests.table import put, stamp


def main() -> int:
    """Run what is asked for; 0 only if all of it is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.real_agents", description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the venvs are (default: %(default)s)")
    parser.add_argument("--only", default="", help="trials whose name begins so, such as hermes or aider-same")
    parser.add_argument("--record", type=Path, help="record the agents with loop detection off, into this folder")
    parser.add_argument("--write", action="store_true", help="put the table into loadtests/README.md")
    given = parser.parse_args()
    handle_end_signals()
    trials = [trial for trial in TRIALS if trial.name.startswith(given.only)]
    programs = {name: install(AGENTS[name], given.cache) for name in {trial.agent for trial in trials}}
    with short_folder() as folder, run_server(build_server_args(TRIALS, detect=not given.record), folder) as server:
        runs = []
        for run in run_all(trials, programs, server.url, folder):
            runs.append(run)
            if given.record:
                write_record(given.record, run)
    if given.record:
        print(f"{write_fixture(given.record, FIXTURE)} bytes in {FIXTURE}")
        return 0
    wrong = compare_sessions(runs)
    table = build_table(runs, wrong)
    print(table)
    if given.write:
        put("real agents", f"{stamp('python -m loadtests.real_agents')}\n\n{table}")
    return 0 if trials and not wrong and all(run.verdict.met for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
