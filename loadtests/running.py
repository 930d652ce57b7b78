"""Programs that a load test starts, and ends: this server as `make serve` starts it, and whatever else it needs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from deployments.cli.serve_command import environment
from deployments.config.app_config import load
from deployments.config.free_port import free_port

ROOT = Path(__file__).parents[1]
START_S = 300.0
LOG_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Running:
    """A server of this project. `pid`: of the program that runs it; its children are the server's processes."""

    url: str
    pid: int

    def processes(self, *marks: str) -> list[psutil.Process]:
        """Find its processes whose command lines hold one of the marks."""
        found = []
        for child in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(mark in " ".join(child.cmdline()) for mark in marks):
                    found.append(child)
        return found


@contextlib.contextmanager
def run_server(
    args: Mapping[str, Any], folder: Path, *, nodes: int = 1, one_a_node: Sequence[str] = ()
) -> Iterator[Running]:
    """Run the server with these `args` on a free port, journal and logs in `folder` (short: Ray's sockets are there);
    with two `nodes`, one of them may be killed (`loadtests/two_nodes.py`). Of the deployments `one_a_node` no two
    replicas are on the same node.

    Raises:
        ConfigError: the `args` are wrong.
        TimeoutError: it isn't up.
    """
    port, path = free_port(), folder / "serve.yaml"
    app = {
        "name": "load",
        "route_prefix": "/",
        "import_path": "deployments.app:build",
        "args": {"state": {"path": str(folder / "state"), "reports_max": 100_000}} | dict(args),
        "deployments": [{"name": name, "max_replicas_per_node": 1} for name in one_a_node],
    }
    load(app["args"])  # what is wrong is said here, and not in a log
    path.write_text(yaml.safe_dump(build_serve_config(port, app)), encoding="utf-8")
    module = ("deployments", "serve") if nodes == 1 else ("loadtests.two_nodes",)
    command = [sys.executable, "-m", *module, str(path)]
    with run_process(command, folder, build_environment(folder), stop=signal.SIGINT) as pid:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(f"{url}/ready", pid)
        yield Running(url, pid)


def build_serve_config(port: int, *apps: Mapping[str, Any]) -> dict[str, Any]:
    """Build the configuration of `serve run` for these apps, on loopback."""
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "logging_config": {"encoding": "JSON", "enable_access_log": False},
        "applications": list(apps),
    }


@contextlib.contextmanager
def run_upstream(folder: Path, port: int) -> Iterator[int]:
    """Run the scripted upstream of `loadtests.bench` on this port; yield its process id once it answers."""
    with run_process([sys.executable, "-m", "loadtests.bench.upstream", str(port)], folder) as pid:
        wait_until_up(f"http://127.0.0.1:{port}/calls")
        yield pid


def handle_end_signals() -> None:
    """Let SIGTERM, or a terminal that is closed, end this program as Ctrl-C does: with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def heed_signals() -> None:
    """Let a program that is started here heed Ctrl-C: the background jobs of a shell ignore it, and so do the programs
    that they start. `serve run` has no other signal for an orderly end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Give a folder for a while, whose name is short: Ray's sockets are in it, and macOS lets a socket's path have 103
    characters, of which its own folder for temporary files takes half."""
    with tempfile.TemporaryDirectory(prefix="ms-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def read_own_bytes(process: psutil.Process) -> int:
    """Read what it holds alone (USS); where only root may, as on macOS, what it holds in memory at all (RSS)."""
    try:
        return int(process.memory_full_info().uss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)


def build_environment(folder: Path) -> dict[str, str]:
    """Build the environment of `make serve`, with Ray's files in `folder`. A server asks for Ray's token, whatever the
    tests do without."""
    own = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    return environment(ROOT / "serve.env", os.environ | own)


@contextlib.contextmanager
def run_process(
    command: list[str], folder: Path, env: Mapping[str, str] | None = None, stop: int = signal.SIGTERM
) -> Iterator[int]:
    """Run one program, its output in a file of `folder`; at the end it and all of its children are gone."""
    log = folder / f"{Path(command[0]).name}-{free_port()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=heed_signals,  # noqa: PLW1509 - one call of the system, and no lock
        )
    try:
        yield process.pid
    except Exception:
        # The log goes with its folder.
        print(f"the end of {log.name}:\n{log.read_text(errors='replace')[-LOG_CHARS:]}", file=sys.stderr)
        raise
    finally:
        left = []
        with contextlib.suppress(psutil.Error):
            left = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        for child in left:
            with contextlib.suppress(psutil.Error):
                child.kill()


def wait_until_up(url: str, pid: int | None = None) -> None:
    """Wait for status 200 from process `pid`.

    Raises:
        TimeoutError: it didn't come within `START_S`, or the process has ended.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                if response.status == 200:
                    return
        except (OSError, urllib.error.HTTPError):
            pass
        if pid is not None and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            raise TimeoutError(f"the process that should serve {url} has ended")
        time.sleep(0.2)
    raise TimeoutError(f"{url} isn't up after {START_S:g} s")
