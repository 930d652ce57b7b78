"""`make serve` as it starts the server: what it listens on, and that it is as good a server as without its flags."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
import yaml

from deployments.cli.front import environment, free_port
from tests.repository import ROOT
from tests.serving import ends_with_family, until

pytestmark = pytest.mark.ray

TIERS = {
    "fast": {"kind": "scripted", "script": [{"answer": "one two three"}]},
    "slow": {"kind": "scripted", "script": [{"answer": "word " * 200, "token_delay_s": 0.2}]},
}
QUESTION = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Started:
    """The server, and all of its processes."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def listening(self) -> list[tuple[str, str]]:
        """The address and the program's name of every listening TCP socket."""
        family = psutil.Process(self.process.pid)
        found = []
        for process in (family, *family.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                sockets = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
                found += [(f"{c.laddr.ip}", f"{process.name()}:{c.laddr.port}") for c in sockets]
        return found

    def get(self, path: str) -> httpx.Response:
        """One GET."""
        return httpx.get(f"{self.url}{path}", timeout=30)

    def ready(self) -> bool:
        """Whether it answers."""
        assert self.process.poll() is None, f"the server has ended:\n{self.log.read_text()[-3000:]}"
        with contextlib.suppress(httpx.TransportError):
            return self.get("/ready").status_code == 200
        return False


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        port, path = free_port(), Path(folder) / "c.yaml"
        args = {"tiers": TIERS, "reliability": {"escalation": {"chain": list(TIERS)}}, "state": {"path": folder}}
        app = {"name": "s", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
        config = {"proxy_location": "HeadOnly", "http_options": {"host": "127.0.0.1", "port": port}}
        path.write_text(yaml.safe_dump(config | {"applications": [app]}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_SERVE_", "RAY_AUTH_"))}
        flags = kept | {"RAY_TMPDIR": folder, "HOME": folder}
        log = Path(folder) / "log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "deployments", "serve", path]
            process = subprocess.Popen(command, cwd=ROOT, env=flags, stdout=out, stderr=out, start_new_session=True)
        with ends_with_family(process):
            server = Started(process, f"http://127.0.0.1:{port}", log)
            until(server.ready, "the server is up", wait_s=300)
            yield server


def test_nothing_but_loopback_listens(started):
    """Without API keys no socket of the server answers HTTP to other machines, and what Ray keeps open to them (calls
    between replicas) refuses whoever lacks Ray's token. Ray's own processes and HAProxy's pages are on loopback."""
    until(lambda: len(started.listening()) > 5, "Ray and the server listen")
    open_doors = [(who, int(who.rpartition(":")[2])) for ip, who in started.listening() if not _loopback(ip)]

    assert [who for who, _ in open_doors if not who.startswith("ray::ServeReplica")] == []
    for who, port in open_doors:
        assert _http_answer(port) == b"", who
        assert _grpc_answer(port) is grpc.StatusCode.UNAUTHENTICATED, who


def test_haproxy_is_in_front_where_there_is_one(started):
    """The fast way is really taken: on Linux HAProxy holds the front door."""
    held = [who for _, who in started.listening() if who.endswith(f":{started.url.rpartition(':')[2]}")]

    assert ("haproxy" in held[0]) == sys.platform.startswith("linux")


def test_the_request_id_comes_back_and_names_the_report(started):
    """`x-request-id` goes through the front, is sent back, and finds the request's report."""
    sent = {"x-request-id": "through-the-front"}
    response = httpx.post(f"{started.url}/v1/chat/completions", json=QUESTION, headers=sent, timeout=30)

    assert response.status_code == 200
    assert response.headers["x-request-id"] == "through-the-front"
    path = "/v1/reliability/requests/through-the-front"
    until(lambda: started.get(path).status_code == 200, "its report")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_is_noticed(started, stream):
    """Whoever closes the connection, streaming or not, ends the work on the tier within seconds."""
    name, body = f"left-{stream}", QUESTION | {"model": "slow", "stream": stream}
    with httpx.Client(timeout=httpx.Timeout(30, read=30 if stream else 1.0)) as http:
        request = http.build_request(
            "POST", f"{started.url}/v1/chat/completions", json=body, headers={"x-request-id": name}
        )
        if stream:
            next(http.send(request, stream=True).iter_bytes())
        else:
            with pytest.raises(httpx.ReadTimeout):
                http.send(request)
    path = f"/v1/reliability/requests/{name}"
    until(lambda: started.get(path).status_code == 200, "its report", wait_s=10)

    assert started.get(path).json()["outcome"] == "client_left"


def test_what_is_set_already_stays():
    """The user's own environment goes before the file, and HAProxy can be switched off."""
    given = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}
    flags = environment(ROOT / "serve.env", given)

    assert flags["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert flags["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "0"
    assert "RAY_SERVE_HAPROXY_BINARY_PATH" not in flags
    assert environment(ROOT / "no-such.env", given) == given


@pytest.mark.parametrize(("files", "connections"), [(resource.RLIM_INFINITY, 8192), (20_000, 7897), (4096, 1536)])
def test_haproxy_asks_for_no_more_files_than_it_may_have(monkeypatch, files, connections):
    """HAProxy ends at its start where it can't have the files that its connections may take: 2.5 for each."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    flags = environment(ROOT / "serve.env", {})

    assert flags.get("RAY_SERVE_HAPROXY_MAXCONN", str(connections)) == str(connections)


def test_ctrl_c_ends_it(started):
    """Ctrl-C ends the server with exit code 0 and leaves no process. (The last test here.)"""
    children = psutil.Process(started.process.pid).children(recursive=True)
    started.process.send_signal(signal.SIGINT)

    assert started.process.wait(60) == 0
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []


def _http_answer(port: int) -> bytes:
    """What a plain HTTP request gets, where that is HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer, contextlib.suppress(OSError):
        peer.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = peer.recv(4096)
        return answer if answer.startswith(b"HTTP") else b""
    return b""


def _grpc_answer(port: int) -> grpc.StatusCode:
    """How a call without a token to a replica's own service ends."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary("/ray.serve.ASGIService/HandleRequest")(b"", timeout=10)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def _loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
