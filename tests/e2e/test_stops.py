"""`mlx-stack-serve serve`, stopped in every way under load: nothing is left, and the next start has its port."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.cli.front import free_port
from loadtests.running import short_folder
from loadtests.stops import WAYS, config_of, one_stop
from loadtests.terminal import terminal
from tests.serving import until

pytestmark = pytest.mark.ray

# What a terminal must never be shown.
NOISE = ("*** SIG", "PC: @", "Traceback", "ray::")
CODES = {"term": 0, "group": 0, "ctrl-c": 0, "hup": 0, "start": 0, "twice": 130, "keeper": 1, "driver": 1}


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[int, Path]]:
    """One port and one folder for all: each start finds what the stop before it has left."""
    with short_folder() as folder:
        yield free_port(), folder


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_leaves_nothing(place, way):
    """Within ten seconds no process, no socket, nobody on the port; each stream has ended whole or in an error frame,
    unless nobody was left to say so; the exit code is 0 after a stop that was asked for."""
    outcome = one_stop(way, *place)

    assert outcome.wrong == []
    assert outcome.code == CODES.get(way, -9)


def started(place: tuple[int, Path], document: dict[str, Any], env: dict[str, str] | None = None) -> Any:
    """A start in a terminal of its own."""
    folder = place[1]
    path = folder / "late.yaml"
    path.write_text(yaml.safe_dump(document))
    flags = {**os.environ, "RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "token", **(env or {})}
    return terminal([sys.executable, "-m", "deployments", "serve", str(path)], flags)


def test_what_is_wrong_and_found_late_ends_the_start(place):
    """What only Serve finds (here a policy that isn't there) ends the start too: one line, exit code 2, nothing left,
    in place of a server that answers 404."""
    document = config_of(*place)
    document["applications"][0]["autoscaling_policy"] = {"policy_function": "no_such_module:Policy"}
    with started(place, document) as running:
        until(running.ended, "the start has ended", wait_s=120)
        text = running.text
        assert not running.living()

    assert running.code == 2
    line = next(line for line in text.splitlines() if "not started: " in line)
    assert "no_such_module" in line
    assert not any(words in text for words in NOISE)


def test_the_terminal_says_what_a_client_needs(place):
    """URL, tiers with state, two lines to paste, the page and the log; nothing of Ray's; and one line at the stop. A
    second server on the port is refused with the name of the first."""
    with started(place, config_of(*place)) as running:
        until(lambda: "Ctrl-C stops it" in running.text, "the server is up", wait_s=300)
        with started(place, config_of(*place)) as second:
            until(second.ended, "the second is refused", wait_s=60)
            assert second.code == 1
            assert f"is taken by another server of this kind, process {running.pid}" in second.text
        began_s = time.monotonic()
        running.type(b"\x03")
        until(running.ended, "it is stopped")
        text = running.text
    url = f"http://127.0.0.1:{place[0]}"

    assert running.code == 0
    assert time.monotonic() - began_s < 10
    assert f"export OPENAI_BASE_URL={url}/v1" in text
    assert "export OPENAI_API_KEY=unused" in text
    assert all(f"  {tier}" in text for tier in ("quick", "short", "long"))
    assert "page: http://127.0.0.1:" in text
    assert (place[1] / "logs" / f"serve-{place[0]}.log").read_text() != ""
    assert "stopping: no request is running; again to stop now" in text
    assert not any(words in text for words in NOISE)
