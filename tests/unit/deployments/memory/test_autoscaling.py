"""The policy's laws: a cap that survives Serve's factors, never blind growth, never a raise, never a wait."""

import math
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from deployments.memory import autoscaling
from deployments.memory.autoscaling import MemoryCappedPolicy, _apply_factors, _DemandCell, _HeldDemand, _keep_newest
from deployments.memory.plan import NodeReport
from reliability.memory.pressure import Level
from tests.support.node_reports import need, report
from tests.support.repository import ROOT


@dataclass
class Context:
    """What Serve gives a policy for one deployment, as far as the policy reads it."""

    deployment_name: str
    total_num_requests: float
    current_num_replicas: int = 1
    target_num_replicas: int = 1
    app_name: str = "app"
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 10
    policy_state: dict[str, Any] = field(default_factory=dict)
    config: AutoscalingConfig = field(
        default_factory=lambda: AutoscalingConfig(min_replicas=1, max_replicas=10, target_ongoing_requests=1)
    )


def policy_with(*reports: NodeReport, age_s: float = 0.0) -> MemoryCappedPolicy:
    """A policy whose thread has brought these reports; no thread runs."""
    policy = MemoryCappedPolicy()
    policy._cell = _DemandCell("app", seen=(tuple(reports), time.monotonic() - age_s))
    return policy


def test_levels_move_what_serve_is_told():
    """Demand for six: granted as far as it fits, held at warn, cut to the minimum at critical, held without news."""
    needs = (need("fast", 2),)
    said = {
        level: policy_with(report(level=level, needs=needs))({"k": Context("fast", 6.0, 3, 3)})[0]["k"]
        for level in Level
    }
    assert {level: math.ceil(value) for level, value in said.items()} == {
        Level.NORMAL: 6,
        Level.WARN: 3,
        Level.CRITICAL: 1,
        Level.UNKNOWN: 3,
    }
    stale = policy_with(report(needs=needs), age_s=60)
    stale._needs = needs
    assert math.ceil(stale({"k": Context("fast", 6.0, 3, 3)})[0]["k"]) == 3


def test_no_report_at_all_grows_nothing():
    """Before the first report nothing grows, and demand that falls may still shrink."""
    policy = policy_with()
    assert policy({"k": Context("fast", 9.0, 2, 2)})[0]["k"] == 2


@given(st.lists(st.sampled_from([None, "x", -1, math.nan, object()]), min_size=1, max_size=4))
def test_it_never_raises(oddities: list[Any]) -> None:
    """Whatever Serve gives it, there is an answer for every deployment."""
    policy = policy_with(report())
    contexts = {i: Context(f"t{i}", odd, 2, 2) for i, odd in enumerate(oddities)}
    for _ in range(3):
        said, state = policy(contexts)
        assert state == {}
        assert said.keys() == contexts.keys()


def test_it_takes_no_time():
    """A call computes and nothing else: far under the 100 ms between two of Serve's ticks."""
    needs = tuple(need(f"t{i}", 1) for i in range(4))
    policy = policy_with(*(report(f"n{i}", needs=needs) for i in range(4)))
    contexts = {i: Context(f"t{i}", 5.0) for i in range(4)}
    began = time.thread_time()  # a busy machine's other processes aren't the policy's time
    for _ in range(100):
        policy(contexts)
    assert (time.thread_time() - began) / 100 < 0.005


@given(
    st.integers(1, 20),
    st.integers(0, 20),
    st.sampled_from([0.1, 0.3, 0.5, 1.0, 1.7, 3.0]),
    st.sampled_from([0.3, 0.6, 1.0]),
)
def test_a_cap_survives_serves_factors(current: int, cap: int, up: float, down: float) -> None:
    """What Serve makes of the policy's word by its scaling factors is the cap."""
    from ray.serve.autoscaling_policy import _apply_scaling_factors

    config = AutoscalingConfig(min_replicas=0, max_replicas=99, upscaling_factor=up, downscaling_factor=down)
    context = Context("t", 0.0, current, current, config=config)

    assert _apply_scaling_factors(autoscaling._undo_factors(context, cap), current, config) == cap


@given(st.integers(0, 20), st.floats(0, 30), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_demand_is_serves(current: int, demand: float, up: float) -> None:
    """Without a cap the policy comes to what Serve's own policy comes to."""
    from ray.serve.autoscaling_policy import _apply_scaling_factors

    config = AutoscalingConfig(min_replicas=0, max_replicas=99, upscaling_factor=up, downscaling_factor=up)
    context = Context("t", 0.0, current, current, config=config)
    serves = _apply_scaling_factors(demand, current, config)

    assert abs(_apply_factors(context, demand) - serves) <= (1 if demand < current else 0) or math.isclose(
        demand % 1, 0, abs_tol=1e-5
    )


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 8)), min_size=1, max_size=50))
def test_demand_is_held(steps: list[tuple[float, int]]) -> None:
    """The demand to go by is the highest of the last `hold_s`, and it is remembered in little room."""
    held, now_s, past = _HeldDemand(20.0), 0.0, []
    for wait_s, wanted in steps:
        now_s += wait_s
        past.append((now_s, wanted))
        assert held.take("t", wanted, now_s) == max(w for at, w in past if now_s - at <= 20.0)
        assert len(held._peaks["t"]) <= 9


@given(st.integers(0, 3), st.integers(1, 4), st.booleans())
def test_the_last_replica_is_let_go_by_serves_own_delay(least: int, now: int, busy: bool) -> None:
    """Law: the lull of a tier's last replica isn't held here, where it may sleep: Serve's `downscale_to_zero_delay_s`
    measures it. Everything else is held."""
    policy = policy_with(report(needs=(need("t", 1, least=least),)))
    context = Context("t", 1.0, now, max(now, least), capacity_adjusted_min_replicas=least)
    policy({"t": context})
    wanted, _ = policy({"t": replace(context, total_num_requests=1.0 if busy else 0.0)})

    sleeps = not least and not busy and now == 1
    assert math.ceil(wanted["t"]) == (0 if sleeps else max(1, least))


def test_the_newer_monitor_of_a_node_counts():
    """After a redeploy two monitors stand on a node for a while: the later one is believed."""
    old, new = report("x", started_unix_s=1.0, epoch="old"), report("x", started_unix_s=2.0, epoch="new")

    assert [r.epoch for r in _keep_newest([new, old, report("y")])] == ["new", "e"]


def test_serve_can_pickle_it():
    """What Serve sends to its controller can be loaded there, and is a class that it can make."""
    policy = AutoscalingPolicy(
        policy_function="deployments.memory.autoscaling:MemoryCappedPolicy", policy_kwargs={"hold_s": 5}
    )
    made = policy.get_policy()(**policy.policy_kwargs)

    assert made({}) == ({}, {})


def test_it_starts_no_ray():
    """Ray's calls start a Ray where none is connected, and end the process where that fails; the policy asks nobody
    then, and stays blind."""
    code = (
        "import ray\n"
        "from deployments.memory import nodes\n"
        "try: nodes.find('nobody')\n"
        "except ConnectionError: assert not ray.is_initialized()\n"
        "else: raise SystemExit('it asked')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=100, check=True)


def test_a_dropped_policy_ends_its_thread(monkeypatch: pytest.MonkeyPatch):
    """When Serve drops the policy, nothing of it stays."""
    policy = MemoryCappedPolicy()
    cell = policy._watch("nobody")
    assert not cell.stop.is_set()
    del policy
    assert cell.stop.is_set()
