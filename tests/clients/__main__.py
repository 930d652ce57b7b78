"""Run the matrix: `python -m tests.clients [--only NAME] [--scenario NAME] [--cache DIR] [--url URL] [--write]`."""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtests.real_agents.agents import CACHE
from loadtests.running import ROOT, handle_end_signals, run_server, short_folder
from loadtests.table import put, stamp
from tests.clients.behind import run_litellm
from tests.clients.catalog import CLIENTS, Client
from tests.clients.checks import Finding
from tests.clients.install import install
from tests.clients.players import SCENARIOS
from tests.clients.results import PAGE, build_real_table, build_table, is_met
from tests.clients.runs import RUN_S, WEAK_AND_GOOD, build_server_args, read_findings, run_client, write_record
from tests.support.upstream import Upstream

RECORDS = ROOT / "tests" / "clients" / "results"


def main() -> int:
    """Run what is asked for; 0 only if all of it is as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], help="clients whose names begin so, such as codex")
    parser.add_argument("--scenario", choices=SCENARIOS, help="one scenario; else all four")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the clients are (default: %(default)s)")
    parser.add_argument("--url", help="a server that runs already, with real models: the job only, and any clear end")
    parser.add_argument("--seconds", type=float, default=RUN_S, help="the longest that a run may take")
    parser.add_argument("--write", action="store_true", help="put the table of all last runs into docs/clients.md")
    given = parser.parse_args()
    handle_end_signals()
    clients = [one for one in CLIENTS if one.name.lower().startswith(tuple(map(str.lower, given.only)))]
    scenarios = ["job"] if given.url else [given.scenario] if given.scenario else SCENARIOS
    programs = install_all(clients, given.cache)
    clients = [client for client in clients if client.name in programs]
    findings = []
    for behind in (False, True):
        group = [(one, programs[one.name]) for one in clients if one.behind is behind and not (behind and given.url)]
        proxy = group[0][1] if behind and group else None
        if group:
            with short_folder() as folder, serve(given.url, proxy, folder) as (url, upstream):
                findings += run_group(group, scenarios, url, upstream, folder, given.seconds)
    if given.url:
        print(build_real_table(findings))
        return 0 if findings and all(is_met(one, real=True) for one in findings) else 1
    table = build_table(clients, findings)
    print(table)
    if given.write:
        put("clients", f"{stamp('make clients')}\n\n{build_table(CLIENTS, read_findings(RECORDS))}", PAGE)
    excused = {client.name: client.excused for client in clients}
    good = [is_met(one) or one.scenario in excused[one.client] for one in findings]
    return 0 if good and all(good) else 1


def install_all(clients: Sequence[Client], cache: Path) -> dict[str, Path]:
    """Install the clients; those that can't be installed here are named, and left out."""
    programs = {}
    for client in clients:
        try:
            programs[client.name] = install(client.packages, cache, client.pythons)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{client.name} can't be installed: {error}", file=sys.stderr)
    return programs


def run_group(
    group: Sequence[tuple[Client, Path]],
    scenarios: Sequence[str],
    url: str,
    upstream: Upstream | None,
    folder: Path,
    seconds: float,
) -> list[Finding]:
    findings = []
    for scenario in scenarios:
        for number, (client, programs) in enumerate(group):
            place = folder / f"{scenario}-{number}"
            finding, record = run_client(client, scenario, programs, url, upstream, place, seconds)
            write_record(RECORDS if upstream is not None else RECORDS / "real", finding, record)
            findings.append(finding)
    return findings


@contextlib.contextmanager
def serve(url: str | None, proxy: Path | None, folder: Path) -> Iterator[tuple[str, Upstream | None]]:
    """Run the server on played models, unless there is one at `url`; with a `proxy` (its programs), through that."""
    if url is not None:
        yield url.rstrip("/"), None
        return
    with contextlib.ExitStack() as running:
        upstream = running.enter_context(Upstream())
        base_url = upstream.base_url
        if proxy is not None:
            base_url = running.enter_context(run_litellm(proxy, list(WEAK_AND_GOOD.values()), base_url, folder))
        server = running.enter_context(run_server(build_server_args(base_url), folder))
        yield server.url, upstream


if __name__ == "__main__":
    sys.exit(main())
