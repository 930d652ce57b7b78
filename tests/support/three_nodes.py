"""Three Ray nodes on one machine, the Router and two tiers on one each: pressure moves work, and death stops none.

Run as `python -m tests.support.three_nodes FOLDER` with a short folder. Prints one line per law that it has seen hold;
raises at the first that doesn't.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from deployments.config.free_port import free_port
from deployments.memory import nodes
from tests.support.serving import until

LONG, SHORT = "word " * 400, "hi"
AFTER_THE_DEATH = 20


def said(port: int, text: str) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8}
    return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=60)


def tier_of(port: int, text: str) -> str:
    answer = said(port, text)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-mlx-stack-tier"]


def see(condition: Callable[[], Any], what: str) -> None:
    """Wait for a law to hold, and say that it does."""
    until(condition, what, 90.0)
    print(what, flush=True)


def deployed(port: int, folder: Path) -> None:
    """The graph, each part on its own node."""
    # On one machine all nodes' proxies would share the port, and one of them dies with its node.
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    pressure = {
        "sensor": "scripted:$MS_KNOB",
        "critical_prompt_tokens": 300,
        "poll_s": 0.1,
        "calm_s": 0.5,
        "stale_s": 3,
    }
    tiers = {n: {"kind": "scripted", "script": [{"answer": f"from {n}"}]} for n in ("fast", "standard")}
    app = {
        "name": "cluster",
        "route_prefix": "/",
        "import_path": "deployments.app:build",
        "args": {
            "tiers": tiers,
            "reliability": {"escalation": {"chain": ["fast", "standard"]}, "memory_pressure": pressure},
            "state": {"path": str(folder / "state")},
        },
        "deployments": [
            {"name": name, "ray_actor_options": {"num_cpus": 0, "resources": {place: 0.1}}}
            for name, place in (("Router", "head"), ("fast", "a"), ("standard", "b"))
        ],
    }
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({"applications": [app]}), _blocking=True)


def play(cluster: Cluster, folder: Path, first: Any, port: int) -> None:
    see(lambda: tier_of(port, SHORT) == "fast", "the first node's tier answers")
    ready = f"http://127.0.0.1:{port}/ready"
    see(lambda: len(httpx.get(ready, timeout=30).json()["memory"]["nodes"]) == 3, "each node has its monitor")

    (folder / "a").write_text("critical")
    see(lambda: tier_of(port, LONG) == "standard", "pressure on one node moves work to another")
    assert said(port, LONG).headers["x-mlx-stack-escalation-reason"] == "memory_pressure"
    assert tier_of(port, SHORT) == "fast", "what is small stays"
    (folder / "a").write_text("normal")
    see(lambda: tier_of(port, LONG) == "fast", "it comes back when the pressure is over")

    cluster.remove_node(first, allow_graceful=False)
    # Its processes live on for a moment and may still answer; each request is answered all the same.
    see(lambda: tier_of(port, LONG) == "standard", "the other node's tier takes over")
    began_s = time.monotonic()
    tiers = [tier_of(port, LONG) for _ in range(AFTER_THE_DEATH)]
    assert set(tiers) == {"standard"}, tiers
    assert time.monotonic() - began_s < 60, "nobody waits for a dead node, nor for its monitor"
    see(lambda: len(nodes.find("cluster")) == 2, "nobody starts its monitor elsewhere")
    print("a node that dies with its monitor doesn't stop the graph", flush=True)


def main(folder: Path) -> None:
    for name in ("head", "a", "b"):
        (folder / name).write_text("normal")
    common = {"num_cpus": 1, "object_store_memory": 80 << 20}

    def node(name: str) -> dict[str, Any]:
        return common | {"resources": {name: 1}, "env_vars": {"MS_KNOB": str(folder / name)}}

    head = node("head") | {"include_dashboard": False, "temp_dir": str(folder / "r")}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        first, _ = cluster.add_node(**node("a")), cluster.add_node(**node("b"))
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        port = free_port()
        deployed(port, folder)
        play(cluster, folder, first, port)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
