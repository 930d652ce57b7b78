"""`serve run` on all interfaces: refused without keys, before anything is served; let through when it is meant."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from deployments.config.free_port import free_port
from tests.support.config_files import make_document
from tests.support.repository import ROOT
from tests.support.serving import ends_with_family, until

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

OWN_ENV = "MLX_STACK_OPEN_DOOR_KEYS"
SECRET = "door-key-0123456789abcdef"
# One server for all three: each app has its own word on who may ask.
APPS: dict[str, dict[str, Any]] = {"shut": {}, "open": {"allow_open": True}, "keyed": {"api_keys_env": OWN_ENV}}
REFUSED = "ConfigError: http_options.host: 0.0.0.0 is not loopback and no API keys are configured"


@dataclass
class Started:
    """`serve run` on 0.0.0.0."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def said(self, words: str) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return words in self.log.read_text()

    def status(self, path: str) -> int | None:
        """The status of a GET; None while nobody listens."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10).status_code
        return None


@pytest.fixture(scope="module")
def server():
    port = free_port()
    made = {name: make_document(server=server)["applications"][0] for name, server in APPS.items()}
    apps = [app | {"name": name, "route_prefix": f"/{name}"} for name, app in made.items()]
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        path, log = Path(folder) / "c.yaml", Path(folder) / "log"
        config = {"proxy_location": "HeadOnly", "http_options": {"host": "0.0.0.0", "port": port}}
        path.write_text(yaml.safe_dump(config | {"applications": apps}))
        env = os.environ | {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", OWN_ENV: f"agent:{SECRET}"}
        with log.open("wb") as out:
            command = [Path(sys.executable).parent / "serve", "run", path]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdout=out,
                stderr=out,
                start_new_session=True,
                # Ignored where the tests run in the background, and then by what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        with ends_with_family(process):
            yield Started(process, log, port)


def test_without_keys_nothing_is_served_to_others(server):
    """The app is refused with the line that says what to do; no route of it is ever there."""
    until(lambda: server.said(REFUSED), "the refusal", wait_s=300)

    assert server.status("/shut/health") == 404
    assert server.status("/shut/v1/models") == 404
    assert SECRET not in server.log.read_text()


def test_an_open_door_is_said_out_loud(server):
    """`server.allow_open: true` serves, and the terminal says that everybody may ask."""
    until(lambda: server.status("/open/health") == 200, "the server is up", wait_s=300)

    assert server.said("open_to_everybody host=0.0.0.0")


def test_with_keys_others_may_reach_it(server):
    """Keys open the network's door: the server starts, warns of nothing, and shows no key."""
    until(lambda: server.status("/keyed/health") == 200, "the server is up", wait_s=300)
    log = server.log.read_text()
    warned = [line.partition(" -- ")[0] for line in log.splitlines() if "open_to_everybody" in line]

    assert all("open" in who for who in warned), "only the open app warns"
    assert server.status("/shut/health") == 404
    assert SECRET not in log


def test_the_tiers_are_found_by_name(server):
    """`serve status` shows the Router and each tier, healthy, under its own name."""
    address = until(lambda: re.search(r"dashboard at \S*?(http://[\d.:]+)", server.log.read_text()), "the address")[1]
    command = [Path(sys.executable).parent / "serve", "status", "--address", address]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = yaml.safe_load(out)["applications"]["open"]["deployments"]

    assert {name: one["status"] for name, one in found.items()} == {"Router": "HEALTHY", "fast": "HEALTHY"}


def test_ctrl_c_leaves_nothing(server):
    """Ctrl-C ends the server with exit code 0, and no process of it is left. (The last test here.)"""
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.process.send_signal(signal.SIGINT)

    assert server.process.wait(60) == 0
    assert psutil.wait_procs(children, timeout=15)[1] == []
