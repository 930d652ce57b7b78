"""HAProxy: its own words, the bounds that it is given, and one address among others."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.cli.front import free_port
from deployments.errors import TABLE
from deployments.listener import haproxy as haproxy_module
from deployments.listener.haproxy import Limits, limits_of, rewrite
from tests.support.listeners import Back, Raw, ask, behind_haproxy, haproxy, rays_config
from tests.support.serving import until
from tests.unit.deployments.listener.test_slow_clients import HAPROXY_ONLY


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ms-") as path:
        yield Path(path)


@HAPROXY_ONLY
def test_one_address_does_not_fill_the_door(folder, monkeypatch):
    """Connections of one address beyond its share are closed; another address is served all the while; and when they
    have gone, so is that one."""
    with behind_haproxy(Back(), folder, monkeypatch, of_one=50, header_s=5) as door:
        crowd = [Raw(door.port, source="127.0.0.9").send("GET / HT") for _ in range(120)]
        until(lambda: sum(client.open for client in crowd) <= 50, "those beyond the share are closed")

        assert sum(client.open for client in crowd) == 50
        assert all(ask(door.port).status == 200 for _ in range(20))
        for client in crowd:
            client.close()
        until(lambda: ask(door.port, source="127.0.0.9").status == 200, "the address is served again")


@HAPROXY_ONLY
def test_before_the_app_is_up_it_says_so(folder):
    """No Router yet: a 503 in OpenAI's shape that says when to come back, and not a 404."""
    port = free_port()
    path, flags = rays_config(folder, port, None)
    with haproxy(path, flags, port):
        answer = ask(port, "/v1/models")

    assert (answer.status, answer.error["code"]) == (503, "server_starting")
    assert int(answer.headers["retry-after"]) > 0


@HAPROXY_ONLY
def test_while_no_router_answers_it_says_so(folder):
    """A Router that doesn't listen: a 503 in OpenAI's shape, not Ray's plain 500."""
    port = free_port()
    path, flags = rays_config(folder, port, free_port())
    with haproxy(path, flags, port):
        answer = ask(port, "/v1/models")

    assert (answer.status, answer.error["code"]) == (503, "server_starting")
    assert int(answer.headers["retry-after"]) > 0


def test_haproxys_errors_are_those_of_the_table():
    """Its words are written where nothing can be imported: they are held against the server's own table here."""
    own = (*haproxy_module.OWN_ERRORS, haproxy_module.LARGE_ERROR, haproxy_module.NO_ROUTE)
    for error in own:
        row = TABLE[error.code]
        assert (error.status, error.type) == (row.status, row.type)
        assert row.retry == (error.retry_after_s is not None)
        assert error.retry_after_s in (None, row.retry_after_s)
        assert "'" not in error.words().replace("string '", "").replace("' hdr", "")


def test_what_ray_writes_is_changed_where_it_must_be():
    """Every page but the front doors is bound to loopback, also one that a later Ray adds."""
    text = (
        "frontend http_frontend\n    bind *:1\nfrontend prometheus\n    bind :2\nfrontend new\n    bind [::]:3\n"
        "listen stats\n  bind 0.0.0.0:4\n"
    )
    binds = [line.strip() for line in rewrite(text, Limits()).splitlines() if "bind" in line]

    assert binds == ["bind *:1", "bind 127.0.0.1:2", "bind 127.0.0.1:3", "bind 127.0.0.1:4"]


@pytest.mark.parametrize("name", ["MLX_STACK_HEADER_S", "MLX_STACK_CONNECTIONS_OF_ONE"])
@pytest.mark.parametrize("value", ["-1", "0", "ten", "inf", "1e9", "1\n2", "٣"])
def test_a_wrong_bound_is_one_line(name, value):
    """It names the variable; nothing of it reaches HAProxy's configuration."""
    with pytest.raises(ValueError, match=f"^{name}: .*$"):
        limits_of({name: value})
