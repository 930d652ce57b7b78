"""`model: auto` on Macs of 8 to 512 GB, against what Metal lets models have there. Run with `-s` to see the table."""

from dataclasses import dataclass

import pytest

from deployments.config.tier_config import MlxTierConfig
from deployments.memory.plan import MemoryPlan, MonitorSettings
from deployments.memory.room import AGENT_TOKENS, estimate_scores_bytes, find_room
from deployments.memory.sensors.computing import Computing
from deployments.models import needs
from deployments.models.catalog import CONTEXT_TOKENS, choose_here, mac_model_of
from deployments.tiers.mlx.memory_budget import Layer, Layout, MemoryBudget
from tests.mac.engines import settle
from tests.mac.scripted_mac import ScriptedMac

MACS_GIB = (8, 16, 18, 24, 32, 36, 48, 64, 96, 128, 192, 256, 512)
FRONT_BYTES_MAX = 5e9


@dataclass(frozen=True)
class Tier:
    """A tier on a Mac: its part of the memory, and the context that it can hold in that."""

    role: str
    model: str
    weight_bytes: int
    part_bytes: int
    context_tokens: int
    model_tokens: int
    in_front: bool


def list_tiers(mac: ScriptedMac, monkeypatch: pytest.MonkeyPatch) -> list[Tier]:
    """What the server makes of its own configuration on this Mac, with no model there yet."""
    mac.start(monkeypatch)
    monkeypatch.setattr(needs, "find_on_disk", lambda _: None)
    config = settle()
    plan = MemoryPlan(settings=MonitorSettings(), needs=needs.tier_needs(config))
    tiers = []
    for role, tier in config.tiers.items():
        assert isinstance(tier, MlxTierConfig)
        choice = choose_here(role, tier.model)
        model, room = mac_model_of(choice.source), find_room(plan, role)
        assert model is not None
        assert room is not None
        if choice.unfit:
            continue
        fixed_bytes, token_bytes = estimate_scores_bytes(model.heads, model.head_dim, 512, Computing.METAL, forced=True)
        budget = MemoryBudget(
            budget_bytes=room.share_bytes(),
            weight_bytes=model.weight_mb * 1_000_000,
            scratch_bytes=needs.BESIDE_WEIGHTS_BYTES + fixed_bytes,
            scratch_token_bytes=token_bytes,
            layout=Layout((Layer(model.token_bytes, fixed_bytes=model.state_bytes),)),
        )
        tiers.append(
            Tier(
                role, model.repository, model.weight_mb * 1_000_000, room.share_bytes(),
                budget.fit_tokens(CONTEXT_TOKENS), CONTEXT_TOKENS, tier.min_replicas > 0,
            )
        )  # fmt: skip
    return tiers


@pytest.mark.parametrize("memory_gib", MACS_GIB)
def test_auto_fits_the_machine(memory_gib, monkeypatch):
    """Law: no Mac fetches more than 5 GB before its first answer; each tier holds the context that an agent needs; and
    all of them, awake at once, have no more than what Metal recommends."""
    mac = ScriptedMac(memory_gib)
    tiers = list_tiers(mac, monkeypatch)
    print()
    for tier in tiers:
        print(
            f"{memory_gib:>4} GB  {tier.role:<9}{tier.model:<36} {tier.weight_bytes / 1e9:>6.1f} GB"
            f"{'  before the first answer' if tier.in_front else '':<26}"
            f" part {tier.part_bytes / 1e9:>6.1f} GB  context {tier.context_tokens:>7,}"
        )
    resident = sum(tier.part_bytes for tier in tiers)
    print(f"{'':>9}all awake {resident / 1e9:.1f} GB of the working set's {mac.working_set / 1e9:.1f} GB")
    assert tiers
    assert sum(tier.weight_bytes for tier in tiers if tier.in_front) <= FRONT_BYTES_MAX
    assert [tier.role for tier in tiers if tier.in_front] == ["fast"]
    for tier in tiers:
        assert tier.context_tokens >= min(AGENT_TOKENS, tier.model_tokens), tier
    assert resident <= mac.working_set
