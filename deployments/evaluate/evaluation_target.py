"""What is evaluated: a server that runs already, or a configuration, on a server of our own for each variant.

`layers`: each tier alone; `unchecked`: alone, without checks, retries and loop detection; `constrain`: alone, each
re-ask under the tools' grammar; `chain`: as configured. A server of our own has no API keys and no budgets. It listens
on a free loopback port with a state folder of its own; a running server of the user is left alone.
Invariants: without `--cloud` no request goes to another machine; nothing of a server outlives its use or the
evaluation: `serve`'s supervisor ends on SIGTERM what it has started, and its session leader does when `GroupGuard`
kills the supervisor. (An evaluation in the background ignores SIGINT.)
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deployments.config.app_config import ROUTER, AppConfig, patch
from deployments.config.free_port import free_port
from deployments.config.tier_config import MlxTierConfig
from deployments.config.tier_cost import is_cloud
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.evaluation_plan import PlanPhase, Settings, plan_served, plan_variants, read_contexts
from deployments.graph.serve_file import IMPORT_PATH, read_file
from deployments.running.process_tree import GroupGuard

NO_CLOUD = "it would leave this machine, and costs money: --cloud lets it"
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
_UNCHECKED = {"reliability": {"tool_validation": {"enabled": False}, "loop_detection": {"enabled": False}}}


class NoServer(RuntimeError):
    """The server didn't start. The message says why, as far as its log does."""


def _patch_variant(config: AppConfig, variant: str) -> AppConfig:
    # A tier that slept while another was measured would have to be woken in the middle of a figure.
    tiers: dict[str, dict[str, Any]] = {name: {"idle_s": AWAKE_S, "wake_s": WAKE_S} for name in config.tiers}
    for name, tier in config.tiers.items():
        if isinstance(tier, MlxTierConfig):
            # Prompts that an earlier evaluation has left on disk would make a cold prompt a warm one.
            tiers[name]["prompt_cache_disk_bytes"] = 0
            tiers[name] |= {"retry_strategy": ["constrain"]} if variant == "constrain" else {}
    changes = [ALWAYS, {"tiers": tiers}]
    changes += [ALONE] if variant != "chain" else []
    changes += [_UNCHECKED] if variant == "unchecked" else []
    return functools.reduce(patch, changes, config)


def read_config(path: Path) -> AppConfig:
    """Read the configuration as the server runs it: `args`, with every `user_config` merged in."""
    config = read_file(path).args
    for deployment in _find_app(yaml.safe_load(path.read_text(encoding="utf-8"))).get("deployments") or ():
        change = deployment.get("user_config") or {}
        name = deployment["name"]
        config = patch(config, change if name == ROUTER else {"tiers": {name: change}})
    return config


def _write_config(source: Path, config: AppConfig, *, port: int, state: Path) -> str:
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


@contextlib.contextmanager
def run_server(source: Path, config: AppConfig) -> Iterator[tuple[str, int]]:
    """Run a server until this is left; yield its URL and its process once it can answer. Ray gives up on a start while
    the machine is busy: so once more. Raises NoServer: it ended twice, or can't answer within `START_S`."""
    with contextlib.ExitStack() as held:
        try:
            started = held.enter_context(_start_server(source, config))
        except NoServer:
            started = held.enter_context(_start_server(source, config))
        yield started


@contextlib.contextmanager
def _start_server(source: Path, config: AppConfig) -> Iterator[tuple[str, int]]:
    with contextlib.ExitStack() as held:
        place = tempfile.TemporaryDirectory(prefix="ms-eval-", ignore_cleanup_errors=True)
        folder, port = Path(held.enter_context(place)), free_port()
        path = folder / "serve_config.yaml"
        path.write_text(_write_config(source, config, port=port, state=folder / "state"), encoding="utf-8")
        environ = {k: v for k, v in os.environ.items() if k != config.server.api_keys_env}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deployments", "serve", str(path)],
                env=environ | {"RAY_USAGE_STATS_ENABLED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is the evaluation's, which stops the server in its turn
            )
        held.callback(_stop, process)
        held.enter_context(contextlib.closing(GroupGuard(process.pid)))
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process, folder / "log")
        yield url, process.pid


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    with contextlib.closing(ChatClient(url)) as client:
        while not (client.get("/ready") or {}).get("ready"):
            if process.poll() is not None:
                raise NoServer(f"the server ended: {_read_end(log)}")
            if time.monotonic() > deadline_s:
                raise NoServer(f"the server can't answer after {START_S:.0f} s: {_read_end(log)}")
            time.sleep(0.25)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    process.kill()
    process.wait()


def _read_end(log: Path) -> str:
    return " ".join(log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARS:].split())


class OwnTarget:
    """A configuration: a server of our own is started for each variant."""

    first = "layers"

    def __init__(self, source: Path, config: AppConfig, *, cloud: bool) -> None:
        self._source, self._config, self._cloud = source, config, cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Open a client to a variant, and say which process its server is."""
        with (
            run_server(self._source, _patch_variant(self._config, variant)) as (url, pid),
            contextlib.closing(ChatClient(url, local_only=not self._cloud)) as client,
        ):
            yield client, pid

    def find_obstacles(self) -> dict[str, str]:
        """List the models that may not be asked, and why."""
        tiers = {} if self._cloud else self._config.tiers
        return {name: NO_CLOUD for name, tier in tiers.items() if is_cloud(tier)}

    def plan(self, models: Mapping[str, Any], settings: Settings) -> list[PlanPhase]:
        chain = [name for name in self._config.reliability.escalation.chain if name in models]
        held = [model for model in models if isinstance(self._config.tiers[model], MlxTierConfig)]
        tries = self._config.reliability.escalation.enabled and len(chain) > 1
        return plan_variants(list(models), read_contexts(models), settings, chain=tries, constrained=held)


class UrlTarget:
    """A server that runs already, ours or another one's, as it is."""

    first = "served"

    def __init__(self, url: str, key: str, models: Sequence[str], *, cloud: bool) -> None:
        self._url, self._key, self._models, self._cloud = url, key, models, cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        try:
            found = ChatClient(self._url, key=self._key, local_only=not self._cloud, named=self._models)
        except (ImportError, ValueError) as error:  # a proxy of the environment that httpx doesn't know
            raise NoServer(f"{self._url} can't be asked: {error}") from None
        with contextlib.closing(found) as client:
            if obstacle := client.find_obstacle():
                raise NoServer(obstacle)
            yield client, None

    def find_obstacles(self) -> dict[str, str]:
        return {}

    def plan(self, models: Mapping[str, Any], settings: Settings) -> list[PlanPhase]:
        return plan_served(list(models), read_contexts(models), settings)


Target = OwnTarget | UrlTarget
