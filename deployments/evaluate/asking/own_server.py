"""A server of the evaluation's own: the configuration, without API keys and budgets, changed by one variant.

`layers`: each tier alone; `unchecked`: alone, without checks, retries and loop detection; `constrain`: alone, each
re-ask under the tools' grammar; `chain`: as configured. It listens on a free loopback port with a state folder of its
own; a running server of the user is left alone.
Invariant: nothing of it outlives `stop` or the evaluation: `serve`'s supervisor ends on SIGTERM what it has started,
and its session leader does when `GroupGuard` kills the supervisor. (An evaluation in the background ignores SIGINT.)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deployments.config.app_config import ROUTER, AppConfig, patch
from deployments.config.free_port import free_port
from deployments.config.tier_config import MlxTierConfig
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.graph.serve_file import IMPORT_PATH, read_file
from deployments.running.process_tree import GroupGuard

START_S = 600.0
STOP_S = 60.0
LOG_CHARS = 2_000
AWAKE_S, WAKE_S = 86_400, 400
# Whatever variant: what is measured here isn't held against anybody's budget, and cases that come one after the other
# don't use up each other's retries.
ALWAYS: dict[str, Any] = {
    "reliability": {"token_budget": {"enabled": False}, "retry_budget": {"floor": 100_000}},
    "server": {"api_keys_file": None, "allow_open": False, "deadline_s": 3600.0},
}
# Each call's signs are in its report; a call of a tier that is asked alone is never held for them.
ALONE: dict[str, Any] = {"reliability": {"escalation": {"enabled": False, "confidence": {"min": 0.01}}}}
UNCHECKED: dict[str, Any] = {
    "reliability": {"tool_validation": {"enabled": False}, "loop_detection": {"enabled": False}}
}


class NoServer(RuntimeError):
    """The server didn't start. The message says why, as far as its log does."""


def patch_variant(config: AppConfig, variant: str) -> AppConfig:
    """Return the configuration of a variant."""
    # A tier that slept while another was measured would have to be woken in the middle of a figure.
    awake = {"tiers": {name: {"idle_s": AWAKE_S, "wake_s": WAKE_S} for name in config.tiers}}
    local = [name for name, tier in config.tiers.items() if isinstance(tier, MlxTierConfig)]
    # Prompts that an earlier evaluation has left on disk would make a cold prompt a warm one.
    cold = {"tiers": {name: {"prompt_cache_disk_bytes": 0} for name in local}}
    for change in (ALWAYS, awake, cold):
        config = patch(config, change)
    if variant in ("layers", "unchecked", "constrain"):
        config = patch(config, ALONE)
    if variant == "unchecked":
        config = patch(config, UNCHECKED)
    if variant == "constrain":
        config = patch(config, {"tiers": {name: {"retry_strategy": ["constrain"]} for name in local}})
    return config


def read_config(path: Path) -> AppConfig:
    """Read the configuration as the server runs it: `args`, with every `user_config` merged in."""
    config = read_file(path).args
    for deployment in _find_app(yaml.safe_load(path.read_text(encoding="utf-8"))).get("deployments") or ():
        change = deployment.get("user_config") or {}
        name = deployment["name"]
        config = patch(config, change if name == ROUTER else {"tiers": {name: change}})
    return config


def write_config(source: Path, config: AppConfig, *, port: int, state: Path) -> str:
    """Write the file of a server with this configuration; what `source` says beside it stays."""
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    app = _find_app(document)
    args = config.model_dump(mode="json", exclude_unset=True)
    args["state"] = (args.get("state") or {}) | {"path": str(state)}
    app |= {"args": args, "route_prefix": "/", "deployments": []}
    document |= {"http_options": {"host": "127.0.0.1", "port": port}, "applications": [app]}
    return yaml.safe_dump(document, sort_keys=False)


def _find_app(document: Mapping[str, Any]) -> dict[str, Any]:
    return dict(next(app for app in document["applications"] if app.get("import_path") == IMPORT_PATH))


class OwnServer:
    """One server, from its start to its stop."""

    def __init__(self, source: Path, config: AppConfig) -> None:
        self._source, self._config = source, config
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: GroupGuard | None = None
        self.url = ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, and wait until it can answer. Ray gives up on a start while the machine is busy: so once more.
        Raises NoServer: it ended twice, or can't answer within `START_S`."""
        try:
            self._start_once()
        except NoServer:
            self.stop()
            self._start_once()

    def _start_once(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ms-eval-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        port = free_port()
        path = folder / "serve_config.yaml"
        path.write_text(write_config(self._source, self._config, port=port, state=folder / "state"), encoding="utf-8")
        self.url = f"http://127.0.0.1:{port}"
        environ = {k: v for k, v in os.environ.items() if k != self._config.server.api_keys_env}
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deployments", "serve", str(path)],
                env=environ | {"RAY_USAGE_STATS_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is the evaluation's, which stops the server in its turn
            )
        self._guard = GroupGuard(self._process.pid)
        self._wait_until_ready(folder / "log")

    def _wait_until_ready(self, log: Path) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        with contextlib.closing(ChatClient(self.url)) as client:
            while not (client.get("/ready") or {}).get("ready"):
                if self._process.poll() is not None:
                    raise NoServer(f"the server ended: {_read_end(log)}")
                if time.monotonic() > deadline_s:
                    raise NoServer(f"the server can't answer after {START_S:.0f} s: {_read_end(log)}")
                time.sleep(0.25)

    def stop(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _read_end(log: Path) -> str:
    return " ".join(log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARS:].split())
