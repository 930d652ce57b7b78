"""A tier's replica, and its own port: on its node's address, and nowhere else."""

import pytest
import ray
from ray.serve._private import replica as serve_replica

from deployments.config.tier_cost import is_cloud
from deployments.graph import replica
from deployments.graph.replica import TierReplica, bind_to_node
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


@pytest.mark.parametrize(
    ("host", "bound"), [("127.0.0.1", "127.0.0.1:0"), ("10.0.0.7", "10.0.0.7:0"), ("fe80::1", "[fe80::1]:0")]
)
def test_all_interfaces_become_the_nodes_own(monkeypatch, host, bound):
    """What Serve asks for is bound to the address that other replicas call; another address stays as it is."""
    asked = []
    monkeypatch.setattr(serve_replica, "add_port_to_grpc_server", None)  # as it is afterwards
    monkeypatch.setattr(replica, "add_port_to_grpc_server", lambda _, address: asked.append(address) or 7)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: host)
    bind_to_node()

    assert serve_replica.add_port_to_grpc_server(None, "[::]:0") == 7
    assert serve_replica.add_port_to_grpc_server(None, "127.0.0.9:5") == 7
    assert asked == [bound, "127.0.0.9:5"]


def test_a_ray_without_that_name_is_refused(monkeypatch):
    """A replica that can't be bound doesn't start, and doesn't listen to all."""
    monkeypatch.delattr(serve_replica, "add_port_to_grpc_server")
    with pytest.raises(RuntimeError, match=r"Ray of 2\.60 is needed"):
        bind_to_node()
