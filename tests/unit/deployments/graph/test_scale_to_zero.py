"""Which tiers of a chain are asleep, and what a request does about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deployments.config_tiers import ScriptedTierConfig
from deployments.graph.scale_to_zero import find_cold, select_scalable


class Napping:
    """A tier of which only its sleep is known."""

    def __init__(self, warm: bool) -> None:
        self.warm = warm


@given(
    ways=st.lists(st.sampled_from(["wait", "next", None]), min_size=1, max_size=5),
    warm=st.lists(st.booleans(), min_size=5, max_size=5),
    well=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_only_who_is_asleep_is_decided_about(ways: Sequence[Any], warm: Sequence[bool], well: Sequence[bool]) -> None:
    """Law: each sleeping tier of the chain gets its configured way; unset it is passed by exactly where a tier that can
    stand in comes later; so a request whose chain has nobody else waits."""
    chain = [f"t{n}" for n in range(len(ways))]
    configs = {
        name: ScriptedTierConfig(kind="scripted", script=[], min_replicas=0, asleep=way)
        for name, way in zip(chain, ways, strict=True)
    }
    tiers: Mapping[str, Any] = {name: Napping(up) for name, up in zip(chain, warm, strict=False)}
    stands = {name for name, up, good in zip(chain, warm, well, strict=False) if up and good}
    found = find_cold(chain, select_scalable(configs), tiers, stands.__contains__)

    assert set(found) == {name for name in chain if not tiers[name].warm}
    for name, way in found.items():
        later = set(chain[chain.index(name) + 1 :])
        assert way == (configs[name].asleep or ("next" if later & stands else "wait"))
