"""LiteLLM's proxy behind this server: both tiers are models of the proxy, which asks the played ones."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from deployments.config.free_port import free_port
from loadtests.running import run_process, wait_until_up

# No list of prices from the network, and no key, as the models behind it have none.
FLAGS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}


@contextlib.contextmanager
def run_litellm(programs: Path, models: Sequence[str], upstream_url: str, folder: Path) -> Iterator[str]:
    """Run the proxy for a while, which retries nothing, as the server in front of it does that; give its base URL.

    Raises:
        TimeoutError: it isn't up.
    """
    port, settings = free_port(), folder / "litellm.yaml"
    params = {"api_base": upstream_url, "api_key": "sk-none"}
    known = [{"model_name": name, "litellm_params": {"model": f"openai/{name}"} | params} for name in models]
    told = {"model_list": known, "litellm_settings": {"telemetry": False, "num_retries": 0}}
    settings.write_text(yaml.safe_dump(told), encoding="utf-8")
    command = [str(programs / "litellm"), "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | FLAGS
    with run_process(command, folder, env) as pid:
        wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", pid)
        yield f"http://127.0.0.1:{port}/v1"
