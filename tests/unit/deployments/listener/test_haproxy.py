"""HAProxy: its own words, the bounds that it is given, and one address among others."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deployments.config.free_port import free_port
from deployments.errors import TABLE
from deployments.listener import haproxy as haproxy_module
from deployments.listener.haproxy import _rewrite, limits_of
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
@pytest.mark.parametrize("back", [lambda: None, free_port], ids=["no Router yet", "one that doesn't listen"])
def test_while_no_router_answers_it_says_so(folder, back):
    """A 503 in OpenAI's shape that says when to come back, and neither a 404 nor Ray's plain 500."""
    port = free_port()
    path, flags = rays_config(folder, port, back())
    with haproxy(path, flags, port):
        answer = ask(port, "/v1/models")

    assert (answer.status, answer.error["code"]) == (503, "server_starting")
    assert int(answer.headers["retry-after"]) > 0


def test_haproxys_errors_are_those_of_the_table():
    """Its words are written where nothing can be imported: they are held against the server's own table here."""
    own = (*haproxy_module._OWN_ERRORS, haproxy_module._LARGE_ERROR, haproxy_module._NO_ROUTE)
    for error in own:
        row = TABLE[error.code]
        assert (error.status, error.type) == (row.status, row.type)
        assert row.retry == (error.retry_after_s is not None)
        assert error.retry_after_s in (None, row.retry_after_s)
        assert "'" not in error.words().replace("string '", "").replace("' hdr", "")


def test_what_ray_writes_is_changed_where_it_must_be():
    """HAProxy's own pages go. Every other section but the front doors is bound to loopback, also one that a later Ray
    adds."""
    text = (
        "frontend http_frontend\n    bind *:1\nfrontend prometheus\n    bind :2\n    no log\n"
        "frontend new\n    bind [::]:3\nlisten stats\n  bind 0.0.0.0:4\n  stats enable\n"
        "listen other\n  bind 0.0.0.0:5\n"
    )
    written = _rewrite(text)

    assert [line.strip() for line in written.splitlines() if "bind" in line] == [
        "bind *:1",
        "bind 127.0.0.1:3",
        "bind 127.0.0.1:5",
    ]
    assert "stats" not in written
    assert "prometheus" not in written


@pytest.mark.parametrize(
    ("host", "asked"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("192.0.2.7", "192.0.2.7")]
    + [(every, "127.0.0.1") for every in ("*", "", "0.0.0.0", "::", "localhost")],
)
def test_the_router_is_asked_where_it_listens(host, asked):
    """Law: Ray's Routers listen on the host of the configuration, and HAProxy asked each at its node's address: with
    `::1`, or one address of the network, the server answered "starting" for ever. Another node's stays."""
    text = (
        "frontend prometheus\n    bind 127.0.0.3:9\nfrontend http_frontend\n    # words\n"
        f"    bind {host}:18710\nbackend http-x\n"
        "    server a 127.0.0.1:30000 check\n    server b 192.0.2.9:30000 check\n"
    )
    lines = [line.strip() for line in _rewrite(text).splitlines()]

    assert f"server a {asked}:30000 check" in lines
    assert "server b 192.0.2.9:30000 check" in lines
    assert f"bind {host}:18710" in lines


@pytest.mark.parametrize("more", [" mode 666 level admin expose-fd listeners", " level admin", " mode 0777"])
def test_the_admin_socket_is_its_owners(more):
    """Through it requests can be sent to another server: mode 600, whatever Ray writes, and nothing else changes."""
    [line] = [x for x in _rewrite(f"global\n    stats socket /x/a.sock{more}\n").splitlines() if "a.sock" in x]

    assert line.endswith(" mode 600")
    assert line.count("mode") == 1
    assert ("expose-fd listeners" in line, "level admin" in line) == ("expose-fd" in more, "level admin" in more)


@HAPROXY_ONLY
def test_the_admin_socket_that_haproxy_makes_is_its_owners(folder):
    """As HAProxy itself makes it, out of what Ray itself writes, even where RAY_TMPDIR is open to others."""
    folder.chmod(0o755)
    port = free_port()
    path, flags = rays_config(folder, port, None)
    with haproxy(path, flags, port):
        until(lambda: list(folder.rglob("admin.sock")), "HAProxy has named its socket")
        sockets = [found for found in folder.rglob("*") if found.is_socket()]
        modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in sockets}

    assert modes == {"admin.sock": 0o600}
    assert stat.S_IMODE((folder / f"ms-{os.geteuid()}").stat().st_mode) == 0o700
    assert all(folder / f"ms-{os.geteuid()}" in found.parents for found in sockets)


@pytest.mark.parametrize(("target", "stays"), [("127.0.0.1:514", False), ("127.0.0.1:5140", True), ("/dev/log", True)])
def test_no_line_of_a_request_goes_to_a_port_that_anyone_may_hold(target, stays):
    """Law: the access log goes where the operator says, or nowhere; the socket of the metrics is none of it."""
    lines = _rewrite(
        f"global\n    log {target} local0 info\nfrontend http_frontend\n    log /x/metrics.sock len 8192\n",
    ).splitlines()

    assert (f"    log {target} local0 info" in lines) is stays
    assert "    log /x/metrics.sock len 8192" in lines


@HAPROXY_ONLY
def test_haproxy_has_no_socket_of_datagrams(folder, monkeypatch):
    """Law: what listens or sends on all interfaces is nothing, also where requests came through."""
    with behind_haproxy(Back(), folder, monkeypatch) as door:
        assert ask(door.port).status == 200
        family = psutil.Process().children(recursive=True)
        proxies = [one for one in family if one.name() == "haproxy"]
        found = [connection for one in proxies for connection in one.net_connections("udp")]

    assert proxies
    assert found == []


@pytest.mark.parametrize("name", ["MLX_STACK_HEADER_S", "MLX_STACK_CONNECTIONS_OF_ONE"])
@pytest.mark.parametrize("value", ["-1", "0", "ten", "inf", "1e9", "1\n2", "٣"])
def test_a_wrong_bound_is_one_line(name, value):
    """It names the variable; nothing of it reaches HAProxy's configuration."""
    with pytest.raises(ValueError, match=f"^{name}: .*$"):
        limits_of({name: value})
