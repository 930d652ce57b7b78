"""`mlx-stack-serve serve`, stopped in every way under load: nothing is left, and the next start has its port."""

import os
import sys

import pytest
import yaml

from deployments.config.free_port import free_port
from loadtests.running import short_folder
from loadtests.stops import WAYS, build_config, stop_once
from loadtests.terminal import terminal
from tests.support.serving import until

# In `make test` a server is killed in `test_default_server`, and Ctrl-C is typed in `test_sockets`, each under load.
pytestmark = [pytest.mark.ray, pytest.mark.nightly]

# What a terminal must never be shown.
NOISE = ("*** SIG", "PC: @", "Traceback", "ray::")
CODES = {"term": 0, "group": 0, "ctrl-c": 0, "hup": 0, "start": 0, "twice": 130, "session_leader": 1, "driver": 1}


@pytest.fixture(scope="module")
def place():
    """One port and one folder for all: each start finds what the stop before it has left."""
    with short_folder() as folder:
        yield free_port(), folder


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_leaves_nothing(place, way):
    """Within ten seconds no process, no socket, nobody on the port; each stream has ended whole or in an error frame,
    unless nobody was left to say so; the exit code is 0 after a stop that was asked for."""
    outcome = stop_once(way, *place)

    assert outcome.wrong == []
    assert outcome.code == CODES.get(way, -9)


def test_what_is_wrong_and_found_late_ends_the_start(place):
    """What only Serve finds (here a policy that isn't there) ends the start too: one line, exit code 2, nothing left,
    in place of a server that answers 404."""
    document = build_config(*place)
    document["applications"][0]["autoscaling_policy"] = {"policy_function": "no_such_module:Policy"}
    path = place[1] / "late.yaml"
    path.write_text(yaml.safe_dump(document))
    flags = {**os.environ, "RAY_TMPDIR": str(place[1]), "RAY_AUTH_MODE": "token"}
    with terminal([sys.executable, "-m", "deployments", "serve", str(path)], flags) as running:
        until(running.has_ended, "the start has ended", wait_s=120)
        text = running.text
        assert not running.find_living()

    assert running.code == 2
    line = next(line for line in text.splitlines() if "not started: " in line)
    assert "no_such_module" in line
    assert not any(words in text for words in NOISE)
