"""What a Router replica is made of: the dialects by their paths, the facts of its tiers, and its live configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.serve.handle import DeploymentHandle

from deployments.api.access import access_for
from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.dialect import Dialect
from deployments.api.openai_passthrough import COMPLETIONS, EMBEDDINGS
from deployments.api.openai_render import CHAT
from deployments.api.openai_responses.response_events import COMPACT, RESPONSES
from deployments.config.app_config import ROUTER, AppConfig, RouterConfig
from deployments.config.tier_config import DeferringTier, TierBase
from deployments.config.tier_cost import Price, cloud_tiers, price_of
from deployments.graph.handle import HandleTier
from deployments.graph.reconfigure import apply_change, patch_router
from deployments.graph.scale_to_zero import make_cold_status
from deployments.request.policy import limits_of, state_limits
from deployments.state.records import StateLimits

DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/responses/compact": COMPACT,
    "/v1/completions": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
}
COUNTED: dict[str, Dialect] = {"/v1/messages/count_tokens": MESSAGES, "/v1/responses/input_tokens": RESPONSES}
WORKER_IMPORTS = ("deployments.request.attempt", *(spoken.parse.__module__ for spoken in DIALECTS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TierFacts:
    """The tiers as the configuration had them at the start, by name."""

    tiers: Mapping[str, HandleTier]
    configs: Mapping[str, TierBase]
    scalable: Mapping[str, TierBase]
    kinds: Mapping[str, str]
    prices: Mapping[str, Price]
    cloud: frozenset[str]
    deferring: frozenset[str]


def collect_facts(config: AppConfig, handles: Mapping[str, DeploymentHandle]) -> _TierFacts:
    """Collect the facts of the tiers. `handles`: of their deployments, by tier."""
    fallback = config.reliability.escalation.cloud_fallback
    prices = {name: price_of(tier, fallback) for name, tier in config.tiers.items()}
    return _TierFacts(
        tiers={name: HandleTier(name, handles[name], make_cold_status(name, config)) for name in config.tiers},
        configs=config.tiers,
        scalable={name: tier for name, tier in config.tiers.items() if tier.min_replicas == 0},
        kinds={name: tier.kind for name, tier in config.tiers.items()},
        prices={name: price for name, price in prices.items() if price is not None},
        cloud=cloud_tiers(config.tiers),
        deferring=_find_deferring(config.tiers),
    )


def _find_deferring(tiers: Mapping[str, TierBase]) -> frozenset[str]:
    return frozenset(n for n, tier in tiers.items() if isinstance(tier, DeferringTier) and tier.tools == "deferred")


class LiveConfig:
    """The sections `reliability` and `server`, as `user_config` has patched them, and what follows from them."""

    def __init__(self, config: AppConfig, facts: _TierFacts) -> None:
        self._base = RouterConfig(reliability=config.reliability, server=config.server)
        self._state_config = config.state
        self._facts = facts
        self._configured = False
        self.refused_patch: str | None = None
        self.access = access_for(config.server)
        self._adopt(self._base)

    def _adopt(self, config: RouterConfig) -> None:
        self.now = config
        strategies = {name: tier.retry_strategy for name, tier in self._facts.configs.items()}
        self.limits = limits_of(config, strategies, self._facts.kinds)
        self.waits = {name: tier.timeouts or config.server.timeouts for name, tier in self._facts.configs.items()}

    def apply(self, user_config: Mapping[str, Any]) -> None:
        """Apply a changed `user_config`; see `deployments.graph.reconfigure`."""
        first = not self._configured
        config, self.refused_patch = apply_change(self._patch, user_config, self.now, first=first, at=ROUTER)
        self._adopt(config)
        self._configured = True

    def _patch(self, change: Mapping[str, Any]) -> RouterConfig:
        config = patch_router(self._base, change, self._facts.tiers)
        self.access = access_for(config.server)
        return config

    def state_limits(self) -> StateLimits:
        return state_limits(self.now, self._state_config, self.access.key_hours)
