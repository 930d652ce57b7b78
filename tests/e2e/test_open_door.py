"""`serve run` on all interfaces: refused without keys, before anything is served; let through when it is meant."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from deployments.cli.front import free_port
from tests.repository import ROOT
from tests.serving import until

pytestmark = pytest.mark.ray

ENV = "MLX_STACK_API_KEYS"
SECRET = "door-key-0123456789abcdef"
REFUSED = "ConfigError: http_options.host: 0.0.0.0 is not loopback and no API keys are configured"


@dataclass
class Started:
    """`serve run` of one scripted tier on 0.0.0.0."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def said(self, words: str) -> bool:
        """Whether the terminal shows `words`."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        return words in self.log.read_text()

    def status(self, path: str) -> int | None:
        """The status of a GET; None while nobody listens."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10).status_code
        return None


@contextlib.contextmanager
def started(server: dict[str, Any], keys: str = "") -> Iterator[Started]:
    args = {
        "tiers": {"fast": {"kind": "scripted", "script": [{"answer": "hi"}]}},
        "reliability": {"escalation": {"chain": ["fast"]}},
        "server": server,
    }
    app = {"name": "open", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        path, log = Path(folder) / "c.yaml", Path(folder) / "log"
        config = {"proxy_location": "HeadOnly", "http_options": {"host": "0.0.0.0", "port": port}}
        path.write_text(yaml.safe_dump(config | {"applications": [app]}))
        env = os.environ | {"RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled", ENV: keys}
        with log.open("wb") as out:
            command = [Path(sys.executable).parent / "serve", "run", path]
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True)
        family = psutil.Process(process.pid)
        try:
            yield Started(process, log, port)
        finally:
            # How a server ends in peace is shown elsewhere. Its own process goes last, so that its children are found.
            for left in (*family.children(recursive=True), family):
                with contextlib.suppress(psutil.Error):
                    left.kill()
            process.wait(30)


def test_without_keys_nothing_is_served_to_others():
    """The app is refused with the line that says what to do; no route of it is ever there."""
    with started({}) as server:
        until(lambda: server.said(REFUSED), "the refusal")

        assert server.status("/health") == 404
        assert server.status("/v1/models") == 404
        assert SECRET not in server.log.read_text()


def test_an_open_door_is_said_out_loud():
    """`server.allow_open: true` serves, and the terminal says that everybody may ask."""
    with started({"allow_open": True}) as server:
        until(lambda: server.status("/health") == 200, "the server is up")

        assert server.said("open_to_everybody host=0.0.0.0")


def test_with_keys_others_may_reach_it():
    """Keys open the network's door: the server starts, warns of nothing, and shows no key."""
    with started({}, f"agent:{SECRET}") as server:
        until(lambda: server.status("/health") == 200, "the server is up")

        assert not server.said("open_to_everybody")
        assert SECRET not in server.log.read_text()
