"""Tiers that sleep: what becomes of the request that finds one without a replica.

    asleep ──a request──▶ waking ──model loaded──▶ awake ──no request for `idle_s`──▶ asleep

With `min_replicas: 0` a tier has no replica, and holds no memory, until somebody asks it. Serve starts one for any call
that waits, so whoever finds the tier asleep wakes it, and then there are two ways (`tiers.NAME.asleep`):

    next   it is no candidate this time: the request goes on along the chain, and the tier wakes behind its back
    wait   the request waits for it, up to `wake_s`; a stream gets its keep-alives meanwhile

Unset, it is `next` where a local tier that is awake and well follows in the chain, else `wait`. A model takes from a
second to minutes to load: an answer now, from a tier that the chain trusts anyway, is worth more to an agent than the
same tier's answer later. But a request never leaves the machine, and is never refused, only because a model sleeps.

Who is asleep is known in this process without asking (`HandleTier.awake`): a question would wake the tier. What must
never happen: a status, a health check or `/ready` that wakes one, or that keeps one awake.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from deployments.config import AppConfig
from deployments.config_tiers import TierBase, Timeouts
from deployments.graph.handle import ASLEEP
from deployments.ports import Tier
from reliability.types import ChatRequest, Event, Failed, Fault, TierState, TierStatus

__all__ = ["Asleep", "PassedTier", "Sleeper", "asleep_in", "asleep_status", "passed", "patient", "sleepers_of"]

Asleep = Mapping[str, Literal["wait", "next"]]
RETRY_S = 5.0


class Sleeper(Tier, Protocol):
    """A tier that may have nobody awake."""

    @property
    def awake(self) -> bool:
        """Whether a replica takes requests."""
        ...

    def wake(self) -> None:
        """Start one; returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class PassedTier:
    """Stands in for a tier that is asleep, where the request is not to wait for it."""

    name: str
    sleeper: Sleeper

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Wake the tier and say that it is no candidate now."""
        self.sleeper.wake()
        message = f"tier {self.name} was asleep and is waking up"
        yield [Failed(fault=Fault.LOADING, message=message, retry_after_s=RETRY_S)]

    async def status(self) -> TierStatus:
        """The tier's own."""
        return await self.sleeper.status()

    async def close(self) -> None:
        """Nothing to free."""


def sleepers_of(tiers: Mapping[str, TierBase]) -> dict[str, TierBase]:
    """The tiers that may sleep."""
    return {name: tier for name, tier in tiers.items() if tier.min_replicas == 0}


def asleep_status(name: str, config: AppConfig) -> TierStatus | None:
    """What a tier that may sleep says of itself before it has ever been awake; None for one that never sleeps."""
    tier = config.tiers[name]
    if tier.min_replicas:
        return None
    return TierStatus(
        name=name,
        kind=tier.kind,
        state=TierState.ASLEEP,
        reason=ASLEEP,
        model=getattr(tier, "model", None),
        context_tokens=tier.context_tokens,
    )


def asleep_in(
    chain: Sequence[str],
    sleepers: Mapping[str, TierBase],
    tiers: Mapping[str, Sleeper],
    stands_in: Callable[[str], bool],
) -> Asleep:
    """What this request does about each tier of its chain that is asleep now. `stands_in`: whether a tier is local,
    awake and well."""
    found: dict[str, Literal["wait", "next"]] = {}
    for place, name in enumerate(chain):
        if name in sleepers and not tiers[name].awake:
            unset: Literal["wait", "next"] = "next" if any(map(stands_in, chain[place + 1 :])) else "wait"
            found[name] = sleepers[name].asleep or unset
    return found


def passed(asleep: Asleep, tiers: Mapping[str, Sleeper]) -> dict[str, PassedTier]:
    """In place of the tiers that are passed by."""
    return {name: PassedTier(name, tiers[name]) for name, way in asleep.items() if way == "next"}


def patient(asleep: Asleep, sleepers: Mapping[str, TierBase], timeouts: Mapping[str, Timeouts]) -> dict[str, Timeouts]:
    """The timeouts of the tiers that are waited for: the time until a replica takes the request is that of waking."""
    return {
        name: timeouts[name].model_copy(update={"connect_s": sleepers[name].wake_s})
        for name, way in asleep.items()
        if way == "wait"
    }
