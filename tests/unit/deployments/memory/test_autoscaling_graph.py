"""The whole graph under load, with the policy in Serve's controller: growth to the cap, the cut, and growth again."""

import contextlib
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.memory import nodes
from deployments.memory.plan import NodeReport
from tests.support.serving import until

pytestmark = pytest.mark.ray

CLIENTS = 12
CAP = 3
# On a machine that others use too, starting a replica has been seen to take a minute.
WAIT_S = 240
SLOW = [{"answer": [{"text": "word word word word", "token_delay_s": 0.5}]}]
SCALE = {
    "min_replicas": 1, "max_replicas": 10, "target_ongoing_requests": 1, "upscale_delay_s": 0.5,
    "downscale_delay_s": 0.5, "metrics_interval_s": 0.5, "look_back_period_s": 1.0,
}  # fmt: skip


@dataclass
class Graph:
    """One application and its knob."""

    name: str
    url: str
    knob: Path

    def replicas(self, tier: str = "fast") -> int:
        from ray import serve

        states = serve.status().applications[self.name].deployments[tier].replica_states
        return sum(count for state, count in states.items() if str(state) in ("RUNNING", "STARTING"))

    def status(self, tier: str) -> dict[str, Any] | None:
        """The tier's own word in `/ready`, once a replica of it answers."""
        try:
            response = httpx.get(f"{self.url}/ready", timeout=60)
        except httpx.TransportError:  # Serve is still starting
            return None
        said: dict[str, Any] = response.json()["tiers"][tier] if response.status_code == 200 else {}
        return None if not said or "no replica answers" in str(said["reason"]) else said

    def report(self) -> NodeReport:
        import ray

        (handle,) = nodes.find(self.name).values()
        report: NodeReport = ray.get(handle.peek.remote(), timeout=30)
        return report


@pytest.fixture
def graph(serve_port: int, tmp_path: Path) -> Iterator[Graph]:
    """A tier whose replicas take 400 of 1300 bytes, one that could never fit, and Serve's config file for both."""
    import ray
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    name = f"mem{uuid.uuid4().hex[:6]}"
    knob = tmp_path / "knob"
    knob.write_text("normal")
    args = {
        "tiers": {
            "fast": {"kind": "scripted", "script": SLOW, "replica_bytes": 400, "max_replicas": 10},
            "huge": {"kind": "scripted", "script": SLOW, "replica_bytes": 5000},
        },
        # How fast a busy machine is isn't what is tested here.
        "server": {"timeouts": {"connect_s": 60}},
        "reliability": {
            "escalation": {"chain": ["fast", "huge"]},
            "memory_pressure": {
                "sensor": f"scripted:{knob}",
                "budget_bytes": 1300,
                "poll_s": 0.1,
                "calm_s": 0.5,
                "stale_s": 3,
                "lease_s": 3,
            },
        },
    }
    app = {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": "deployments.app:build",
        "args": args,
        "autoscaling_policy": {
            "policy_function": "deployments.memory.autoscaling:MemoryCappedPolicy",
            "policy_kwargs": {"hold_s": 2},
        },
        "deployments": [{"name": "fast", "autoscaling_config": SCALE}],
    }
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [app]}))
    yield Graph(name, f"http://127.0.0.1:{serve_port}/{name}", knob)
    serve.delete(name)
    for handle in nodes.find(name).values():
        ray.kill(handle)


@contextlib.contextmanager
def load(graph: Graph) -> Iterator[list[int]]:
    stop, statuses = threading.Event(), []

    def client() -> None:
        body: dict[str, Any] = {"model": "fast", "messages": [{"role": "user", "content": "go"}]}
        with httpx.Client(timeout=120) as http:
            while not stop.is_set():
                statuses.append(http.post(f"{graph.url}/v1/chat/completions", json=body).status_code)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join(90)


def test_growth_is_capped_cut_and_resumed(graph: Graph):
    """Load asks for ten: as many replicas come as fit; at critical only the minimum stays, and all requests are still
    answered; after it they come back. What fits nowhere is unavailable and stops nobody."""
    until(lambda: graph.status("huge") is not None, "the huge tier's replica is there", wait_s=WAIT_S)
    assert graph.status("huge") == {
        "state": "unavailable",
        "reason": "memory: 5000 bytes needed, the node's budget is 1300",
        "breaker": "closed",
    }
    most = 0

    def grown(to: int) -> bool:
        nonlocal most
        now = graph.replicas()
        most = max(most, now)
        return most <= CAP and now == to

    with load(graph) as statuses:
        until(lambda: grown(CAP), "as many replicas as fit", wait_s=WAIT_S)
        until(lambda: sum(h.bytes for h in graph.report().held) == CAP * 400, "each holds its lease", wait_s=WAIT_S)
        until(
            lambda: f"{CAP} fit beside the others in 1300" in graph.report().caps.get("fast", ""), "the reason is told"
        )
        graph.knob.write_text("critical")
        until(lambda: graph.replicas() == 1, "only the minimum stays", wait_s=WAIT_S)
        until(lambda: "critical" in graph.report().caps.get("fast", ""), "the reason is told", wait_s=WAIT_S)
        graph.knob.write_text("normal")
        until(lambda: grown(CAP), "they come back", wait_s=WAIT_S)
        assert most == CAP
    assert set(statuses) == {200}
    assert len(statuses) > CLIENTS
