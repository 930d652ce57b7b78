"""Send a session to the replica that holds its prompts, unless that one is busier than its share.

Serve's consistent hash gives each session a row of replicas, the same in every Router; the first with less than
`_SPREAD` times the mean of open requests takes it. The load is what this process has open: the numbers that replicas
report are forgotten after ten seconds.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ray.serve.config import RequestRouterConfig
from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

from deployments.graph.handle import note_replicas

# Moving costs a prefill, waiting costs the others' decoding: half over the mean is where they are about even.
_SPREAD = 1.5
_REPLICAS_MAX = 64


def _rank_by_load(loads: Sequence[int]) -> list[int]:
    """Rank the places of a session's row in the order in which to try them. `loads`: open requests of each."""
    bound = math.ceil(_SPREAD * (sum(loads) + 1) / max(1, len(loads)))
    return sorted(range(len(loads)), key=lambda place: max(loads[place], bound - 1))  # below the bound in their order


def session_routing() -> RequestRouterConfig:
    """Build the configuration of a deployment that is routed so."""
    return RequestRouterConfig(
        request_router_class=f"{__name__}.{SessionRouter.__name__}",
        request_router_kwargs={"num_fallback_replicas": _REPLICAS_MAX},
    )


class SessionRouter(ConsistentHashRouter):  # type: ignore[misc] # Ray has no types here
    """Consistent hash with bounded loads."""

    def __init__(self, deployment_id: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(deployment_id, *args, **kwargs)
        self._key = (deployment_id.app_name, deployment_id.name)
        self._open: Counter[Any] = Counter()
        self._counting = threading.Lock()  # requests complete on other threads

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """Return the session's row of replicas in the order to try them."""
        row: list[list[Any]] = await super().choose_replicas(candidate_replicas, pending_request)
        if any(len(place) != 1 for place in row):
            return row
        return [row[place] for place in _rank_by_load([self._open[place[0].replica_id] for place in row])]

    def update_replicas(self, replicas: list[Any]) -> None:
        """Note which replicas run now: Serve's controller reports them."""
        note_replicas(*self._key, len(replicas))
        super().update_replicas(replicas)

    def on_send_request(self, replica_id: Any) -> None:
        super().on_send_request(replica_id)
        with self._counting:
            self._open[replica_id] += 1

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """Count one that has ended, in whatever way."""
        super().on_request_completed(replica_id, internal_request_id)
        with self._counting:
            self._open[replica_id] -= 1
            if self._open[replica_id] <= 0:
                del self._open[replica_id]
