"""What is asked of Ray for the replicas that must be there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.memory.nodes import fit_minimums
from deployments.memory.plan import TierNeed

NEEDS = st.lists(
    st.builds(
        TierNeed,
        name=st.sampled_from("abcd"),
        replica_bytes=st.sampled_from([None, 0, 10, 30, 60]),
        replicas_min=st.integers(0, 3),
        replicas_max=st.just(5),
        local=st.booleans(),
    ),
    unique_by=lambda n: n.name,
    max_size=4,
)


@given(NEEDS, st.lists(st.integers(0, 100), max_size=3))
def test_nothing_is_asked_that_cannot_be_had(needs: list[TierNeed], room: list[int]) -> None:
    """Either every tier with bytes asks for them, and one replica of each fits, or none asks at all."""
    asks = fit_minimums(needs, room)
    local = {n.name: n.replica_bytes for n in needs if n.local and n.replica_bytes}

    assert asks in ({}, local)
    if asks:
        least = [n.replica_bytes or 0 for n in needs if n.name in asks for _ in range(max(1, n.replicas_min))]
        assert sum(least) <= sum(room)
        assert max(least) <= max(room)
