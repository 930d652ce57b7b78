"""How Ray Serve is told to look after the graph."""

from deployments.app import build
from tests.support.small_config import BASE

_MISSED = 3  # Serve starts a replica anew after so many checks without an answer


def test_a_router_that_hangs_is_replaced_within_a_minute():
    """Law: every client waits for a Router that hangs (halted, or in a step without end), and clients give up after a
    minute or more. With 30 s for a check nobody was answered for 106 s. A tier may be busy for longer: its requests go
    to the next one."""
    app = build(BASE)
    router = app._bound_deployment._deployment_config

    assert (router.health_check_period_s + router.health_check_timeout_s) * _MISSED < 60
    for tier in app._bound_deployment.init_args[1].values():
        assert tier._bound_deployment._deployment_config.health_check_timeout_s >= 30
