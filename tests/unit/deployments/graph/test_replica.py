"""A tier's replica."""

from deployments.config.tier_cost import is_cloud
from deployments.graph.replica import TierReplica
from tests.unit.deployments.config.test_tier_cost import CLOUD, other


class Replica(TierReplica):
    """Serve awaits a replica's `__del__`; nobody does here."""

    def __del__(self) -> None:  # type: ignore[override]
        pass


async def test_a_replica_keeps_its_tier_where_it_is():
    """The replica goes on with the configuration that it had, and says why in its status."""
    made = Replica.__new__(Replica)
    await made.__init__("t", other("scripted"), CLOUD)  # type: ignore[misc]
    await made.reconfigure({})
    await made.reconfigure({"cloud": True})

    assert not is_cloud(made._config)
    assert "start it again" in (await made.status()).reason
    await made._tier.close()
