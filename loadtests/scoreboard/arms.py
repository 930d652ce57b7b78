"""The servers that are compared, each started as its users start it, all on the same weights and machine.

    mlx_lm    `mlx_lm.server`
    forge     the same behind forge's proxy
    litellm   the same behind LiteLLM's proxy
    off       this server with reliability off
    on        this server with its defaults
    chain     this server with its defaults, from the small model to the large one

forge and LiteLLM stand before `mlx_lm.server`, as they have no engine of their own. So seconds compare whole stacks,
and `mlx_lm` against `off` says what of them is the engine's.

MLX's wheel for Linux brings the reference BLAS, which reads 4 tokens of a prompt a second (39 with OpenBLAS, both on
two cores). Where the machine has OpenBLAS (Debian: `libopenblas0-pthread`), `mlx_lm.server` gets it by `LD_PRELOAD`:
the same program, in a tenth of the time.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.config.free_port import free_port
from deployments.models.artifact import resolve
from deployments.models.sources import CODER_LARGE, CODER_SMALL, parse_source
from loadtests.bench.sides import OFF
from loadtests.running import run_process, run_server, wait_until_up
from loadtests.scoreboard.suites import install_suite
from tests.clients.install import install

MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
# The one name that `mlx_lm.server` takes for the model it was started with.
MODEL = "default_model"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an arm is started: its weights, the cache of installed packages, a short folder for logs and sockets."""

    model: str
    cache: Path
    folder: Path


@contextlib.contextmanager
def start_arm(name: str, model: str, cache: Path, folder: Path) -> Iterator[str]:
    """Start an arm on `MODELS[model]`; give its base URL, with `/v1`.

    Raises:
        TimeoutError: it isn't up.
    """
    with ARMS[name](_Place(model, cache, folder)) as url:
        yield f"{url}/v1"


@contextlib.contextmanager
def _run_mlx_lm(place: _Place) -> Iterator[str]:
    path, port = resolve(parse_source(MODELS[place.model])).path, free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(path), "--port", str(port)]
    env = dict(os.environ)
    if blas := ctypes.util.find_library("openblas"):
        env["LD_PRELOAD"] = blas
    with run_process([*command, "--log-level", "WARNING"], place.folder, env) as pid:
        wait_until_up(f"http://127.0.0.1:{port}/v1/models", pid)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _run_forge(place: _Place) -> Iterator[str]:
    with _run_mlx_lm(place) as behind:
        python, port = install_suite("forge", place.cache), free_port()
        command = [str(python), "-m", "forge.proxy", "--backend-url", behind, "--port", str(port)]
        with run_process([*command, "--backend-timeout", "1800"], place.folder, _build_plain_environment()) as pid:
            wait_until_up(f"http://127.0.0.1:{port}/forge/health", pid)
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _run_litellm(place: _Place) -> Iterator[str]:
    with _run_mlx_lm(place) as behind:
        bin_folder = install("litellm-proxy", place.cache)
        config, port = place.folder / "litellm.yaml", free_port()
        params = {"model": f"openai/{MODEL}", "api_base": f"{behind}/v1", "api_key": "sk-none", "timeout": 1800}
        served = {"model_name": MODEL, "litellm_params": params}
        config.write_text(yaml.safe_dump({"model_list": [served], "litellm_settings": {"telemetry": False}}))
        flags = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
        flags |= {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        command = [str(bin_folder / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        with run_process(command, place.folder, _build_plain_environment() | flags) as pid:
            wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", pid)
            yield f"http://127.0.0.1:{port}"


def _run_ours(reliability: dict[str, Any], chain: bool) -> Callable[[_Place], Any]:
    """Build what starts this server: one tier, or the small model and behind it the large one."""

    @contextlib.contextmanager
    def run(place: _Place) -> Iterator[str]:
        sources = [MODELS["small"], MODELS["large"]] if chain else [MODELS[place.model]]
        names = ["fast", "standard"][: len(sources)]
        tiers = {name: {"kind": "mlx", "model": source} for name, source in zip(names, sources, strict=True)}
        budget = {"token_budget": {"per_session": None, "per_hour": None}}
        args: dict[str, Any] = {
            "tiers": tiers,
            "reliability": budget | reliability | {"escalation": {"chain": names}},
            "server": {"aliases": {MODEL: "auto"}},
        }
        with run_server(args, place.folder) as running:
            yield running.url

    return run


def _build_plain_environment() -> dict[str, str]:
    """Build an environment without this project's packages."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


ARMS: dict[str, Callable[[_Place], Any]] = {
    "mlx_lm": _run_mlx_lm,
    "forge": _run_forge,
    "litellm": _run_litellm,
    "off": _run_ours(OFF, chain=False),
    "on": _run_ours({}, chain=False),
    "chain": _run_ours({}, chain=True),
}
