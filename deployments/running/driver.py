"""The driver: Ray's own `serve run CONFIG` in the main thread; it reports how it goes, one JSON object a line.

    python -m deployments.running.driver NEWS CONFIG APP     # an open file, by number; the session leader starts it

Ray starts without the processes that only watch it (docs/decisions/002). `ray.init` has no option for that, so the
methods that start them are replaced meanwhile. Another thread asks Serve and the Router until every tier has settled;
when standard input is closed, it drains the Routers and interrupts the main thread. Once a tier can answer, a process
fetches what `auto` leaves for later.
Invariants: every question to Ray has a timeout, so the end never waits for Ray; a driver whose scheduler has died ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray._private import ray_constants
from ray._private.node import Node
from ray.job_config import JobConfig
from ray.serve.schema import ApplicationStatus, DeploymentStatus
from ray.serve.scripts import cli

from deployments.config.app_config import ROUTER
from deployments.config.free_port import DASHBOARD_PORT
from deployments.running.background_fetch import BackgroundFetch
from deployments.running.folder import RunFolder
from deployments.running.session_leader import DRAIN_S
from deployments.running.status_messages import STARTING, can_answer, failure

_LEFT_OUT = ("start_monitor", "start_log_monitor", "start_api_server")
_VITAL = (ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER)


def _start_ray(**options: Any) -> Any:
    """Start Ray on this machine; return its context. `options` are `ray.init`'s."""
    replaced = {name: getattr(Node, name) for name in _LEFT_OUT if hasattr(Node, name)}
    for name in replaced:
        setattr(Node, name, _note_address if name == "start_api_server" else lambda *_, **__: None)
    try:
        return ray.init(**options)
    finally:
        for name, method in replaced.items():
            setattr(Node, name, method)


def _end_with_ray(node: Any, stopping: threading.Event) -> None:
    """End this process when one that Ray can't be without ends before a stop: the replicas may answer on, but one that
    dies isn't started again. The session leader ends them, and a service starts the server anew."""
    for name in _VITAL:
        for one in node.all_processes.get(name, ()):
            threading.Thread(target=_end_with, args=(name, one.process, stopping), daemon=True).start()


def _end_with(name: str, process: subprocess.Popen[bytes], stopping: threading.Event) -> None:
    code = process.wait()
    if not stopping.is_set():
        sys.stderr.write(f"RayError: Ray's {name} has ended by itself (exit code {code})\n")
        sys.stderr.flush()
        os._exit(1)


def _describe_ray(context: Any) -> dict[str, str]:
    """Describe the Ray that runs here, as another process needs it to be its dashboard."""
    known = {name: str(context.address_info[name]) for name in ("gcs_address", "node_ip_address", "session_dir")}
    return known | {"cluster_id": ray._private.worker._global_node.cluster_id.hex()}


def _note_address(node: Node, **_: Any) -> None:
    """Note where the dashboard would be: Ray's agent logs a stack every second until it is told."""
    with contextlib.suppress(Exception):
        node.get_gcs_client().internal_kv_put(
            ray_constants.DASHBOARD_ADDRESS.encode(),
            f"127.0.0.1:{DASHBOARD_PORT}".encode(),
            True,
            ray_constants.KV_NAMESPACE_DASHBOARD,
        )


_ASK_EVERY_S = 0.5
_ASK_S = 5.0
_TOLD = ("state", "reason", "model", "source", "kind")
# The Routers' first answer: without it they are as good as gone.
_REACH_S = 1.5


class _OwnPaths(JobConfig):  # type: ignore[misc]
    """Keep the working directory out of the workers' `sys.path`: a `json.py` there would take the place of Python's.
    Ray puts it first, unless the job has a working directory of its own. The workers still run in that folder."""

    def _runtime_env_has_working_dir(self) -> bool:
        return True


class _Reporter:
    """Reports to the supervisor what it sees; all of it on one event loop."""

    def __init__(self, news: int, app: str, config: str) -> None:
        self._news = news
        self._app = app
        self._background_fetch = BackgroundFetch(config, os.environ)
        self._reported: dict[str, Any] = {}
        self._handle: Any = None

    def report(self, **news: Any) -> None:
        new = {key: value for key, value in news.items() if self._reported.get(key) != value}
        self._reported |= new
        if new:
            with contextlib.suppress(OSError):
                os.write(self._news, (json.dumps(new) + "\n").encode())

    async def watch(self) -> None:
        """Report how the start goes, until it has failed or nothing is on its way any more."""
        pause_s = _ASK_EVERY_S
        while not await self._check_start() or self._background_fetch.running:
            await asyncio.sleep(pause_s)
            # A tier may wait for memory for hours.
            pause_s = min(_ASK_S, pause_s * 1.02)

    async def _check_start(self) -> bool:
        try:
            async with asyncio.timeout(_ASK_S):
                status = (await asyncio.to_thread(serve.status)).applications.get(self._app)
                if status is None:
                    return False
                if status.status is ApplicationStatus.DEPLOY_FAILED:
                    deployments = [deployment.message for deployment in status.deployments.values()]
                    self.report(failed=failure([status.message, *deployments]))
                    return True
                tiers = {tier["name"]: {key: tier[key] for key in _TOLD} for tier in await self._ask_router()}
                for name in sorted(status.deployments.keys() - tiers.keys() - {ROUTER}):
                    tiers[name] = {"state": "starting"}
        except Exception:
            return False  # Serve isn't there yet, or is busy
        for name, deployment in status.deployments.items():
            settled = "RUNNING" in deployment.replica_states or deployment.status is DeploymentStatus.HEALTHY
            if tiers.get(name, {}).get("state") == "unavailable" and not settled:
                tiers[name] = {"state": "starting"}  # nobody is there to be asked
        self.report(tiers=tiers)
        if can_answer(tier["state"] for tier in tiers.values()):
            self._background_fetch.start()
        return bool(tiers) and not any(tier["state"] in STARTING for tier in tiers.values())

    async def _ask_router(self) -> list[dict[str, Any]]:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_ASK_S / 2):
                found: list[dict[str, Any]] = await self._router().ask_tiers.remote()
                return found
        return []

    def _router(self) -> Any:
        if self._handle is None:
            self._handle = serve.get_deployment_handle(ROUTER, self._app)
        return self._handle

    async def drain(self) -> None:
        """Have every Router end what it is doing."""
        if "tiers" not in self._reported or "failed" in self._reported:
            return  # there is no Router yet, or never was
        running = await self._all("stop_taking", within_s=_REACH_S)
        if running is not None:  # where one Router hangs, the others drain all the same
            self.report(draining=sum(running))
        cut = await self._all("drain", DRAIN_S, within_s=DRAIN_S + _REACH_S)
        self.report(drained={"cut": None if cut is None else sum(cut)})

    async def _all(self, method: str, *arguments: Any, within_s: float) -> list[int] | None:
        try:
            response = self._router().broadcast(method, *arguments)
            async with asyncio.timeout(within_s):
                return list(await asyncio.to_thread(lambda: response.results(timeout_s=within_s)))
        except Exception:
            traceback.print_exc()  # into the log: there is no Router, or none that answers
            return None


def _run(news: str, config: str, app: str) -> None:
    """Serve until standard input is closed."""
    os.set_inheritable(int(news), False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = _Reporter(int(news), app, config)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    stopping = threading.Event()
    threading.Thread(target=_listen, args=(reporter, loop, stopping), daemon=True).start()
    context = _start_ray(namespace="serve", job_config=_OwnPaths())
    _end_with_ray(ray._private.worker._global_node, stopping)
    reporter.report(ray_session=context.address_info.get("session_dir"))
    with contextlib.suppress(Exception):  # for `mlx-stack-serve dashboard`; a server starts without it, too
        RunFolder(Path(os.environ["MLX_STACK_RUN"])).note(ray=_describe_ray(context))
    _on(loop, reporter.watch())
    # `serve run` puts `--app-dir` first in `sys.path`, by default the working directory. Python's own library is there.
    try:
        cli.main(["run", config, "--app-dir", os.path.dirname(os.__file__)], prog_name="serve")
    finally:
        stopping.set()


def _listen(reporter: _Reporter, loop: asyncio.AbstractEventLoop, stopping: threading.Event) -> None:
    while os.read(0, 4096):  # not by `sys.stdin`, whose lock Python would miss at its end
        pass
    stopping.set()
    with contextlib.suppress(Exception):
        _on(loop, reporter.drain()).result(DRAIN_S + 2 * _REACH_S)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop)


if __name__ == "__main__":
    _run(*sys.argv[1:])
