"""A replica's own port: on its node's address, and nowhere else."""

import pytest
import ray
from ray.serve._private import replica

from deployments.graph import node_port
from deployments.graph.node_port import bind_to_node


@pytest.mark.parametrize(
    ("host", "bound"), [("127.0.0.1", "127.0.0.1:0"), ("10.0.0.7", "10.0.0.7:0"), ("fe80::1", "[fe80::1]:0")]
)
def test_all_interfaces_become_the_nodes_own(monkeypatch, host, bound):
    """What Serve asks for is bound to the address that other replicas call; another address stays as it is."""
    asked = []
    monkeypatch.setattr(replica, "add_port_to_grpc_server", None)  # as it is afterwards
    monkeypatch.setattr(node_port, "add_port_to_grpc_server", lambda _, address: asked.append(address) or 7)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: host)
    bind_to_node()

    assert replica.add_port_to_grpc_server(None, "[::]:0") == 7
    assert replica.add_port_to_grpc_server(None, "127.0.0.9:5") == 7
    assert asked == [bound, "127.0.0.9:5"]


def test_a_ray_without_that_name_is_refused(monkeypatch):
    """A replica that can't be bound doesn't start, and doesn't listen to all."""
    monkeypatch.delattr(replica, "add_port_to_grpc_server")
    with pytest.raises(RuntimeError, match=r"Ray of 2\.60 is needed"):
        bind_to_node()
