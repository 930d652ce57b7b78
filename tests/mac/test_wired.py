"""A tier's memory is wired, its own part and no more, and let go of at its end."""

import asyncio
from pathlib import Path

import mlx.core as mx

from deployments.tiers.mlx.decoding import generators
from deployments.tiers.mlx.metal import wire
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import TierState
from tests.mac.assumptions import GIB
from tests.mac.scripted_mac import ScriptedMac


def test_a_part_is_wired_within_the_working_set(monkeypatch):
    """Law: what is asked of macOS is never more than it allows; a macOS that refuses, and a machine without Metal, only
    mean that nothing is wired."""
    assert wire(GIB) == 0
    mac = ScriptedMac(16).start(monkeypatch)
    assert wire(3 * GIB) == 3 * GIB
    assert wire(900 * GIB) == mac.working_set
    wire(0)
    assert mac.wired == [3 * GIB, mac.working_set, 0]

    def refuse(_: int) -> int:
        raise ValueError("not supported before macOS 15")

    monkeypatch.setattr(mx, "set_wired_limit", refuse)
    assert wire(GIB) == 0


def test_a_tier_wires_once_and_lets_go(folder, monkeypatch, tmp_path):
    """Law: a whole tier wires its part once it is ready, and nothing when it is closed; mlx-lm's own way to wire 75 %
    of the machine is never taken."""
    mac = ScriptedMac(16).start(monkeypatch)
    tier = MlxTier(name="fast", model=f"path:{folder}", cache_dir=tmp_path)
    status = asyncio.run(tier.wait_for_load(60))
    assert status.state is TierState.READY, status
    assert len(mac.wired) == 1
    assert 0 < mac.wired[0] <= mac.working_set
    asyncio.run(tier.close())
    assert mac.wired[1:] == [0]
    assert "maybe_set_recommended_wired_limit = lambda: None" in Path(generators.__file__).read_text(encoding="utf-8")
