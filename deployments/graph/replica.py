"""TierReplica: what a tier's Ray Serve deployment runs. It owns one tier and adds what only a replica needs.

The constructor never raises for a missing package, model or key (Serve would give the deployment up after three): the
tier's status reports it. Before anything is loaded the replica waits for its lease of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve._private import replica as serve_replica

from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, ScriptedTierConfig, TierBase
from deployments.graph.handle import UnavailableTier
from deployments.graph.reconfigure import apply_change, patch_tier
from deployments.memory.lease import ReplicaLease
from deployments.memory.plan import MemoryPlan
from deployments.memory.room import Room, find_room
from deployments.models.needs import replica_bytes
from deployments.request.interfaces import Tier
from deployments.telemetry import hush, log_error
from deployments.work.large_work import collect_less
from reliability.config import CloudFallback
from reliability.memory.pressure import Level
from reliability.types import ChatRequest, Event, Failed, Fault, TierState, TierStatus

if TYPE_CHECKING:
    from deployments.tiers.hosted.hosted_tier import HostedTier

_IDLE_NET_S = 3600.0
_ALL = "[::]:"


def make_tier(name: str, config: TierBase, cloud: CloudFallback, room: Room | None = None) -> Tier:
    """Make the tier that `config` describes. Cheap; raises nothing. `room`: on a Mac, what it may use of it."""
    match config:
        case MlxTierConfig():
            from deployments.tiers.mlx.mlx_tier import MlxTier

            keys = {*MlxTierConfig.__annotations__, "context_tokens"} - {"kind"}  # each is an argument of this name
            return MlxTier(name=name, room=room, **config.model_dump(include=keys))
        case HostedTierConfig():
            return make_hosted(name, config, cloud)
        case ScriptedTierConfig():
            from deployments.tiers.scripted.scripted_tier import ScriptedTier

            return ScriptedTier(name=name, script=config.script, seed=config.seed, context_tokens=config.context_tokens)
    raise AssertionError(f"no tier kind for {type(config).__name__}")


def make_hosted(name: str, config: HostedTierConfig, cloud: CloudFallback) -> HostedTier:
    """Make a hosted tier."""
    from deployments.tiers.hosted.hosted_tier import OPENROUTER_HEADERS, OPENROUTER_URL, HostedTier

    # A preset is the cloud fallback's provider: what the tier doesn't say itself comes from there.
    has_preset = config.preset is not None
    return HostedTier(
        name=name,
        base_url=config.base_url or (OPENROUTER_URL if has_preset else ""),
        model=config.model or cloud.model,
        api_key_env=config.api_key_env or (cloud.api_key_env if has_preset else None),
        headers={**(OPENROUTER_HEADERS if has_preset else {}), **config.headers},
        context_tokens=config.context_tokens,
        openrouter=has_preset,
        continues=config.continues,
        # `drive` bounds silence, by the tier's or the server's timeouts; this is only a net below them.
        idle_s=_IDLE_NET_S,
    )


class TierReplica:
    """One replica of one tier. `user_config` is a patch to the tier's entry in `args`. Without `memory` there are no
    leases."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, name: str, config: TierBase, cloud: CloudFallback, memory: MemoryPlan | None = None
    ) -> None:
        bind_to_node()
        hush("CALL status OK")  # the Router asks every few seconds
        self.name = name
        self._base = config
        self._config = config
        self._cloud = cloud
        self._configured = False
        self._refused_patch: str | None = None
        self._memory = memory
        self._lease: ReplicaLease | None = None
        if memory and not isinstance(config, HostedTierConfig):
            context = serve.get_replica_context()
            at = (context.app_name, name, context.replica_id.unique_id)
            self._lease = ReplicaLease(memory, *at, self._observe_level)
        self._tier = await self._make(config)
        wait_for_load = getattr(self._tier, "wait_for_load", None)
        if wait_for_load is not None and config.min_replicas == 0:
            await wait_for_load(config.wake_s)
        if isinstance(config, HostedTierConfig):
            collect_less()  # where a model runs, a forgotten cycle may hold a prompt's cache: it goes early there

    def _observe_level(self, level: Level) -> None:
        """Keep nothing that could be computed anew where the node's level is critical."""
        trim = getattr(getattr(self, "_tier", None), "trim", None)
        if level is Level.CRITICAL and trim is not None:
            trim()

    async def _make(self, config: TierBase) -> Tier:
        room = None
        if self._lease is not None:
            wanted_bytes = await asyncio.to_thread(replica_bytes, self.name, config)
            if isinstance(config, MlxTierConfig) and self._memory is not None:
                room = await asyncio.to_thread(find_room, self._memory, self.name)
                if room is not None and wanted_bytes and config.replica_bytes is config.memory_bytes is None:
                    wanted_bytes = max(wanted_bytes, room.share_bytes())
            refused = await self._lease.hold(wanted_bytes)
            if refused:
                kind, why = getattr(config, "kind", ""), f"memory: {refused}"
                status = TierStatus(name=self.name, kind=kind, state=TierState.UNAVAILABLE, reason=why)
                return UnavailableTier(status)
        return make_tier(self.name, config, self._cloud, room)

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Apply a changed `user_config`. The old tier is freed before the new one is made: two models may not fit."""
        merge, first = partial(patch_tier, self._base), not self._configured
        config, self._refused_patch = apply_change(merge, user_config, self._config, first=first, at=self.name)
        self._configured = True
        if config != self._config:
            await self._tier.close()
            self._tier, self._config = await self._make(config), config

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer as a `Tier`. A bug inside the tier is this request's fault event, and a line in the log."""
        if request.route and not isinstance(self._config, HostedTierConfig):
            yield [Failed(fault=Fault.UNSUPPORTED, message=f"tier {self.name} has no {request.route}", param="model")]
            return
        try:
            async with aclosing(self._tier.stream(request)) as events:
                async for batch in events:
                    yield batch
        except Exception as error:
            log_error("tier_raised", error, tier=self.name, request_id=request.request_id)
            yield [Failed(fault=Fault.SERVER_ERROR, message=f"tier {self.name}: an error inside it")]

    async def status(self) -> TierStatus:
        """Return the tier's own status, with a `user_config` that was refused as its reason."""
        status = await self._tier.status()
        if self._refused_patch is None:
            return status
        reason = "; ".join(filter(None, (status.reason, f"user_config was refused: {self._refused_patch}")))
        return replace(status, reason=reason)

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Count the tokens of the request's prompt, where the tier has its model's tokenizer at hand."""
        count = getattr(self._tier, "count_tokens", None)
        counted: int | None = None if count is None else await count(request)
        return counted

    async def check_health(self) -> None:
        """Raise where this replica must be replaced: its engine hangs."""
        healthy = getattr(self._tier, "healthy", None)
        if healthy is not None and not healthy():
            raise RuntimeError(f"tier {self.name}: work is queued and no step was made")

    async def __del__(self) -> None:
        """Free the tier first, then give the bytes back: Serve calls this when it stops the replica."""
        tier, lease = getattr(self, "_tier", None), getattr(self, "_lease", None)
        if tier is not None:
            await tier.close()
        if lease is not None:
            await lease.close()


def bind_to_node() -> None:
    """Let this process's replica listen for calls on its node's address alone (docs/decisions/081). Call it in the
    replica's `__init__`: Serve binds the port to all interfaces once its class is made. Raises RuntimeError: another
    Ray binds it in another way."""
    host = ray.util.get_node_ip_address()
    own = f"[{host}]:" if ":" in host else f"{host}:"

    def add_own_port(server: Any, address: str) -> Any:
        if address.startswith(_ALL):
            address = own + address.removeprefix(_ALL)
        return add_port_to_grpc_server(server, address)

    if not hasattr(serve_replica, "add_port_to_grpc_server"):
        raise RuntimeError("this Ray binds a replica's port in another way: a Ray of 2.60 is needed")
    serve_replica.add_port_to_grpc_server = add_own_port
