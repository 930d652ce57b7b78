"""A tier that can't be made here."""

from __future__ import annotations

import asyncio

from deployments.graph.unavailable import UnavailableTier
from reliability.types import Failed, Fault, TierState, TierStatus
from tests.support.tier_asking import answer, ask


def test_it_refuses_with_its_reason() -> None:
    """Law: its status and its answers say why it isn't there, and an answer is nothing but that, so the chain goes
    on."""
    tier = UnavailableTier(
        TierStatus(name="big", kind="mlx", state=TierState.UNAVAILABLE, reason="50 bytes needed, 12 are there")
    )
    status = asyncio.run(tier.status())
    (failed,) = asyncio.run(answer(tier, ask()))

    assert (status.name, status.kind, status.state) == ("big", "mlx", TierState.UNAVAILABLE)
    assert status.reason == "50 bytes needed, 12 are there"
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.UNAVAILABLE
    assert failed.message == "tier big is unavailable: 50 bytes needed, 12 are there"
