"""The state as a Router replica sees it: one hub and, with `state.shards` over 1, the shard of each session.

`State` belongs to the replica and holds the links; `RequestState` belongs to one request and is its `Admission` port.
In the sharded layout a call is admitted twice, side by side: by the hub (breakers, hours, retries) and by the session's
shard (session budget, loop window). Where one of them bars, the other's grant goes back unused.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

from deployments.config import ConfigError, StateConfig
from deployments.state.actor import SessionState
from deployments.state.carry import part_of
from deployments.state.journal import SCHEMA_VERSION, Bounds
from deployments.state.link import Actor, Link
from deployments.state.near import NearActor
from deployments.state.records import (
    RETRY_AFTER_S_MAX,
    Answer,
    Asked,
    Charged,
    Done,
    Health,
    Item,
    Noted,
    Progressed,
    Query,
    Said,
    Settled,
    StateLimits,
)
from reliability.admission import Ask, Barred, Grant
from reliability.loops import Window
from reliability.types import Usage, Verdict

__all__ = ["NAMESPACE", "RequestState", "State", "actor_name", "bounds_of", "folder_of", "ray_finder", "state_folder"]

NAMESPACE = "mlx-stack-serve"
NS_PER_S = 1_000_000_000
START_S = 15.0
MADE_S = 15.0  # a new actor replays its journal first; who waits longer asks again
# Ray's name for the head node: the journal is a file, so an actor that restarts elsewhere would find it gone.
HEAD = {"node:__internal_head__": 0.001}


class State:
    """All links of one Router replica. `find` is the way to an actor by its layout."""

    def __init__(
        self, shards: int, find: Callable[[str], Awaitable[Actor]], hub: StateLimits, shard: StateLimits
    ) -> None:
        layouts = [f"{part}-of-{shards}" for part in range(shards)] if shards > 1 else []
        name = "hub" if layouts else "whole"
        self.hub = Link(name, lambda: find(name), hub)
        self.shards = [Link(layout, _finder(find, layout), shard) for layout in layouts]

    @property
    def links(self) -> list[Link]:
        """The hub first."""
        return [self.hub, *self.shards]

    @property
    def health(self) -> Mapping[str, Health]:
        """The tiers' breakers, as of the last answer: at most about a second old while the actor is up."""
        return self.hub.health

    async def start(self) -> None:
        """Find or make the actors; wait a while for them."""
        await asyncio.gather(*(link.start(START_S) for link in self.links))

    async def close(self) -> None:
        """Hand over what is left and stop."""
        await asyncio.gather(*(link.close() for link in self.links))

    def limit(self, hub: StateLimits, shard: StateLimits) -> None:
        """New limits, from the next step on."""
        self.hub.limits = hub
        for link in self.shards:
            link.limits = shard

    def session_link(self, key: str, session: str) -> Link:
        """The link to whom the session's own books belong."""
        return self.shards[part_of(key, session, len(self.shards))] if self.shards else self.hub

    def request(self, *, key: str, session: str, request_id: str, window: bool = False) -> RequestState:
        """The port of one request. `window`: bring the session's loop window with the first grant."""
        shard = self.session_link(key, session) if self.shards else None
        return RequestState(self.hub, shard, key=key, session=session, request_id=request_id, window=window)

    def note(self, incident: Mapping[str, Any]) -> None:
        """Hand over an incident that belongs to no request."""
        self.hub.put(Noted(incident=incident), flush=True)

    # -- questions and orders: each raises StateSilent ---------------------------------------------------------

    async def report(self, key: str | None, request_id: str) -> dict[str, Any] | None:
        """The report of one request."""
        found: dict[str, Any] | None = await self.hub.call("report", key, request_id)
        return found

    async def session(self, key: str | None, session: str) -> dict[str, Any] | None:
        """What one session has done, spent and reserved."""
        known: dict[str, Any] | None = await self.hub.call("session", key, session)
        owner = known["key"] if known else key
        if owner is None:  # no request of it has ended yet: it may be running, or its Router has died with it
            owner = await self.hub.call("owner", session)
        if owner is None:
            return None
        books = await self.session_link(owner, session).call("budget", owner, session)
        if known is None and not books["spent_tokens"] and not books["open_calls"]:
            return None
        return {"session": session, "key": owner, **(known or {}), **books}

    async def incidents(self, query: Query) -> list[dict[str, Any]]:
        """The newest incidents that match."""
        found: list[dict[str, Any]] = await self.hub.call("incidents", query)
        return found

    async def isolate(self, tier: str) -> None:
        """Keep all calls off a tier."""
        await self.hub.call("isolate", tier)

    async def restore(self, tier: str) -> None:
        """Lift the hold."""
        await self.hub.call("restore", tier)

    async def close_breaker(self, tier: str) -> None:
        """Let calls to a tier through again at once."""
        await self.hub.call("close_breaker", tier)

    async def reset(self, key: str, session: str) -> None:
        """Forget what a session has spent."""
        await asyncio.gather(
            *(link.call("reset", key, session) for link in {self.hub, self.session_link(key, session)})
        )

    async def stats(self) -> list[dict[str, Any]]:
        """What each actor holds."""
        return list(await asyncio.gather(*(link.call("stats") for link in self.links)))


class RequestState:
    """Implements `deployments.ports.Admission` for one request."""

    def __init__(self, hub: Link, shard: Link | None, *, key: str, session: str, request_id: str, window: bool) -> None:
        self.window: Window | None = None
        self._hub, self._shard = hub, shard
        self._key, self._session, self._request_id = key, session, request_id
        self._wants_window = window
        self._at_shard: dict[str, Grant] = {}

    async def admit(self, ask: Ask) -> Grant | Barred:
        """As the protocol. Raises `StateSilent` at once where the actor is away and the tier costs nothing."""
        asked = Asked(ask=ask, request_id=self._request_id, window=self._wants_window)
        if self._shard is None:
            return self._taken(await self._hub.ask(asked))
        hub, shard = await _both(self._hub.ask(replace(asked, window=False)), self._shard.ask(asked), self._give_back)
        return self._joined(hub.decision, self._taken(shard))

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        """As the protocol. A failure is sent at once, since other requests should know; the rest goes with what the
        request says next."""
        # In this order `max` also makes nothing of what is no number.
        wait_s = min(max(0.0, retry_after_s or 0.0), RETRY_AFTER_S_MAX)
        item = self._settled(grant, verdict, usage, int(wait_s * NS_PER_S))
        self._hub.put(item, flush=verdict is Verdict.FAILURE)
        twin = self._at_shard.pop(grant.id, None)
        if twin is not None and self._shard is not None:
            self._shard.put(self._settled(twin, verdict, usage), flush=True)

    def progress(self, grant: Grant, usage: Usage) -> None:
        """As the protocol."""
        self._hub.progress(Progressed(grant_id=grant.id, tokens=usage.total_tokens))
        twin = self._at_shard.get(grant.id)
        if twin is not None and self._shard is not None:
            self._shard.progress(Progressed(grant_id=twin.id, tokens=usage.total_tokens))

    def charge(self, usage: Usage) -> None:
        """As the protocol."""
        for link in self._owners():
            link.put(Charged(key=self._key, session=self._session, tokens=usage.total_tokens), flush=False)

    def done(self, report: Mapping[str, Any], incidents: Iterable[Mapping[str, Any]], said: Said | None) -> None:
        """The request has ended."""
        if said is not None:
            (self._shard or self._hub).put(said, flush=self._shard is not None)
        item = Done(key=self._key, session=self._session, report=report, incidents=tuple(incidents))
        self._hub.put(item, flush=True)

    def _taken(self, answer: Answer) -> Grant | Barred:
        if answer.window is not None:
            self.window, self._wants_window = answer.window, False
        return answer.decision

    def _joined(self, hub: Grant | Barred, shard: Grant | Barred) -> Grant | Barred:
        if isinstance(hub, Grant) and isinstance(shard, Grant):
            self._at_shard[hub.id] = shard
            loads = {load.window: load for load in (*hub.warnings, *shard.warnings)}
            cap, capped = min(hub.output_cap, shard.output_cap), hub.capped or shard.capped
            return replace(hub, warnings=tuple(loads.values()), output_cap=cap, capped=capped)
        if isinstance(hub, Grant):
            self._hub.put(self._settled(hub, Verdict.IGNORED, Usage()), flush=True)
            return shard
        if isinstance(shard, Grant):
            if self._shard is not None:
                self._shard.put(self._settled(shard, Verdict.IGNORED, Usage()), flush=True)
            return hub
        # Where both bar, what no waiting mends is what the client must hear.
        return shard if shard.retry_after_s is None else hub

    def _give_back(self, answer: Answer) -> None:
        """One of the two answered and the other didn't: what it granted goes back."""
        if isinstance(answer.decision, Grant):
            for link in self._owners():
                # Names are unique over all lives of all actors, and an unknown one changes nothing.
                link.put(self._settled(answer.decision, Verdict.IGNORED, Usage()), flush=True)

    def _settled(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_ns: int = 0) -> Item:
        return Settled(
            grant_id=grant.id,
            verdict=verdict,
            usage=usage,
            retry_after_ns=retry_after_ns,
            request_id=self._request_id,
            session=self._session,
            key=self._key,
        )

    def _owners(self) -> list[Link]:
        return [self._hub] if self._shard is None else [self._hub, self._shard]


async def _both(first: Any, second: Any, give_back: Callable[[Answer], None]) -> tuple[Answer, Answer]:
    """Both answers. Where one fails, or the caller leaves, the other's answer is given back."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
            # Not awaited here: a caller that is cancelled once more would lose the answers on the way.
            task.add_done_callback(functools.partial(_unused, give_back))
        raise
    return tasks[0].result(), tasks[1].result()


def _unused(give_back: Callable[[Answer], None], task: asyncio.Future[Answer]) -> None:
    if not task.cancelled() and task.exception() is None:
        give_back(task.result())


def _finder(find: Callable[[str], Awaitable[Actor]], layout: str) -> Callable[[], Awaitable[Actor]]:
    return lambda: find(layout)


# -- Ray -------------------------------------------------------------------------------------------------------


class RayActor:
    """A Ray actor handle as `Actor`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def call(self, method: str, *args: Any) -> Any:
        """Send the call; the reference is awaited by the caller."""
        return getattr(self._handle, method).remote(*args)

    def close(self) -> None:
        """Ray keeps nothing open for it."""


@functools.cache
def _made() -> Any:
    """Ray's class for the actor: each call of `ray.remote` makes a new one, which is never freed."""
    return ray.remote(SessionState)


def actor_name(app: str, layout: str) -> str:
    """The actor's name in Ray. It carries the version: an actor of older code is not found, and gives way."""
    return f"SessionState:{app}:{layout}:{version('mlx-stack-serve')}-{SCHEMA_VERSION}"


def ray_finder(app: str, config: StateConfig) -> Callable[[str], Awaitable[Actor]]:
    """How to find the actor of a layout, or make it: on a thread, since Ray waits for its answer there."""
    folder, bounds = folder_of(app, config), bounds_of(config)

    def found(layout: str) -> Actor:
        maker = _made().options(
            name=actor_name(app, layout),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=0,
            num_cpus=0,
            resources=HEAD,
        )
        made = maker.remote(folder=str(folder), layout=layout, bounds=bounds, windows_max=config.sessions_max)
        node, path = ray.get(made.near.remote(), timeout=MADE_S)
        here = path and node == ray.get_runtime_context().get_node_id()
        return NearActor(RayActor(made), path) if here else RayActor(made)

    async def find(layout: str) -> Actor:
        return await asyncio.to_thread(found, layout)

    return find


def bounds_of(config: StateConfig) -> Bounds:
    """The configured bounds of a journal."""
    return Bounds(
        reports_max=config.reports_max,
        incidents_max=config.incidents_max,
        incidents_days=config.incidents_days,
        sessions_max=config.sessions_max,
        session_ttl_s=config.session_ttl_s,
        bytes_max=config.journal_bytes_max,
    )


def folder_of(app: str, config: StateConfig) -> Path:
    """Where an app's journals are.

    Raises:
        ConfigError: they would be in a home directory that isn't known.
    """
    try:
        return Path(config.path).expanduser() if config.path else state_folder(app)
    except RuntimeError:  # `~` of nobody on this machine, or a user without a home
        raise ConfigError("state.path: its home directory isn't known; name another folder") from None


def state_folder(app: str) -> Path:
    """Where an app's journals are by default: the user's state directory, as the platform has it."""
    if os.environ.get("XDG_STATE_HOME"):
        root = Path(os.environ["XDG_STATE_HOME"])
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Application Support"
    else:
        root = Path.home() / ".local" / "state"
    return root / "mlx-stack-serve" / (app or "default")
