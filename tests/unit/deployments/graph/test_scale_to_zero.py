"""Which tiers of a chain are asleep, and what a request does about it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.app_config import AppConfig, ServerConfig, load
from deployments.config.tier_config import ScriptedTierConfig, Timeouts
from deployments.graph import scale_to_zero
from deployments.graph.handle import UnavailableTier
from deployments.graph.scale_to_zero import bypass_cold, find_cold, let_auto_sleep, make_cold_status
from deployments.models.catalog import ModelChoice, choose
from deployments.models.presence import _Presence
from reliability.types import Fault, TierState, TierStatus
from tests.support.tier_asking import ask


class Napping:
    """A tier of which only its sleep is known."""

    def __init__(self, warm: bool, absent: TierStatus | None = None) -> None:
        self.warm, self.absent, self.known = warm, absent, absent


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
    found = find_cold(chain, configs, tiers, stands.__contains__)

    assert set(found) == {name for name in chain if not tiers[name].warm}
    for name, way in found.items():
        later = set(chain[chain.index(name) + 1 :])
        assert way == (configs[name].asleep or ("next" if later & stands else "wait"))


def test_a_tier_without_its_model_is_passed_by_and_says_why() -> None:
    """Law: a request neither waits for a model that isn't on this machine nor starts a replica for it: it gets the
    tier's own reason, with a time to come back where the model is on its way."""
    for state, fault in ((TierState.LOADING, Fault.LOADING), (TierState.UNAVAILABLE, Fault.UNAVAILABLE)):
        known = TierStatus(name="t", kind="mlx", state=state, reason="43 % of 491 MB")
        tiers: Mapping[str, Any] = {"t": Napping(False, known)}
        scalable = {"t": ScriptedTierConfig(kind="scripted", script=[], min_replicas=0, asleep="wait")}
        cold = find_cold(["t"], scalable, tiers, lambda _: True)
        stand_in = bypass_cold(cold, tiers)["t"]
        assert cold == {"t": "absent"}
        assert isinstance(stand_in, UnavailableTier)
        failed = asyncio.run(first_event(stand_in))
        assert (failed.fault, failed.retry_after_s is not None) == (fault, fault is Fault.LOADING)
        assert "43 % of 491 MB" in failed.message


def test_a_tier_that_is_not_waited_for_is_started() -> None:
    """Law: a request that goes on along the chain starts the sleeping tier and says so; asking starts it, nothing
    else."""
    woken: list[int] = []
    sleeper: Any = Napping(False)
    sleeper.known = TierStatus(name="t", kind="mlx", state=TierState.ASLEEP)
    sleeper.start_replica = lambda: woken.append(1)
    stand_in = bypass_cold({"t": "next"}, {"t": sleeper})["t"]
    assert woken == []
    failed = asyncio.run(first_event(stand_in))
    assert (failed.fault, failed.message) == (Fault.LOADING, "tier t was asleep and is waking up")
    assert failed.retry_after_s is not None
    assert woken == [1]
    assert bypass_cold({"t": "wait"}, {"t": sleeper}) == {}


async def first_event(tier: UnavailableTier) -> Any:
    (event,) = [event async for events in tier.stream(ask()) for event in events]
    return event


AUTO = {"kind": "mlx", "model": "auto"}


def config_of(**tiers: Any) -> AppConfig:
    return load({"tiers": tiers, "reliability": {"escalation": {"chain": list(tiers)}}})


def choose_on(system: str, machine: str) -> Any:
    def choose_there(role: str, model: str) -> ModelChoice:
        return choose(role, system, machine, 64 << 30) if model == "auto" else ModelChoice(model, "as configured")

    return choose_there


def test_auto_sleeps_where_its_model_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: `standard` and `longctx` of `auto` have `min_replicas: 0`, unless they say otherwise or name a model of
    their own, and time for a long prompt, unless somebody has set timeouts; `fast` stays up. Apple silicon is no
    exception."""
    config = config_of(fast=AUTO, standard=AUTO, longctx=AUTO)
    monkeypatch.setattr(scale_to_zero, "choose_here", choose_on("darwin", "arm64"))
    assert [tier.min_replicas for tier in let_auto_sleep(config).tiers.values()] == [1, 0, 0]
    monkeypatch.setattr(scale_to_zero, "choose_here", choose_on("linux", "x86_64"))
    settled = let_auto_sleep(config).tiers
    assert [tier.min_replicas for tier in settled.values()] == [1, 0, 0]
    assert [tier.timeouts and tier.timeouts.first_token_s for tier in settled.values()] == [None, 600.0, 600.0]
    strict = config.model_copy(update={"server": ServerConfig(timeouts=Timeouts(first_token_s=9))})
    assert [tier.timeouts for tier in let_auto_sleep(strict).tiers.values()] == [None, None, None]
    own = config_of(fast=AUTO, standard=AUTO | {"min_replicas": 1}, longctx={"kind": "mlx", "model": "path:m"})
    assert let_auto_sleep(own) is own


@pytest.mark.parametrize(
    ("found", "state"), [("here", TierState.ASLEEP), ("coming", TierState.LOADING), ("missing", TierState.UNAVAILABLE)]
)
def test_the_status_of_a_sleeping_tier_knows_its_model(
    monkeypatch: pytest.MonkeyPatch, found: Literal["here", "coming", "missing"], state: TierState
) -> None:
    """Law: while nobody runs the tier, `/ready` says whether its model is here, how far it is, or why it is missing;
    its context is known all the same. One that never sleeps has no such status."""
    monkeypatch.setattr(scale_to_zero, "choose_here", choose_on("linux", "x86_64"))
    monkeypatch.setattr(scale_to_zero, "look", lambda *_: _Presence(found, "words"))
    config = let_auto_sleep(config_of(fast=AUTO, standard=AUTO))
    look_up = make_cold_status("standard", config)
    status = look_up()
    assert (status.state, status.context_tokens) == (state, 32_768)
    assert (status.reason == "words") is (found != "here")
    assert make_cold_status("fast", config) is None


KEYED = {"kind": "hosted", "preset": "openrouter"}


def test_a_hosted_tier_without_its_key_has_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: without its key a hosted tier has no replica, unless it says otherwise, and its status says what is missing,
    as a replica's would; with the key, and without needing one, it is up."""
    here = {"kind": "hosted", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    config = config_of(premium=KEYED, own=KEYED | {"min_replicas": 1}, here=here)
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    settled = let_auto_sleep(config)
    look_up = make_cold_status("premium", settled)

    assert [tier.min_replicas for tier in settled.tiers.values()] == [0, 1, 1]
    assert (look_up().state, look_up().reason) == (TierState.UNAVAILABLE, "OPENROUTER_API_KEY is not set")
    assert make_cold_status("here", settled) is None
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    assert let_auto_sleep(config) is config
