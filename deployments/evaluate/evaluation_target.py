"""What is evaluated: a configuration, of which servers of our own are started, or a server that runs already.

    Target     opens a client to a variant, says who may not be asked, and plans
    OwnTarget  a server for each variant, on this machine
    UrlTarget  any OpenAI-compatible server, as it is

What must never happen: a request to somebody else's machine that nobody asked for (`--cloud`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import MlxTierConfig
from deployments.config.tier_cost import is_cloud
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.asking.own_server import NoServer, OwnServer, patch_variant
from deployments.evaluate.evaluation_plan import PlanPhase, Settings, plan_served, plan_variants

__all__ = ["NO_CLOUD", "OwnTarget", "Target", "UrlTarget"]

NO_CLOUD = "it would leave this machine, and costs money: --cloud lets it"


class Target(Protocol):
    """What is evaluated."""

    first: str

    def open(self, variant: str) -> contextlib.AbstractContextManager[tuple[ChatClient, int | None]]:
        """Open a client to a variant, and say which process its server is (None: it isn't ours)."""
        ...

    def find_obstacles(self) -> dict[str, str]:
        """List the models that may not be asked, and why."""
        ...

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
        """Plan the cells."""
        ...


class OwnTarget:
    """A configuration: a server of our own is started for each variant."""

    first = "layers"

    def __init__(self, source: Path, config: AppConfig, *, cloud: bool) -> None:
        self._source, self._config, self._cloud = source, config, cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Start the server, and stop it at the end."""
        server = OwnServer(self._source, patch_variant(self._config, variant))
        try:
            server.start()
            client = ChatClient(server.url, local_only=not self._cloud)
            try:
                yield client, server.pid
            finally:
                client.close()
        finally:
            server.stop()

    def find_obstacles(self) -> dict[str, str]:
        """Leave out the tiers that aren't on this machine."""
        clouds = [name for name, tier in self._config.tiers.items() if is_cloud(tier)]
        return {} if self._cloud else dict.fromkeys(clouds, NO_CLOUD)

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
        """Plan all variants; the chain where there is one."""
        chain = [name for name in self._config.reliability.escalation.chain if name in models]
        held = [model for model in models if isinstance(self._config.tiers[model], MlxTierConfig)]
        tries = self._config.reliability.escalation.enabled and len(chain) > 1
        return plan_variants(models, contexts, settings, chain=tries, constrained=held)


class UrlTarget:
    """A server that runs already, ours or another one's, as it is."""

    first = "served"

    def __init__(self, url: str, key: str, models: Sequence[str], *, cloud: bool) -> None:
        self._url, self._key, self._models, self._cloud = url, key, list(models), cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Open a client."""
        client = ChatClient(self._url, key=self._key, local_only=not self._cloud, named=self._models)
        try:
            if obstacle := client.find_obstacle():
                raise NoServer(obstacle)
            yield client, None
        finally:
            client.close()

    def find_obstacles(self) -> dict[str, str]:
        """Nothing is known of it."""
        return {}

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
        """Plan for it as it is."""
        return plan_served(models, contexts, settings)
