"""In which order the replicas of a tier are tried for a session."""

import math

from hypothesis import given
from hypothesis import strategies as st

from deployments.graph.session_routing import _SPREAD, _rank_by_load


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_the_order_bounds_the_load_and_keeps_the_home(loads: list[int]) -> None:
    """Law: every place is tried once; the first has less than its bounded share and is the first such in the row; an
    idle tier, and one replica alone, keep the session at home."""
    order = _rank_by_load(loads)
    bound = math.ceil(_SPREAD * (sum(loads) + 1) / len(loads))
    assert sorted(order) == list(range(len(loads)))
    assert order[0] == next(place for place, load in enumerate(loads) if load < bound)
    assert _rank_by_load([0] * len(loads))[0] == 0
