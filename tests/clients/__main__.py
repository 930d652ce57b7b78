"""Run the matrix: `python -m tests.clients [--only NAME] [--scenario NAME] [--cache DIR] [--url URL] [--write]`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from loadtests.running import ROOT, handle_end_signals, run_server, short_folder
from tests.clients.catalog import CLIENTS
from tests.clients.install import install
from tests.clients.players import SCENARIOS
from tests.clients.results import build_table, is_met, put_table
from tests.clients.runs import build_server_args, run_client, write_record
from tests.support.upstream import Upstream

CACHE = Path.home() / ".cache" / "mlx-stack-agents"
RECORDS = ROOT / "tests" / "clients" / "results"


def main() -> int:
    """Run what is asked for; 0 only if all of it is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="clients whose name begins so, such as codex")
    parser.add_argument("--scenario", choices=SCENARIOS, help="one scenario; else all four")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the clients are (default: %(default)s)")
    parser.add_argument("--url", help="a server that runs already, with real models: the job only, and any clear end")
    parser.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    given = parser.parse_args()
    handle_end_signals()
    clients = [client for client in CLIENTS if client.name.lower().startswith(given.only.lower())]
    scenarios = ["job"] if given.url else [given.scenario] if given.scenario else SCENARIOS
    programs = {client.name: install(client.packages, given.cache, client.pythons) for client in clients}
    findings = []
    with short_folder() as folder, serve(given.url, folder) as (url, upstream):
        # The chain goes down last: its breakers stay open for a while.
        for scenario in scenarios:
            for number, client in enumerate(clients):
                place = folder / f"{scenario}-{number}"
                finding, record = run_client(client, scenario, programs[client.name], url, upstream, place)
                write_record(RECORDS, finding, record)
                findings.append(finding)
    table = build_table(clients, findings)
    print(table)
    if given.write:
        put_table(table)
    return 0 if findings and all(is_met(one, real=given.url is not None) for one in findings) else 1


@contextlib.contextmanager
def serve(url: str | None, folder: Path) -> Iterator[tuple[str, Upstream | None]]:
    """Run the server on played models, unless there is one at `url`."""
    if url is not None:
        yield url.rstrip("/"), None
        return
    with Upstream() as upstream, run_server(build_server_args(upstream.base_url), folder) as server:
        yield server.url, upstream


if __name__ == "__main__":
    sys.exit(main())
