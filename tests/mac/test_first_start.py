"""The first start of a person's server on a Mac: what is fetched when, and what the terminal and `/ready` say of it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.cli import prepare
from deployments.config.tier_config import MlxTierConfig
from deployments.graph import replica
from deployments.graph.replica import TierReplica
from deployments.graph.scale_to_zero import make_cold_status
from deployments.memory.plan import MemoryPlan, MonitorSettings
from deployments.models import cache_folder, downloads, hub, needs
from deployments.models.artifact import Artifact
from deployments.models.catalog import ROLES, choose_here, weight_bytes_of
from deployments.models.sources import ModelSource, parse_source
from reliability.types import TierState
from tests.mac.assumptions import GIB
from tests.mac.engines import settle
from tests.mac.scripted_mac import ScriptedMac

AUTO = [(role, "auto") for role in ROLES]


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """The sources that are fetched, each of which can be had; nothing is there before."""
    sources: list[str] = []

    def resolve(source: ModelSource, **_: Any) -> Artifact:
        sources.append(source.text)
        return Artifact(
            path=tmp_path, source=source.text, revision=None, sha256=None, weight_bytes=1, quantization=None,
            context_tokens=None,
        )  # fmt: skip

    monkeypatch.setattr(prepare, "resolve", resolve)
    monkeypatch.setattr(prepare.os, "nice", lambda _: 0)
    monkeypatch.setattr(hub, "find_complete", lambda _: None)
    monkeypatch.setattr(cache_folder, "default_cache_dir", lambda: tmp_path)
    return sources


@pytest.mark.parametrize("memory_gib", [8, 16, 24, 48, 96, 192, 512])
def test_one_small_model_is_fetched_before_the_first_answer(fetched, monkeypatch, capsys, memory_gib):
    """Law: on every Mac the start fetches the first tier's model and no other, at most 5 GB, and says its size and time
    before. Behind the server comes the second at most; the largest never by itself."""
    ScriptedMac(memory_gib).start(monkeypatch)
    assert prepare.prepare(AUTO) == 0
    said = capsys.readouterr().out
    assert fetched == [choose_here("fast", "auto").source]
    assert (weight_bytes_of(fetched[0]) or 0) <= 5e9
    assert "GB to fetch: about" in said
    assert "Ctrl-C loses nothing that has arrived" in said
    fetched.clear()
    assert prepare.fetch_in_background(AUTO, environ={}) == 0
    assert fetched == ([choose_here("standard", "auto").source] if memory_gib >= 16 else [])


def test_sleeping_tiers_say_where_their_models_are(fetched, tmp_path, monkeypatch):
    """Law: on a Mac of 16 GB `standard` sleeps, and `/ready` says in turn: not here, how far it is, asleep; `longctx`
    says from which machine on there is room for it."""
    ScriptedMac(16).start(monkeypatch)
    config = settle()
    assert [tier.min_replicas for tier in config.tiers.values()] == [1, 0, 0]
    look_up, left_out = (make_cold_status(name, config) for name in ("standard", "longctx"))
    assert left_out is not None
    assert look_up().state is TierState.UNAVAILABLE
    assert "fetches it once it can answer" in look_up().reason
    source = parse_source(choose_here("standard", "auto").source)
    name = hub.name_fetch(source)
    with cache_folder.hold(tmp_path / "models", name), downloads.tell(tmp_path, name, lambda _: None) as say:
        say("43 % of 6.0 GB")
        status = look_up()
        assert (status.state, status.reason) == (TierState.LOADING, "43 % of 6.0 GB")
    monkeypatch.setattr(hub, "find_complete", lambda _: tmp_path)
    assert look_up().state is TierState.ASLEEP
    assert left_out().state is TierState.UNAVAILABLE
    assert "on machines of 48 GiB of memory and more, this one has 16" in left_out().reason


class Lease:
    """Grants what is asked, and notes it."""

    def __init__(self) -> None:
        self.wanted: list[int | None] = []

    async def hold(self, wanted_bytes: int | None) -> str:
        self.wanted.append(wanted_bytes)
        return ""


class Replica(TierReplica):
    """Serve awaits a replica's `__del__`; nothing does here."""

    def __del__(self) -> None:  # type: ignore[override]
        pass


def test_a_replica_leases_its_part_and_gives_it_to_its_engine(fetched, monkeypatch):
    """Law: what a tier leases is what its engine may use, and the leases of all tiers together fit the node's budget;
    a person's own figure is leased as it is."""
    mac = ScriptedMac(64).start(monkeypatch)
    monkeypatch.setattr(needs, "find_on_disk", lambda _: None)
    monkeypatch.setattr(replica, "bind_to_node", lambda: None)
    monkeypatch.setattr(replica, "hush", lambda _: None)
    lease = Lease()
    here = SimpleNamespace(app_name="app", replica_id=SimpleNamespace(unique_id="r"))
    monkeypatch.setattr(replica.serve, "get_replica_context", lambda: here)
    monkeypatch.setattr(replica, "ReplicaLease", lambda *_: lease)
    rooms: list[Any] = []
    monkeypatch.setattr(replica, "make_tier", lambda name, config, cloud, room: rooms.append(room))
    config = settle()
    plan = MemoryPlan(settings=MonitorSettings(), needs=needs.tier_needs(config))

    async def start(name: str, tier: Any) -> None:
        made = Replica.__new__(Replica)
        await made.__init__(name, tier, config.reliability.escalation.cloud_fallback, plan)  # type: ignore[misc]

    for name, tier in config.tiers.items():
        asyncio.run(start(name, tier))
    assert lease.wanted == [room.share_bytes() for room in rooms]
    assert sum(wanted or 0 for wanted in lease.wanted) <= mac.working_set
    asyncio.run(start("fast", MlxTierConfig(kind="mlx", replica_bytes=5 * GIB)))
    asyncio.run(start("fast", MlxTierConfig(kind="mlx", memory_bytes=6 * GIB)))
    assert lease.wanted[3:] == [5 * GIB, 6 * GIB]
