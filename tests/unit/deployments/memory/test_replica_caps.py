"""How many replicas fit: never above the budget, never blind growth."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.memory.plan import Holder, NodeReport, TierNeed
from deployments.memory.replica_caps import cap_replicas, find_refused_replicas
from reliability.memory.pressure import Level
from tests.support.node_reports import GB, need, report

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
    fits = cap_replicas(needs, reports, wanted, now)

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


def on(node: str, tier: str, **changes: Any) -> NodeReport:
    return report(node, held=(Holder(holder=node, tier=tier, bytes=GB, since_s=1),), **changes)


@pytest.mark.parametrize(("needs", "reports", "wanted", "now", "replicas"), [
    pytest.param(
        [need("big", 4), need("fixed", 4, 1, 1)], [report()], {"big": 10}, {"big": 1}, {"big": 2},
        id="a tier that isn't autoscaled takes its bytes all the same",
    ),
    pytest.param(
        [need("fast", 1, priority=2), need("huge", 50, priority=1)], [report()],
        {"fast": 6, "huge": 3}, {"fast": 1, "huge": 1}, {"fast": 6, "huge": 1},
        id="what no node could hold even once stops no other tier",
    ),
    pytest.param(
        [need("big", 4)], [report("x", budget_bytes=6 * GB), report("y", budget_bytes=6 * GB)],
        {"big": 5}, {"big": 1}, {"big": 2},
        id="budgets of 6 GB on two nodes hold one replica of 4 GB each, not three together",
    ),
    pytest.param(
        [need("a", 1), need("b", 1)], [on("x", "a", level=Level.CRITICAL), on("y", "b")],
        {"a": 4, "b": 4}, {"a": 3, "b": 3}, {"a": 1, "b": 4},
        id="a critical node shrinks its own tiers, and those of another node grow on",
    ),
    pytest.param(
        [need("cloud", 0, local=False)], [report(level=Level.CRITICAL)], {"cloud": 4}, {"cloud": 1}, {"cloud": 4},
        id="memory here doesn't bound a tier that runs elsewhere",
    ),
])  # fmt: skip
def test_each_gets_what_is_left_for_it(needs, reports, wanted, now, replicas):
    """Law: the examples' names."""
    fits = cap_replicas(tuple(needs), tuple(reports), wanted, now)
    assert {name: fit.replicas for name, fit in fits.items()} == replicas


def test_a_tier_that_fits_nowhere_is_refused_with_the_reason():
    """The reason has both figures, and is known before any replica is asked for."""
    needs = (need("fast", 1), need("huge", 50))
    why = "50000000000 bytes needed for one replica, the largest budget of a node is 12000000000"
    assert cap_replicas(needs, (report(),), {"huge": 3}, {"huge": 1})["huge"].why == why
    assert find_refused_replicas(needs, [12 * GB]) == {"huge": why}


def test_what_the_configuration_can_never_have_is_known_at_once():
    """Ten replicas of 4 GB against 12 GB are refused before any of them is asked for."""
    assert find_refused_replicas((need("big", 4),), [12 * GB, None])["big"].startswith(
        "10 x 4000000000 bytes wanted, 3 fit"
    )
    assert find_refused_replicas((need("big", 1),), [12 * GB]) == {}
    assert find_refused_replicas((need("big", 4),), [None]) == {}
