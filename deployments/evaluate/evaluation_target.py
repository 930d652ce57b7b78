"""What is evaluated: a configuration, served by servers of our own, or a server that runs already.

Invariant: without `--cloud` no request goes to another machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import MlxTierConfig
from deployments.config.tier_cost import is_cloud
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.asking.own_server import NoServer, OwnServer, patch_variant
from deployments.evaluate.evaluation_plan import PlanPhase, Settings, plan_served, plan_variants

NO_CLOUD = "it would leave this machine, and costs money: --cloud lets it"


class OwnTarget:
    """A configuration: a server of our own is started for each variant."""

    first = "layers"

    def __init__(self, source: Path, config: AppConfig, *, cloud: bool) -> None:
        self._source, self._config, self._cloud = source, config, cloud

    @contextlib.contextmanager
    def open(self, variant: str) -> Iterator[tuple[ChatClient, int | None]]:
        """Open a client to a variant, and say which process its server is."""
        server = OwnServer(self._source, patch_variant(self._config, variant))
        try:
            server.start()
            with contextlib.closing(ChatClient(server.url, local_only=not self._cloud)) as client:
                yield client, server.pid
        finally:
            server.stop()

    def find_obstacles(self) -> dict[str, str]:
        """List the models that may not be asked, and why."""
        clouds = [name for name, tier in self._config.tiers.items() if is_cloud(tier)]
        return {} if self._cloud else dict.fromkeys(clouds, NO_CLOUD)

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
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
        found = ChatClient(self._url, key=self._key, local_only=not self._cloud, named=self._models)
        with contextlib.closing(found) as client:
            if obstacle := client.find_obstacle():
                raise NoServer(obstacle)
            yield client, None

    def find_obstacles(self) -> dict[str, str]:
        return {}

    def plan(self, models: Sequence[str], contexts: dict[str, int], settings: Settings) -> list[PlanPhase]:
        return plan_served(models, contexts, settings)


Target = OwnTarget | UrlTarget
