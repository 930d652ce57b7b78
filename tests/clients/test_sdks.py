"""The clients that are packages of the project's own environment, in all four runs, as `make clients` does it."""

import sys
from pathlib import Path

import pytest

from tests.clients.catalog import CLIENTS
from tests.clients.players import FAULTS, SCENARIOS
from tests.clients.results import is_met
from tests.clients.runs import build_server_args, run_client
from tests.support.upstream import Upstream

INSTALLED = ("openai", "anthropic")
PROGRAMS = Path(sys.executable).parent
LIGHT = [client for client in CLIENTS if client.packages in INSTALLED]


@pytest.fixture(scope="module")
def upstream():
    with Upstream() as server:
        yield server


@pytest.fixture(scope="module")
def server(deploy, upstream):
    return deploy(build_server_args(upstream.base_url), "clients")


# Each client does its job; what ends a run, each second one is told, and the chain goes down once: a client waits for
# as long as it is told before it asks again.
JOBS = [(client, SCENARIOS[0]) for client in LIGHT]
ENDS = [
    pytest.param(client, scenario, marks=[pytest.mark.further] * ((at + row) % 2))
    for row, scenario in enumerate(SCENARIOS[1:-1])
    for at, client in enumerate(LIGHT)
]


@pytest.mark.parametrize(
    ("client", "scenario"), [*JOBS, *ENDS, (LIGHT[0], SCENARIOS[-1])], ids=lambda one: getattr(one, "name", one)
)
def test_a_client_does_its_job_or_is_told_why_not(client, scenario, server, upstream, tmp_path):
    """Law: the five faults of a weak model reach no client; what ends a run is shown, and asked for again at most three
    times; the usage is that of the report."""
    finding, _ = run_client(client, scenario, PROGRAMS, server.url, upstream, tmp_path)

    assert is_met(finding), finding
    assert finding.exit_code == (0 if scenario == "job" else 1)
    if scenario == "job":
        assert set(finding.played) == set(FAULTS)
        assert finding.usage_checked == finding.requests
