"""Do the job through LiteLLM's proxy: `python litellm_front.py TASK DRIVER PREFIX`, in the venv of the proxy.

DRIVER is the driver that talks to the proxy, PREFIX how the proxy's configuration names the API of what is behind it
(`openai`, `anthropic`).
"""

# mypy: ignore-errors
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from job_tools import run

START_S = 90.0
KEY = "sk-proxy"


def main(task: str, driver: str, prefix: str) -> str:
    """Start the proxy, let the driver work through it, and end both."""
    url, key = os.environ["SERVER_URL"], os.environ["SERVER_KEY"]
    known = {"model": f"{prefix}/fast", "api_base": url, "api_key": key}
    settings = Path(os.environ["HOME"], "proxy.yaml")
    settings.write_text(json.dumps({"model_list": [{"model_name": "fast", "litellm_params": known}]}), encoding="utf-8")
    port = find_port()
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(settings), "--port", str(port)]
    with Path(os.environ["HOME"], "proxy.log").open("wb") as log:
        proxy = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=log)
    try:
        wait_until_up(f"http://127.0.0.1:{port}/health/liveliness", proxy)
        return work(task, driver, f"http://127.0.0.1:{port}")
    finally:
        proxy.kill()
        proxy.wait()


def work(task: str, driver: str, proxy_url: str) -> str:
    """Run the driver against the proxy; its exit code is this program's."""
    env = os.environ | {"OPENAI_BASE_URL": f"{proxy_url}/v1", "OPENAI_API_KEY": KEY}
    env |= {"ANTHROPIC_BASE_URL": proxy_url, "ANTHROPIC_API_KEY": KEY}
    script = Path(__file__).with_name(f"{driver}.py")
    done = subprocess.run([sys.executable, str(script), task], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr)
        sys.exit(done.returncode)
    return done.stdout


def find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_until_up(url: str, proxy: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and proxy.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.2)
    raise TimeoutError("the proxy isn't up")


run(main)
