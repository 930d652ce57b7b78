"""A server of its own, started in a terminal as `make serve` starts it, and all of its processes."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from deployments.config.free_port import free_port
from loadtests.terminal import Terminal, terminal
from tests.support.serving import until

START_S = 300.0


@dataclass
class Started:
    """A server that runs."""

    screen: Terminal
    command: list[str]
    flags: dict[str, str]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """The one that was started, and what that has started."""
        family = psutil.Process(self.screen.pid)
        return [family, *family.children(recursive=True)]

    def find(self, name: str) -> list[psutil.Process]:
        return [one for one in self.processes() if "".join(one.cmdline()[:1]).startswith(name)]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def leave(
        self, name: str, body: dict[str, Any], patience_s: float, *, stream: bool, within_s: float
    ) -> dict[str, Any]:
        """Ask, and go: at a stream's first bytes, or in vain after so long. Return the request's report."""
        read_s, sent = 60.0 if stream else patience_s, {"json": body | {"stream": stream}}
        with httpx.Client(timeout=httpx.Timeout(60.0, read=read_s)) as http:
            request = http.build_request(
                "POST", f"{self.url}/v1/chat/completions", headers={"x-request-id": name}, **sent
            )
            if stream:
                next(http.send(request, stream=True).iter_bytes())
            else:
                with pytest.raises(httpx.ReadTimeout):
                    http.send(request)
        path = f"/v1/reliability/requests/{name}"
        until(lambda: self.get(path).status_code == 200, "its report", within_s)
        return dict(self.get(path).json())

    def states(self) -> dict[str, str]:
        """The state of each tier; empty while nobody answers."""
        assert not self.screen.has_ended(), f"the server has ended:\n{self.screen.text[-3000:]}"
        with contextlib.suppress(httpx.TransportError):
            response = self.get("/ready")
            if response.status_code == 200:
                return {name: tier["state"] for name, tier in response.json()["tiers"].items()}
        return {}


@contextlib.contextmanager
def start_server(folder: Path, config: dict[str, Any], flags: Mapping[str, str], tier: str) -> Iterator[Started]:
    """Run a server on a free port, with `folder` as its home, until the block ends; `tier` is ready in it."""
    port, path = free_port(), folder / "c.yaml"
    path.write_text(yaml.safe_dump(config | {"http_options": {"host": "127.0.0.1", "port": port}}))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_SERVE_", "RAY_AUTH_"))}
    own = {"RAY_TMPDIR": str(folder), "HOME": str(folder)}
    command, flags = [sys.executable, "-m", "deployments", "serve", str(path)], kept | own | dict(flags)
    with terminal(command, flags) as screen:
        server = Started(screen, command, flags, folder, port)
        until(lambda: server.states().get(tier) == "ready", "the server is up", wait_s=START_S)
        yield server
