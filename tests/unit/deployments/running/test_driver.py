"""Ray starts without what only watches it; its own methods are back afterwards."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private.node import Node

from deployments.running import driver
from deployments.running.driver import _describe_ray, _start_ray

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
