"""A real Ray instance, one for the whole session, and servers on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from deployments.config.free_port import free_port

if TYPE_CHECKING:
    import openai

WAIT_S = 60.0


def until(condition: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> Any:
    """Wait for a condition, and return its value; fail with `what` when it doesn't come. What takes long is looked at
    less often: looking takes from the cores that it waits for."""
    began_s = now_s = time.monotonic()
    while now_s < began_s + wait_s:
        value = condition()
        if value:
            return value
        time.sleep(min(0.1, 0.02 * (1 + now_s - began_s)))
        now_s = time.monotonic()
    raise AssertionError(f"not within {wait_s:g} s: {what}")


@contextlib.contextmanager
def ends_with_family(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """At the end of the block a server that still runs is killed, with all that it has started."""
    family = psutil.Process(process.pid)
    try:
        yield
    finally:
        if process.poll() is None:
            for left in (*family.children(recursive=True), family):
                with contextlib.suppress(psutil.Error):
                    left.kill()
        process.wait(30)


@dataclass
class Server:
    """One app of this server, behind its own prefix."""

    name: str
    url: str
    # Ask its state actor: the name of the method, and its arguments.
    ask_state: Callable[..., Any] = lambda *_: None

    def client(self, **options: Any) -> openai.OpenAI:
        """The real openai client; it doesn't retry, so that a test sees each answer."""
        import openai

        options = {"api_key": "sk-test", "max_retries": 0, "timeout": 60.0} | options
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def post(self, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return httpx.post(f"{self.url}/v1/chat/completions", timeout=60.0, **options)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30.0)

    def find(self, path: str, **options: Any) -> Any:
        """The JSON at a path, once it is there; None before."""
        got = httpx.get(f"{self.url}{path}", timeout=30.0, **options)
        return got.json() if got.status_code == 200 else None


@pytest.fixture(scope="session")
def serve_port() -> Iterator[int]:
    """Start Ray and Serve; end them, and only them, at the end."""
    import ray
    from ray import serve
    from ray._private import node
    from ray.serve._private import client

    # How often the driver asks whether an app has begun, or ended; Ray has a second.
    client.CLIENT_POLLING_INTERVAL_S = 0.1
    # Chores of Ray's that nobody here looks at take a tenth of a core: who copies logs, who measures all processes.
    node.Node.start_log_monitor = lambda _: None
    os.environ["REPORTER_UPDATE_INTERVAL_MS"] = "60000"
    port = free_port()
    # The path of Ray's sockets must be short, so it isn't pytest's own temporary folder.
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=folder, log_to_driver=False)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield port
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the apps of this session keep their journals."""
    return tmp_path_factory.mktemp("state")


Deploy = Callable[..., Server]


@pytest.fixture(scope="module")
def deploy_on_ray(serve_port: int, state_folder: Path) -> Iterator[Deploy]:
    """Run an app from `args` on Ray; it ends with the module, while the next one begins."""
    from ray import serve

    from deployments.app import build

    names: list[str] = []

    def run(args: dict[str, Any], name: str) -> Server:
        names.append(name)
        args = {"state": {"path": str(state_folder / name)}} | args
        serve.run(build(args), name=name, route_prefix=f"/{name}")
        server = Server(name, f"http://127.0.0.1:{serve_port}/{name}", partial(ask_actor, name))
        until(lambda: httpx.get(f"{server.url}/health").status_code == 200, "the server is up")
        return server

    yield run
    for name in names:
        serve.delete(name, _blocking=False)


def ask_actor(app: str, method: str, *args: Any) -> Any:
    import ray

    from tests.support.client_load import state_actor

    return ray.get(getattr(state_actor(app), method).remote(*args))


@pytest.fixture(scope="module")
def deploy(request: pytest.FixtureRequest, state_folder: Path) -> Iterator[Deploy]:
    """Run an app from `args` in this process; with `--on-ray` on Ray. It ends with the module."""
    if request.config.getoption("on_ray"):
        yield request.getfixturevalue("deploy_on_ray")
        return
    from tests.support.near_server import run_near

    with contextlib.ExitStack() as stack:
        yield lambda args, name: stack.enter_context(
            run_near({"state": {"path": str(state_folder / name)}} | args, name)
        )
