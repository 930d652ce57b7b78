"""The policy's laws: never above the budget, never blind growth, never a raise, never a wait."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from deployments.memory.autoscaling import (
    Cell,
    HeldDemand,
    MemoryCappedPolicy,
    Seen,
    after_factors,
    before_factors,
    newest,
)
from deployments.memory.node_report import Holder, NodeReport
from deployments.memory.plan import TierNeed
from deployments.memory.replica_caps import capped, refused_replicas
from reliability.memory.pressure import Level

GB = 10**9


def report(node: str = "n", **changes: Any) -> NodeReport:
    """A node that is well, with a budget of 12 GB, and these changes."""
    facts: dict[str, Any] = {
        "node": node,
        "host": node,
        "pid": 1,
        "epoch": "e",
        "started_unix_s": 1.0,
        "level": Level.NORMAL,
        "source": "",
        "sustained_s": 0.0,
        "fresh_s": 10.0,
        "values": {},
        "total_bytes": 16 * GB,
        "available_bytes": 14 * GB,
        "budget_bytes": 12 * GB,
        "held": (),
        "waiting": (),
        "needs": (),
        "caps": {},
        "transitions": (),
    }
    return NodeReport(**(facts | changes))


def need(name: str, gb: float, least: int = 1, most: int = 10, **changes: Any) -> TierNeed:
    """A tier whose replica takes so much."""
    return TierNeed(name=name, replica_bytes=int(gb * GB), replicas_min=least, replicas_max=most, **changes)


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
    policy._cell = Cell("app", seen=Seen(tuple(reports), time.monotonic() - age_s))
    return policy


NEEDS = st.lists(
    st.builds(
        need, st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 2), st.just(10), priority=st.integers(0, 3)
    ),
    min_size=1,
    unique_by=lambda n: n.name,
).map(tuple)
REPORTS = st.lists(
    st.builds(
        report,
        st.sampled_from("xyz"),
        level=st.sampled_from(Level),
        fresh_s=st.sampled_from([0.0, 5.0]),
        budget_bytes=st.sampled_from([None, 4 * GB, 12 * GB]),
        held=st.sampled_from([(), (Holder(holder="h", tier="a", bytes=GB, since_s=1.0),)]),
    ),
    max_size=3,
    unique_by=lambda r: r.node,
).map(tuple)
COUNTS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1)


@given(NEEDS, REPORTS, COUNTS)
def test_caps(needs: tuple[TierNeed, ...], reports: tuple[NodeReport, ...], counts: dict[str, tuple[int, int]]) -> None:
    """The bytes that run stay in the budget unless the minimums alone exceed it; nothing grows without a fresh and
    normal reading; nobody gets more than they want beyond their minimum."""
    wanted = {name: max(w, _least(needs, name)) for name, (w, _) in counts.items()}
    now = {name: n for name, (_, n) in counts.items()}
    fits = capped(needs, reports, wanted, now)

    assert fits.keys() == wanted.keys()
    for name, fit in fits.items():
        assert fit.replicas <= wanted[name]
        assert (fit.why != "") or fit.replicas == wanted[name]
        calm = reports and all(r.fresh_s > 0 and r.level is Level.NORMAL and r.budget_bytes for r in reports)
        if not calm and name in {n.name for n in needs}:
            here = [r for r in reports if "a" in {h.tier for h in r.held} and name == "a"]
            if not here:
                assert fit.replicas <= max(now[name], _least(needs, name))
    if reports and all(r.budget_bytes for r in reports):
        budget = sum(r.budget_bytes or 0 for r in reports)
        # A tier that fits nowhere is refused its lease and holds nothing, whatever its number of replicas.
        largest = max(r.budget_bytes or 0 for r in reports)
        by_name = {n.name: n for n in needs if (n.replica_bytes or 0) <= largest}
        used = sum(_bytes(by_name[n], reports) * f.replicas for n, f in fits.items() if n in by_name)
        least = sum(_bytes(n, reports) * n.replicas_min for n in by_name.values())
        assert used <= max(budget, least)


def _least(needs: tuple[TierNeed, ...], name: str) -> int:
    return next((n.replicas_min for n in needs if n.name == name), 0)


def _bytes(one: TierNeed, reports: tuple[NodeReport, ...]) -> int:
    held = max((h.bytes for r in reports for h in r.held if h.tier == one.name), default=0)
    return max(one.replica_bytes or 0, held)


def test_ten_replicas_of_4_gb_on_16_gb_are_refused_with_the_reason():
    """16 GB of memory, three quarters of it the budget: three replicas, and a line that says why not ten."""
    fits = capped((need("big", 4),), (report(),), {"big": 10}, {"big": 1})

    assert fits["big"].replicas == 3
    assert fits["big"].why == "10 x 4000000000 bytes wanted, 3 fit beside the others in 12000000000"


def test_tiers_of_a_fixed_number_count():
    """A tier that isn't autoscaled takes its bytes all the same."""
    fits = capped((need("big", 4), need("fixed", 4, 1, 1)), (report(),), {"big": 10}, {"big": 1})

    assert fits["big"].replicas == 2


def test_a_tier_that_fits_nowhere_stops_no_other():
    """What no node could hold even once is refused with the reason, and the others grow as if it weren't there."""
    needs = (need("fast", 1, priority=2), need("huge", 50, priority=1))
    fits = capped(needs, (report(),), {"fast": 6, "huge": 3}, {"fast": 1, "huge": 1})

    assert (fits["fast"].replicas, fits["huge"].replicas) == (6, 1)
    assert fits["huge"].why == "50000000000 bytes needed for one replica, the largest budget of a node is 12000000000"
    assert refused_replicas(needs, [12 * GB]).keys() == {"huge"}


def test_what_the_configuration_can_never_have_is_known_at_once():
    """Ten replicas of 4 GB against 12 GB are refused before any of them is asked for."""
    assert refused_replicas((need("big", 4),), [12 * GB, None])["big"].startswith("10 x 4000000000 bytes wanted, 3 fit")
    assert refused_replicas((need("big", 1),), [12 * GB]) == {}
    assert refused_replicas((need("big", 4),), [None]) == {}


def test_half_a_replica_on_each_of_two_nodes_is_none():
    """Budgets of 6 GB on two nodes hold one replica of 4 GB each, not three together."""
    two = (report("x", budget_bytes=6 * GB), report("y", budget_bytes=6 * GB))

    assert capped((need("big", 4),), two, {"big": 5}, {"big": 1})["big"].replicas == 2


def test_pressure_counts_where_the_tier_is():
    """A critical node shrinks its own tiers; tiers of another node grow on."""
    sick = report("x", level=Level.CRITICAL, held=(Holder(holder="1", tier="a", bytes=GB, since_s=1),))
    well = report("y", held=(Holder(holder="2", tier="b", bytes=GB, since_s=1),))
    fits = capped((need("a", 1), need("b", 1)), (sick, well), {"a": 4, "b": 4}, {"a": 3, "b": 3})

    assert (fits["a"].replicas, fits["b"].replicas) == (1, 4)


def test_a_tier_that_runs_elsewhere_is_not_capped():
    """Memory here doesn't bound a hosted tier."""
    fits = capped((need("cloud", 0, local=False),), (report(level=Level.CRITICAL),), {"cloud": 4}, {"cloud": 1})

    assert fits["cloud"].replicas == 4


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

    assert _apply_scaling_factors(before_factors(context, cap), current, config) == cap


@given(st.integers(0, 20), st.floats(0, 30), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_demand_is_serves(current: int, demand: float, up: float) -> None:
    """Without a cap the policy comes to what Serve's own policy comes to."""
    from ray.serve.autoscaling_policy import _apply_scaling_factors

    config = AutoscalingConfig(min_replicas=0, max_replicas=99, upscaling_factor=up, downscaling_factor=up)
    context = Context("t", 0.0, current, current, config=config)
    serves = _apply_scaling_factors(demand, current, config)

    assert abs(after_factors(context, demand) - serves) <= (1 if demand < current else 0) or math.isclose(
        demand % 1, 0, abs_tol=1e-5
    )


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 8)), min_size=1, max_size=50))
def test_demand_is_held(steps: list[tuple[float, int]]) -> None:
    """The demand to go by is the highest of the last `hold_s`, and it is remembered in little room."""
    held, now_s, past = HeldDemand(20.0), 0.0, []
    for wait_s, wanted in steps:
        now_s += wait_s
        past.append((now_s, wanted))
        assert held.of("t", wanted, now_s) == max(w for at, w in past if now_s - at <= 20.0)
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

    assert [r.epoch for r in newest([new, old, report("y")])] == ["new", "e"]


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
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=100, check=True)


def test_a_dropped_policy_ends_its_thread(monkeypatch: pytest.MonkeyPatch):
    """When Serve drops the policy, nothing of it stays."""
    policy = MemoryCappedPolicy()
    cell = policy._watching("nobody")
    assert not cell.stop.is_set()
    del policy
    assert cell.stop.is_set()
