"""The application: `build` wires the Router and the tiers.

Ray Serve calls `build` with the `args` of `serve_config.yaml`. The classes become deployments here, so that tests can
use them without Ray. No `from __future__ import annotations` in this file: Serve reads the annotation of `build`'s
parameter, and a string would not be the class.
"""

import os
from typing import Any

from ray import serve

from deployments.api.access import access_for
from deployments.app.router import Router
from deployments.config.app_config import ROUTER, AppConfig, load
from deployments.config.tier_config import MlxTierConfig, TierBase
from deployments.graph.replica import TierReplica
from deployments.graph.scale_to_zero import let_auto_sleep
from deployments.graph.session_routing import session_routing
from deployments.memory.nodes import plan_memory_resources
from deployments.memory.plan import MemoryPlan
from deployments.models.needs import plan_of
from deployments.running.own_folder import refuse_read_token

# Streams that a hosted or scripted tier may have open at once on one replica.
_STREAMS_MAX = 256
# Room above the engine's own queue, so that it is the engine that says "full", with a Retry-After.
_ADMISSION_SLACK = 8
_HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 30.0}
# Serve starts a Router anew that has missed three: one that hangs holds up every client.
_ROUTER_HEALTH = _HEALTH | {"health_check_timeout_s": 10.0}
# Serve ends a replica's streams this long after it was asked to stop.
_SHUTDOWN = {"graceful_shutdown_wait_loop_s": 0.1, "graceful_shutdown_timeout_s": 10.0}
# How fast Serve follows the policy (`deployments/memory/autoscaling.py`): a cut for want of memory must not wait long.
_PACE = {"upscale_delay_s": 10.0, "downscale_delay_s": 15.0}
# Serve's default for the time over which it averages requests, and the least that its reports every 10 s allow.
_WINDOW_S, _WINDOW_MIN_S = 30.0, 11.0
# Replicas share what cores there are: with Serve's default of one each a small machine had no room for the Router.
_NO_CPUS = {"num_cpus": 0}


def build(args: dict[str, Any]) -> serve.Application:
    """Wire the graph. Raises ConfigError: one line that names the key."""
    config = let_auto_sleep(load(args))
    # Before any model is loaded: keys that can't be used, or a server that others would reach without any.
    access_for(config.server)
    refuse_read_token(os.environ)
    memory = plan_of(config)
    asks = plan_memory_resources(memory.needs) if memory else {}
    tiers = {name: _bind_tier(name, tier, config, memory, asks.get(name, 0)) for name, tier in config.tiers.items()}
    return _make_router(config).bind(config, tiers)


def _bind_tier(name: str, tier: TierBase, config: AppConfig, memory: MemoryPlan | None, ask_bytes: int) -> Any:
    if isinstance(tier, MlxTierConfig) and tier.blas_threads is None:
        tier = tier.model_copy(update={"blas_threads": _share_cores(config, os.cpu_count() or 1)})
    slots = tier.max_running + tier.max_waiting + _ADMISSION_SLACK if isinstance(tier, MlxTierConfig) else _STREAMS_MAX
    deployment = serve.deployment(TierReplica).options(
        name=name,
        user_config={},
        ray_actor_options=_NO_CPUS | ({"memory": ask_bytes} if ask_bytes else {}),
        max_ongoing_requests=slots,
        **_choose_scale(tier),
        **_choose_routing(tier),
        **_HEALTH,
        **_SHUTDOWN,
    )
    return deployment.bind(name, tier, config.reliability.escalation.cloud_fallback, memory)


def _share_cores(config: AppConfig, cores: int) -> int:
    """Share the cores out among all replicas that may compute on them at once."""
    replicas = sum(tier.max_replicas for tier in config.tiers.values() if isinstance(tier, MlxTierConfig))
    return max(1, cores // max(1, replicas))


def _choose_routing(tier: TierBase) -> dict[str, Any]:
    """Route by session where there is a choice, and where it must be known whether any replica runs."""
    if tier.min_replicas == 0 or (isinstance(tier, MlxTierConfig) and tier.max_replicas > 1):
        return {"request_router_config": session_routing()}
    return {}


def _choose_scale(tier: TierBase) -> dict[str, Any]:
    if tier.min_replicas == tier.max_replicas:
        return {"num_replicas": tier.min_replicas}
    bounds = {"min_replicas": tier.min_replicas, "max_replicas": tier.max_replicas}
    if tier.min_replicas:
        return {"autoscaling_config": bounds | _PACE}
    # Serve sees an idle tier when its window holds no request any more, and then waits for the rest.
    window_s = min(_WINDOW_S, max(_WINDOW_MIN_S, tier.idle_s))
    delays = {"look_back_period_s": window_s, "downscale_to_zero_delay_s": max(0.0, tier.idle_s - window_s)}
    return {"autoscaling_config": bounds | _PACE | delays}


def _make_router(config: AppConfig) -> Any:
    return serve.deployment(serve.ingress()(Router)).options(
        name=ROUTER,
        user_config={},
        ray_actor_options=_NO_CPUS,
        num_replicas=config.server.router_replicas,
        max_ongoing_requests=config.server.max_ongoing_requests,
        **_ROUTER_HEALTH,
        **_SHUTDOWN,
    )
