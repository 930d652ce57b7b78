"""Completion: the real shells are asked what they would offer, at a terminal; and what a Tab offers of a server."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.commands import cli
from deployments.cli.shell_completion import SHELLS, _list_values, write_script
from tests.support.config_files import write_config
from tests.support.loopback import JsonServer
from tests.support.repository import ROOT
from tests.support.shells import complete, need_shell

ANSWERS: dict[str, Any] = {
    "live": {"tiers": [{"name": "fast", "state": "ready"}, {"name": "premium", "state": "unavailable"}]},
    "sessions": {"data": [{"session": name, "requests": 2} for name in ("agent-7", "$(touch x)", "a b", "-rf", "`x`")]},
    "requests": {"data": [{"request_id": "r-1", "outcome": "client_left", "at": 0.0}]},
}
TIERS = {"mine": {"kind": "scripted", "script": [{"answer": "x"}]}}
CASES = {
    "": set(cli.commands), "st": {"status"}, "status --": {"--json", "--url", "--config", "--help"},
    "service status --": {"--yes", "--help"}, "launch cod": {"codex"}, "launch --config ser": {"serve.yaml"},
    "check ser": {"serve.yaml"}, "completion f": {"fish"}, "incidents --kind gr": {"grant_expired"},
    "pull --config serve.yaml m": {"mine"}, "why --url {url} r": {"r-1"},
    "incidents --url={url} --tier ": {"fast", "premium"}, "logs --url {url} --session ": {"agent-7"},
}  # fmt: skip


# A second line of a kind; each starts a shell and two programs.
AGAIN = ("st", "service status --", "launch cod", "check ser", "completion f", "logs --url {url} --session ")
LINES = [pytest.param(line, marks=[pytest.mark.further] * (line in AGAIN)) for line in CASES]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with JsonServer({f"/v1/reliability/{name}": (200, body) for name, body in ANSWERS.items()}) as server:
        yield server.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody works: with a configuration, and the program on the path."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlx-stack-serve"
    started = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-P", "-m", "deployments"])
    program.write_text(f'#!/bin/sh\nexec {started} "$@"\n')
    program.chmod(0o700)
    write_config(tmp_path / "serve.yaml", TIERS, {"port": 1})
    return tmp_path


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_what_can_stand_there(folder, url, shell, line):
    """Commands, options, what an option or an argument takes, and what the named server has: that and nothing else."""
    need_shell(shell)
    typed = f"mlx-stack-serve {line.format(url=url)}"

    assert complete(shell, write_script(shell, cli), typed, folder) == CASES[line]


def test_a_client_s_word_is_offered_only_where_it_is_plain(url):
    """A session that is called like an order to the shell, or like an option, is left out."""
    assert _list_values("sessions", url, None) == {"agent-7": "2 requests"}
    assert _list_values("requests", url, None)["r-1"].startswith("client left ")


def test_without_a_server_tiers_come_from_the_configuration(tmp_path):
    """Nothing else does, and nobody is told of an error."""
    path = write_config(tmp_path / "serve.yaml", TIERS, {"port": 1})

    assert _list_values("tiers", None, path) == {"mine": "scripted"}
    assert _list_values("requests", None, path) == {}
    assert _list_values("tiers", None, tmp_path / "none.yaml") == {}
