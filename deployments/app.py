"""The graph: `build(args) -> Application` wires Router, tiers and the state actor, and does nothing else.

Ray Serve calls `build` with the `args` of `serve_config.yaml` (`import_path: deployments.app:build`). The classes are
plain; they become deployments here, so that tests can use them without Ray.

There is no `from __future__ import annotations` in this file: Serve looks at the annotation of `build`'s parameter,
and a string would not be the class that it seems to be.
"""

from typing import Any

import ray
from ray import serve
from ray.serve.config import DeploymentActorConfig

from deployments.config import ROUTER, AppConfig, MlxTierConfig, TierBase, load
from deployments.router import Router
from deployments.state.actor import STATE_ACTOR, SessionState
from deployments.tiers.replica import TierReplica

__all__ = ["build"]

# Streams that a hosted or scripted tier may have open at once on one replica.
STREAMS_MAX = 256
# Room above the engine's own queue, so that it is the engine that says "full", with a Retry-After.
ADMISSION_SLACK = 8
HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 30.0}
# Serve ends a replica's streams this long after it was told to stop.
SHUTDOWN = {"graceful_shutdown_wait_loop_s": 0.1, "graceful_shutdown_timeout_s": 10.0}
# Replicas share what cores there are: on a small machine Serve's default of one whole core each would leave no room
# for the Router. Memory, not cores, is what limits models.
NO_CPUS = {"num_cpus": 0}


def build(args: dict[str, Any]) -> serve.Application:
    """Wire the graph.

    Raises:
        ConfigError: one line that names the key.
    """
    config = load(args)
    tiers = {name: _tier(name, tier, config) for name, tier in config.tiers.items()}
    return _router(config).bind(config, tiers)


def _tier(name: str, tier: TierBase, config: AppConfig) -> Any:
    deployment = serve.deployment(TierReplica).options(
        name=name,
        ray_actor_options=NO_CPUS,
        max_ongoing_requests=_slots(tier),
        **_scale(tier.min_replicas, tier.max_replicas),
        **HEALTH,
        **SHUTDOWN,
    )
    return deployment.bind(name, tier, config.reliability.escalation.cloud_fallback)


def _slots(tier: TierBase) -> int:
    if isinstance(tier, MlxTierConfig):
        return tier.max_running + tier.max_waiting + ADMISSION_SLACK
    return STREAMS_MAX


def _scale(least: int, most: int) -> dict[str, Any]:
    if least == most:
        return {"num_replicas": least}
    return {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}


def _router(config: AppConfig) -> Any:
    state = DeploymentActorConfig(
        name=STATE_ACTOR,
        actor_class=ray.remote(SessionState),
        init_kwargs=config.state.model_dump(),
        actor_options=NO_CPUS,
    )
    return serve.deployment(serve.ingress()(Router)).options(
        name=ROUTER,
        ray_actor_options=NO_CPUS,
        num_replicas=config.server.router_replicas,
        max_ongoing_requests=config.server.max_ongoing_requests,
        deployment_actors=[state],
        **HEALTH,
        **SHUTDOWN,
    )
