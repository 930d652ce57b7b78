"""A tier's replica."""

import asyncio
from typing import Any

from deployments.config.tier_cost import is_cloud
from deployments.graph.replica import TierReplica
from tests.unit.deployments.config.test_tier_cost import CLOUD, other


class Replica(TierReplica):
    """Serve awaits a replica's `__del__`; nobody does here."""

    def __del__(self) -> None:  # type: ignore[override]
        pass


def test_a_replica_keeps_its_tier_where_it_is():
    """The replica goes on with the configuration that it had, and says why in its status."""

    async def go() -> tuple[Any, str]:
        replica = Replica.__new__(Replica)
        await replica.__init__("t", other("scripted"), CLOUD)  # type: ignore[misc]
        await replica.reconfigure({})
        await replica.reconfigure({"cloud": True})
        reason = (await replica.status()).reason
        await replica._tier.close()
        return replica._config, reason

    config, reason = asyncio.run(go())

    assert not is_cloud(config)
    assert "start it again" in reason
