"""Ray starts without what only watches it; its own methods are back afterwards. It ends with Ray's processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private.node import Node

from deployments.running import driver
from deployments.running.driver import _describe_ray, _end_with, _end_with_ray, _start_ray
from tests.support.repository import ROOT

NAMES = ("start_monitor", "start_log_monitor", "start_api_server")


@pytest.mark.parametrize("raised", [None, RuntimeError])
def test_nothing_is_started_that_only_watches(monkeypatch: pytest.MonkeyPatch, raised: type[Exception] | None) -> None:
    """Law: while Ray starts, its node starts no dashboard, log monitor and autoscaler monitor, and tells its agents
    where a dashboard would be; then the node's methods are its own again, also after a failed start."""
    own, told = {name: getattr(Node, name) for name in NAMES}, []
    gcs = SimpleNamespace(internal_kv_put=lambda key, value, *_: told.append((key, value)))
    node: Any = SimpleNamespace(get_gcs_client=lambda: gcs)

    def init(**options: Any) -> Any:
        assert options == {"namespace": "serve"}
        Node.start_monitor(node)
        Node.start_log_monitor(node)
        Node.start_api_server(node, include_dashboard=None, raise_on_failure=False)
        if raised is not None:
            raise raised
        return "context"

    monkeypatch.setattr(ray, "init", init)
    if raised is None:
        assert _start_ray(namespace="serve") == "context"
    else:
        with pytest.raises(raised):
            _start_ray(namespace="serve")

    assert {name: getattr(Node, name) for name in NAMES} == own
    assert told == [(b"dashboard", b"127.0.0.1:8265")]


def test_a_ray_without_such_methods_starts_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a name that a later Ray doesn't have is no reason not to start."""
    monkeypatch.setattr(driver, "_LEFT_OUT", ("start_something_else",))
    monkeypatch.setattr(ray, "init", lambda **_: "context")

    assert _start_ray() == "context"
    assert not hasattr(Node, "start_something_else")


def test_what_a_dashboard_needs_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: four facts, each as a string, which a record on disk can hold."""
    known = {"gcs_address": "127.0.0.1:1", "node_ip_address": "127.0.0.1", "session_dir": "/t", "webui_url": None}
    node = SimpleNamespace(cluster_id=SimpleNamespace(hex=lambda: "ab"))
    monkeypatch.setattr(ray._private.worker, "_global_node", node)

    assert _describe_ray(SimpleNamespace(address_info=known)) == {
        "gcs_address": "127.0.0.1:1",
        "node_ip_address": "127.0.0.1",
        "session_dir": "/t",
        "cluster_id": "ab",
    }


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_the_driver_ends_with_a_process_of_ray(
    monkeypatch: pytest.MonkeyPatch, capfd: Any, name: str, stopping: bool
) -> None:
    """Law: a scheduler or store that is killed ends the driver, with a line that the terminal shows; in a stop its end
    is nothing to note. A server whose raylet was killed answered on, until a Router died that nothing started again:
    then each request, and /health, waited for two minutes, and no service manager saw a reason to act."""
    ended, noted, stop = list[int](), threading.Event(), threading.Event()
    monkeypatch.setattr(driver.os, "_exit", lambda code: (ended.append(code), noted.set()))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        node = SimpleNamespace(all_processes={name: [SimpleNamespace(process=process)], "log_monitor": [None]})
        if stopping:
            stop.set()
            process.kill()
            _end_with(name, process, stop)
        else:
            _end_with_ray(node, stop)
            process.kill()
            assert noted.wait(60)

    assert ended == ([] if stopping else [1])
    assert (f"RayError: Ray's {name} has ended by itself (exit code -9)\n" in capfd.readouterr().err) is not stopping


def test_a_start_that_fails_ends_with_its_reason(tmp_path: Path) -> None:
    """Law: where Ray can't start, the driver ends with Python's exit code and the reason as its last line, although its
    standard input is open: a thread in a buffered `read` made Python abort (signal 6), and the terminal showed that
    instead of a home directory that can't be written."""
    (tmp_path / "home").write_text("no folder")
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "RAY_AUTH_MODE": "token", "RAY_TMPDIR": str(tmp_path)}
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        environ.pop(name, None)
    here, there = os.pipe()
    command = [sys.executable, "-m", "deployments.running.driver", str(there), "serve_config.yaml", "none"]
    with subprocess.Popen(
        command, env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        pass_fds=(there,),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(here)
    os.close(there)

    assert process.returncode == 1
    assert out.splitlines()[-1].startswith("NotADirectoryError: "), out
