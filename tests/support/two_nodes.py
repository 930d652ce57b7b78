"""Two Ray nodes on one machine, each with its monitor and its knob: a program of its own, with its own Ray session.

Run as `python -m tests.support.two_nodes FOLDER` with a short folder. Each node's sensor reads the file that the node's
own environment names. Prints one line per law that it has seen hold; raises at the first that doesn't.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from deployments.memory import nodes
from deployments.memory.plan import MemoryPlan, MonitorSettings, TierNeed
from deployments.memory.view import MemoryView
from reliability.memory.pressure import Level

SETTINGS = MonitorSettings(
    sensor="scripted:$MS_KNOB", budget_bytes=1000, poll_s=0.1, calm_s=0.3, stale_s=1.5, lease_s=30.0
)
PLAN = MemoryPlan(
    settings=SETTINGS,
    needs=tuple(TierNeed(name=n, replica_bytes=400, replicas_min=1, replicas_max=4) for n in ("fast", "standard")),
)


async def until(condition: Callable[[], Any], what: str, wait_s: float = 40.0) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {wait_s:g} s: {what}")
        await asyncio.sleep(0.02)
    print(what, flush=True)


async def play(cluster: Cluster, folder: Path, second: Any) -> None:
    here, there = cluster.head_node.node_id, second.node_id
    for node, tier in ((here, "fast"), (there, "standard")):
        monitor = nodes._on(node, "app", SETTINGS)
        await monitor.renew.remote(tier, tier, 400, PLAN.needs)
    assert len(nodes.find("app")) == 2
    view = MemoryView(PLAN, "app")
    await until(lambda: (view.level(), len(view._nodes))[1] == 2, "both monitors are heard")
    await until(lambda: view.level("fast").level is Level.NORMAL, "fast is normal")
    await until(lambda: view.level("standard").level is Level.NORMAL, "standard is normal")
    assert {r.node for r in (v.report for v in view._nodes.values())} == {here, there}
    (folder / "second").write_text("critical")
    await until(lambda: view.level("standard").level is Level.CRITICAL, "pressure on the second node is felt there")
    assert view.level("fast").level is Level.NORMAL, "and not on the first"
    assert view.level().level is Level.CRITICAL, "the cluster's level is the worst"
    (move,) = view.transitions()
    assert (move.node, move.after) == (there, Level.CRITICAL)
    cluster.remove_node(second, allow_graceful=False)
    slow_s = 0.0
    deadline = time.monotonic() + 30
    while view.level("standard").level is not Level.UNKNOWN and time.monotonic() < deadline:
        began = time.perf_counter()
        assert view.level("fast").level is Level.NORMAL, "the first node stays known"
        slow_s = max(slow_s, time.perf_counter() - began)
        await asyncio.sleep(0.02)
    await until(lambda: view.level("standard").level is Level.UNKNOWN, "a dead node is unknown")
    # Waiting for the dead one would take its timeout, a second.
    assert slow_s < 0.5, f"asking took {slow_s} s"
    assert view.level("fast").level is Level.NORMAL
    await until(lambda: len(nodes.find("app")) == 1, "nobody starts its monitor elsewhere")
    await view.close()


def main(folder: Path) -> None:
    for name in ("first", "second"):
        (folder / name).write_text("normal")
    common = {"num_cpus": 1, "object_store_memory": 80 << 20}
    head = common | {"env_vars": {"MS_KNOB": str(folder / "first")}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head | {"temp_dir": str(folder / "r")})
    try:
        second = cluster.add_node(**common, env_vars={"MS_KNOB": str(folder / "second")})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        asyncio.run(play(cluster, folder, second))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
