"""A healthy Mac loads its models and gives each the context that an agent needs, whatever is free at the moment."""

import pytest

from deployments.cli import doctor
from deployments.config.app_config import AppConfig
from deployments.memory.plan import MemoryPlan, MonitorSettings, TierNeed
from deployments.memory.room import AGENT_TOKENS, Room, find_room, find_room_alone
from deployments.memory.sensors.computing import read_working_set
from deployments.memory.sensors.macos import MacosSensor
from deployments.models.sources import ModelUnavailable
from tests.mac.assumptions import AVAILABLE_SWINGS_GB, FIRST_PROMPT_TOKENS, GIB, MIB
from tests.mac.engines import QWEN3_8B, Size, start
from tests.mac.scripted_mac import ScriptedMac

BIG = Size(200 * GIB, 24_576, 262_144)


@pytest.mark.parametrize("available_gb", AVAILABLE_SWINGS_GB)
def test_free_memory_decides_nothing(folder, monkeypatch, available_gb):
    """Law: on an idle Mac of 24 GB, Qwen3-8B loads and holds an agent's conversation at each of the figures that one
    machine has called available; and always the same one."""
    ScriptedMac(24, available_gb).start(monkeypatch)
    loaded = start(folder, QWEN3_8B, monkeypatch, room=find_room_alone())
    assert loaded.context_tokens >= AGENT_TOKENS > FIRST_PROMPT_TOKENS
    assert loaded.context_tokens == QWEN3_8B.context_tokens


def test_the_kernel_is_the_brake(folder, monkeypatch):
    """Law: at the kernel's critical level nothing is loaded, and it can be tried again; at warn it is."""
    mac = ScriptedMac(24, 19.1, pressure="critical").start(monkeypatch)
    with pytest.raises(ModelUnavailable, match="critically short of memory") as caught:
        start(folder, QWEN3_8B, monkeypatch, room=find_room_alone())
    assert caught.value.again
    mac.pressure = "warn"
    assert start(folder, QWEN3_8B, monkeypatch, room=find_room_alone()).context_tokens


def test_what_does_not_fit_says_so(folder, monkeypatch):
    """Law: a model that is larger than what the others leave isn't loaded; one that would hold less than an agent needs
    is left out; each with the figures and what to do. A person who sets `memory_bytes` decides alone."""
    mac = ScriptedMac(16, 12.0).start(monkeypatch)
    with pytest.raises(ModelUnavailable, match=r"needs 200.4 GiB; of the 10.7 GiB that Metal may use.*Name a smaller"):
        start(folder, BIG, monkeypatch, room=find_room_alone())
    room = Room(working_set_bytes=mac.working_set, others_bytes=5 * GIB, replicas=2)
    with pytest.raises(ModelUnavailable, match=r"left out: with the 32,768 tokens.*takes .* GiB, and 5.7 are left"):
        start(folder, QWEN3_8B, monkeypatch, room=room)
    small = start(folder, QWEN3_8B, monkeypatch, room=room, memory_bytes=6 * GIB)
    assert 0 < small.context_tokens < AGENT_TOKENS


@pytest.mark.parametrize(("limit_mb", "whole_bytes"), [(0, 48 * GIB), (57_344, 56 * GIB), (20_480, 20 * GIB)])
def test_a_persons_own_limit_counts(monkeypatch, limit_mb, whole_bytes):
    """Law: one figure for all: what Metal recommends, or the limit that a person has set, up or down, is the node's
    budget and what is shared out. The keys of the configuration still bound it."""
    mac = ScriptedMac(64, wired_limit_mb=limit_mb).start(monkeypatch)
    sample = MacosSensor(mac, read_working_set).read(0)
    assert MonitorSettings().budget_of(sample.total_bytes, sample.working_set_bytes) == whole_bytes
    for settings, most_bytes in (
        (MonitorSettings(), whole_bytes),
        (MonitorSettings(budget_bytes=GIB), GIB),
        (MonitorSettings(budget_bytes=90 * GIB), whole_bytes),
        (MonitorSettings(budget_share=0.25), 16 * GIB),
    ):
        room = find_room(MemoryPlan(settings=settings), "fast")
        assert room.working_set_bytes == most_bytes
    assert MonitorSettings(budget_bytes=GIB).budget_of(sample.total_bytes, sample.working_set_bytes) == GIB
    assert MonitorSettings(budget_share=0.5).budget_of(sample.total_bytes, sample.working_set_bytes) == 32 * GIB


def test_the_parts_of_all_tiers_are_the_working_set(folder, monkeypatch):
    """Law: three tiers that start one after the other, or at once, have together no more than the working set, each at
    least what it needs, and each wires its own part and no more."""
    mac = ScriptedMac(48, 8.0).start(monkeypatch)
    needs = tuple(
        TierNeed(name=name, replica_bytes=gib * GIB, replicas_min=0, replicas_max=1, local=gib > 0)
        for name, gib in (("fast", 7), ("standard", 12), ("longctx", 11), ("premium", 0))
    )
    plan = MemoryPlan(settings=MonitorSettings(), needs=needs)
    rooms = [find_room(plan, name) for name in ("fast", "standard", "longctx")]
    parts = [room.share_bytes() for room in rooms if room is not None]
    assert parts == [9 * GIB, 14 * GIB, 13 * GIB]
    for room in rooms:
        start(folder, Size(4 * GIB, 65_536, 262_144), monkeypatch, room=room)
    assert sum(mac.wired) <= mac.working_set == 36 * GIB
    assert mac.wired == parts


def test_tiers_that_never_fit_together_have_their_needs(monkeypatch):
    """Law: where the needs alone are more than the working set, no tier has more than its need: the leases decide which
    are awake. A tier whose need isn't known yet has what the others leave."""
    ScriptedMac(16).start(monkeypatch)
    needs = (
        TierNeed(name="fast", replica_bytes=4 * GIB, replicas_min=1, replicas_max=1),
        TierNeed(name="standard", replica_bytes=8 * GIB, replicas_min=0, replicas_max=1),
        TierNeed(name="mine", replica_bytes=None, replicas_min=1, replicas_max=1),
    )
    plan = MemoryPlan(settings=MonitorSettings(), needs=needs)
    known = [find_room(plan, name) for name in ("fast", "standard")]
    assert [room and room.share_bytes() for room in known] == [4 * GIB, 8 * GIB]
    fits = MemoryPlan(settings=MonitorSettings(), needs=(needs[0], needs[2]))
    mine = find_room(fits, "mine")
    assert mine.most_bytes == 10_922 * MIB - 4 * GIB
    assert mine.share_bytes(5 * GIB) == 5 * GIB + (mine.most_bytes - 5 * GIB) // 2


@pytest.mark.parametrize(
    ("memory_gib", "needs_gib", "level", "words"),
    [
        (64, (7, 20), "ok", "27.0 GiB needed for the tiers' weights and 32,768 tokens of context each, 48.0 GiB"),
        (16, (7, 8), "warn", "the tiers can't all be awake at the same time"),
        (16, (7, 20), "fail", "too few for standard; name a smaller model"),
    ],
)
def test_the_doctor_counts_with_the_same_figure(monkeypatch, memory_gib, needs_gib, level, words):
    """Law: the doctor compares what the tiers need with what Metal may use, and says who is left out."""
    ScriptedMac(memory_gib).start(monkeypatch)
    tiers = {
        name: {"kind": "mlx", "model": "path:/absent", "replica_bytes": gib * GIB}
        for name, gib in zip(("fast", "standard"), needs_gib, strict=True)
    }
    chain = {"reliability": {"escalation": {"chain": list(tiers)}}}
    *_, found = doctor._check_models(AppConfig.model_validate({"tiers": tiers, **chain}))
    assert (found.level, found.what) == (level, "memory")
    assert words in found.words


def test_without_metal_free_memory_counts(folder, monkeypatch):
    """Law: elsewhere there is no room to share out, and a tier looks at what is free, as ever."""
    assert find_room_alone() is None
    assert find_room(MemoryPlan(settings=MonitorSettings()), "fast") is None
    assert MonitorSettings().budget_of(100, None) == 75
    with pytest.raises(ModelUnavailable, match=r"too little memory: the model needs .* GiB are available"):
        start(folder, Size(1 << 50, 1, 64), monkeypatch)
