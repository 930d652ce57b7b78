"""What is compared, started as processes of their own: the upstream, one `serve run` with three apps, LiteLLM.

    direct       the upstream itself
    hop          the bare one-hop Ray Serve app (`hop.py`)
    off          this server, reliability off
    on           this server with its defaults, and a second tier `spare` to fall back to
    litellm      the LiteLLM proxy, one worker, with the same spare
    litellm-2    the same with two

What of this server isn't its default: no limit of tokens for a session or an hour, since the whole load is one session
and would soon be refused, and as many requests at a time as the load may bring. LiteLLM calls each model once; on its
own it would call it thrice. `on` calls it again after a 5xx, up to three times with a wait before each, as by default.
Both then go on to the spare, and neither leaves a model alone that answers 429 without a time.

Each app has one replica of each deployment. The three share one Ray instance, so its idle cost falls on none of them:
CPU time is counted over all processes of a side while it alone is asked, less what the same processes use when nobody
asks. LiteLLM is installed in a virtual environment of its own under the user's cache folder, made at the first run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from deployments.config.free_port import free_port
from loadtests.bench.upstream import SPARE
from loadtests.running import (
    build_environment,
    build_serve_config,
    read_own_bytes,
    run_process,
    run_upstream,
    wait_until_up,
)

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mlx-stack-serve-bench"
MODEL = "scripted"
OFF: dict[str, Any] = {
    "loop_detection": {"enabled": False},
    "tool_validation": {"enabled": False},
    "token_budget": {"enabled": False},
    "memory_pressure": {"enabled": False},
    "tier_health": {"failures_max": None, "rate_percent": None, "retry_after_max_s": 0},
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared. `pid` is the root of its processes; `mark` stands in the names of those that are its own, or
    in the names of the files that they have open (empty: all are)."""

    name: str
    url: str
    pid: int
    mark: str = ""
    state: str = ""

    def processes(self) -> list[psutil.Process]:
        """Find all of its processes now, Ray's own included."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def memory_bytes(self) -> int:
        """Sum up what its own processes hold alone; see `read_own_bytes` for macOS."""
        held = 0
        for one in self.processes():
            with contextlib.suppress(psutil.Error):
                if self._owns(one):
                    held += read_own_bytes(one)
        return held

    def _owns(self, one: psutil.Process) -> bool:
        """Tell by name or journal: all state actors have the same title, and each has a journal of its own."""
        command = " ".join(one.cmdline())
        if not self.mark or self.mark in command:
            return True
        return "SessionState" in command and any(f"/{self.state}/" in file.path for file in one.open_files())


@contextlib.contextmanager
def start_sides(folder: Path, *, litellm: bool) -> Iterator[tuple[list[Side], str]]:
    """Start all of them; give the sides and the upstream's base URL. `folder` is short: Ray's sockets are there."""
    with contextlib.ExitStack() as running:
        upstream = free_port()
        pid = running.enter_context(run_upstream(folder, upstream))
        base = f"http://127.0.0.1:{upstream}"
        port = free_port()
        config = folder / "serve.yaml"
        config.write_text(yaml.safe_dump(build_serve_config(port, *build_apps(f"{base}/v1", folder))))
        program = str(Path(sys.executable).with_name("serve"))
        serve_pid = running.enter_context(
            run_process([program, "run", str(config)], folder, build_environment(folder), stop=signal.SIGINT)
        )
        url = f"http://127.0.0.1:{port}"
        for app in ("hop", "off", "on"):
            wait_until_up(f"{url}/{app}/ready", serve_pid)
        found = [
            Side("direct", base, pid),
            Side("hop", f"{url}/hop", serve_pid, "Replica:hop:", "-"),
            Side("off", f"{url}/off", serve_pid, "Replica:off:", "state-off"),
            Side("on", f"{url}/on", serve_pid, "Replica:on:", "state-on"),
        ]
        rivals = (1, 2) if litellm else ()
        found.extend(running.enter_context(_start_litellm(workers, f"{base}/v1", folder)) for workers in rivals)
        yield found, base


def build_apps(upstream: str, folder: Path) -> list[dict[str, Any]]:
    """Build the three apps."""
    ours = [_build_our_app(name, upstream, folder, OFF if name == "off" else {}) for name in ("off", "on")]
    hop = {
        "name": "hop",
        "route_prefix": "/hop",
        "import_path": "loadtests.bench.hop:build",
        "args": {"upstream": upstream},
    }
    return [hop, *ours]


def _build_our_app(name: str, upstream: str, folder: Path, reliability: Mapping[str, Any]) -> dict[str, Any]:
    # What fails may go on to another tier, as a user would have it.
    models = (MODEL, SPARE) if name == "on" else (MODEL,)
    tiers = {model: {"kind": "hosted", "base_url": upstream, "model": model, "cloud": False} for model in models}
    chain = {"escalation": {"chain": [*models]}}
    budget = {"token_budget": {"per_session": None, "per_hour": None}}
    args = {
        "tiers": tiers,
        "reliability": budget | dict(reliability) | chain,
        "state": {"path": str(folder / f"state-{name}")},
        "server": {"max_ongoing_requests": 1024},
    }
    return {"name": name, "route_prefix": f"/{name}", "import_path": "deployments.app:build", "args": args}


def build_litellm_config(upstream: str) -> dict[str, Any]:
    """Build the proxy's configuration: what fails goes on to the spare, as at `on`."""
    params = {"api_base": upstream, "api_key": "sk-none", "num_retries": 0}
    models = [
        {"model_name": model, "litellm_params": {"model": f"openai/{model}"} | params} for model in (MODEL, SPARE)
    ]
    return {
        "model_list": models,
        "router_settings": {"fallbacks": [{MODEL: [SPARE]}]},
        "litellm_settings": {"telemetry": False},
    }


@contextlib.contextmanager
def _start_litellm(workers: int, upstream: str, folder: Path) -> Iterator[Side]:
    program, port = _install_litellm(), free_port()
    config = folder / "litellm.yaml"
    config.write_text(yaml.safe_dump(build_litellm_config(upstream)))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    flags = {**os.environ, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    # No keys, as at the other sides.
    flags["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    flags.pop("PYTHONPATH", None)
    with run_process([*command, "--num_workers", str(workers)], folder, flags) as pid:
        wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", pid)
        yield Side("litellm" if workers == 1 else f"litellm-{workers}", f"http://127.0.0.1:{port}", pid)


def read_litellm_version() -> str:
    """Return the version of LiteLLM that is compared."""
    python = CACHE / "litellm" / "bin" / "python"
    words = "from importlib.metadata import version; print(version('litellm'))"
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def _install_litellm() -> Path:
    program = CACHE / "litellm" / "bin" / "litellm"
    if not program.exists():
        print("installing LiteLLM into a virtual environment of its own", flush=True)
        subprocess.run([sys.executable, "-m", "venv", CACHE / "litellm"], check=True)
        pip = [CACHE / "litellm" / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "litellm[proxy]"], check=True)
    return program
