"""The server as `make serve` starts it, in a terminal of its own, behind HAProxy and without it, with small bounds for
slow clients: what it listens on, what it says, what it does with who is slow or leaves, and how it ends.

What each bound does is shown in `tests/unit/deployments/listener/test_slow_clients.py`; here it is that both doors of
the server have them, that they outlive HAProxy's reloads, and that a stream which nobody reads ends on the tier and in
the ledger.
"""

import contextlib
import ipaddress
import json
import os
import socket
import sys
import time
from typing import Any

import grpc
import httpx
import psutil
import pytest

from loadtests.running import short_folder
from loadtests.stops import STREAMS, Streams, build_script
from loadtests.terminal import terminal
from tests.support.config_files import make_document
from tests.support.listeners import Raw, ask
from tests.support.own_server import Started, start_server
from tests.support.reach import as_nobody, is_reachable, list_abstract, list_files, list_ports
from tests.support.serving import until

pytestmark = pytest.mark.ray

BOUND_S = 30.0
BOUNDS = {"MLX_STACK_HEADER_S": "2", "MLX_STACK_UNREAD_S": "2"}
TIERS = {
    "fast": {"kind": "scripted", "script": [{"answer": "one two three"}]},
    "short": {"kind": "scripted", "script": build_script(30, 0.1)},
    # Its first answer is far more than all buffers on the way hold.
    "long": {
        "kind": "scripted",
        "script": [{"when": {"last_user": "unread"}, "answer": ("word" * 2000 + " ") * 1000}, *build_script(60, 0.5)],
    },
}
QUESTION = {"messages": [{"role": "user", "content": "hi"}]}
DOORS = [
    pytest.param("1", marks=pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no HAProxy there")),
    pytest.param("0", marks=[pytest.mark.nightly] * sys.platform.startswith("linux")),
]
# What a terminal must never be shown.
NOISE = ("*** SIG", "PC: @", "Traceback", "ray::")


@pytest.fixture(scope="module", params=DOORS, ids=["haproxy", "direct"])
def started(request):
    with short_folder() as folder:
        folder.chmod(0o755)  # what is the user's alone must be so by the server's own doing
        budget = {"max_output_tokens": 10_000_000, "per_session": None, "per_hour": None}
        chain = {"escalation": {"chain": list(TIERS)}}
        reliability = {**chain, "token_budget": budget, "loop_detection": {"enabled": False}}
        state = {"path": str(folder / "state")}
        (app,) = make_document(TIERS, reliability=reliability, state=state, server={"body_s": 1})["applications"]
        config = {"proxy_location": "HeadOnly", "applications": [app | {"name": "s"}]}
        flags = {"RAY_SERVE_ENABLE_HA_PROXY": request.param} | BOUNDS
        with start_server(folder, config, flags, "fast") as server:
            yield server


def has_haproxy(server: Started) -> bool:
    return server.flags["RAY_SERVE_ENABLE_HA_PROXY"] == "1"


def chat(model: str, request_id: str, **more: Any) -> str:
    """The bytes of one request, which says its own name."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": request_id}], **more})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-request-id: {request_id}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"


def test_slow_heads_and_bodies_are_ended(started):
    """Four kinds of slow clients, a crowd of each; a bystander is served all the while."""
    post = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    begins = [
        "",
        "GET /rea",
        post + "content-length: 9999\r\n\r\n{",
        post + "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ]
    crowd = [Raw(started.port).send(begins[i % 4]) for i in range(200)]
    while any(client.open for client in crowd):
        assert started.get("/health").status_code == 200
    answers = [client.rest() for client in crowd]

    assert {answer.status for answer in answers[0::4]} == {0}
    assert {answer.status for answer in answers[1::4]} == {408}
    for answer in answers[2::4] + answers[3::4]:
        assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert max(answer.elapsed_s for answer in answers) < BOUND_S


def test_a_stream_that_nobody_reads_ends_on_the_tier(started):
    """The client takes nothing: the request ends as one whose client has left, with less used than there was to say,
    and nothing stays reserved."""
    sent = chat("long", "unread", stream=True, max_tokens=9_000_000)
    client = Raw(started.port, buffer_bytes=4096).send(sent)
    path = "/v1/reliability/requests/unread"
    until(lambda: started.get(path).status_code == 200, "its report", wait_s=BOUND_S)
    report = started.get(path).json()
    client.close()

    assert report["outcome"] == "client_left"
    session = started.get(f"/v1/reliability/sessions/{report['session']}").json()
    assert session["reserved_tokens"] == 0


def test_large_headers_are_told_off_in_words(started):
    """60 KB of cookies are taken; more is a 431 in OpenAI's shape."""
    assert ask(started.port, "/health", "cookie: " + "c" * 60_000).status == 200
    answer = ask(started.port, "/health", "cookie: " + "c" * 80_000)

    assert (answer.status, answer.error["code"], answer.reset) == (431, "headers_too_large", False)


def test_the_bounds_outlive_a_new_router(started):
    """Where the Router dies, HAProxy is configured anew: with what this server adds. Meanwhile it says so."""
    (router,) = started.find("ray::ServeReplica:s:Router")
    router.kill()
    statuses = set()

    def back() -> bool:
        answer = ask(started.port, "/ready")
        if has_haproxy(started) and answer.status not in (0, 200):  # 0: the Router died with this very request
            statuses.add((answer.status, answer.error["type"]))
        return answer.status == 200 and router.is_running() is False

    until(back, "a new Router answers", wait_s=120)
    assert not has_haproxy(started) or statuses <= {(503, "server_error"), (502, "server_error")}
    answer = Raw(started.port).send("GET /rea").rest()

    assert answer.status == 408
    assert answer.elapsed_s < BOUND_S


# What listens, by its command: what guards it. Whoever is not in this table is not known here.
GUARDS = {
    "haproxy": "the server's API keys, behind it (without keys: loopback, and no page from elsewhere)",
    "ray::ProxyActor": "the same keys at the HTTP port; Ray's token at the gRPC port",
    "ray::ServeReplica:s:Router": "the same keys at the HTTP port; Ray's token at the gRPC ports",
    "ray::ServeReplica:s:": "Ray's token",
    "ray::ServeController": "Ray's token",
    "ray::HAProxyManager": "Ray's token",
    "ray::MemoryPressure": "Ray's token",
    "ray::SessionState": "Ray's token",
    "ray::RuntimeEnvAgent": "Ray's token",
    "ray::DashboardAgent": "Ray's token; none at its port for Prometheus, which shows figures, no key and no text",
    "gcs_server": "Ray's token",
    "raylet": "Ray's token",
    "deployments.running.driver": "Ray's token",
}
OPEN_PAGES = ("ray::DashboardAgent",)


def test_every_port_is_on_loopback_and_has_a_guard(started):
    """Without API keys no socket of the server listens for other machines, calls between replicas included. Whatever
    listens is known by name, and a local user without Ray's token gets nothing of Ray's but pages of figures."""
    ports = until(lambda: len(p := list_ports(started.processes())) > 5 and p, "Ray and the server listen")

    assert [port for port in ports if not _loopback(port[0])] == []
    assert [port for port in ports if not any(name in port[2] for name in GUARDS)] == []
    for _, port, command in ports:
        if not any(name in command for name in (*OPEN_PAGES, "haproxy", "ProxyActor", ":Router")):
            assert _http_answer(port).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 401 Unauthorized"), command
        if "ServeReplica" in command and not _http_answer(port):
            assert _grpc_answer(port) in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED), command


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says what is open")
def test_no_file_or_socket_is_reachable_for_another_user(started):
    """Every file, folder and socket that any process of the server has made or holds open to write is its user's
    alone, or lies in a folder that is: Ray's folders of mode 0777 and HAProxy's sockets as well. RAY_TMPDIR itself is
    open to all here."""
    base = started.folder / f"ms-{os.geteuid()}"
    files = list_files(started.processes(), [base, started.folder / "state", started.folder / ".ray"])

    assert len(files) > 50
    assert any(path.name.startswith("state-") and path.is_socket() for path in files)
    assert not has_haproxy(started) or any(path.name.startswith("admin.sock") for path in files)
    assert [path for path in files if is_reachable(path)] == []
    assert list_abstract(started.processes()) == []
    logs = [path for path in files if "logs" in path.parts and path.is_file()]
    assert [path for path in logs if path.stat().st_mode & 0o077] == []


HIJACK = """
import os, socket, sys
base = sys.argv[1]
for path in sys.argv[2:]:
    for attack in (
        lambda: os.rename(path, path + ".gone"),
        lambda: os.unlink(path),
        lambda: socket.socket(socket.AF_UNIX).connect(path),
        lambda: socket.socket(socket.AF_UNIX).bind(path + "-theirs"),
        lambda: os.listdir(os.path.dirname(path)),
        lambda: os.rename(base, base + ".gone"),
    ):
        try:
            attack()
            print("SUCCESS", path)
        except PermissionError:
            print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_not_take_the_place_of_a_socket(started):
    """Neither renamed nor removed, nor called, nor joined by one of its own: not the state actor's, which was once
    taken over so, not Ray's, not HAProxy's. The server answers as before."""
    base = started.folder / f"ms-{os.geteuid()}"
    sockets = [path for path in list_files(started.processes(), [base]) if path.is_socket()]
    assert len(sockets) >= 3
    said = as_nobody(HIJACK, str(base), *map(str, sockets)).split()

    assert said == ["refused"] * 6 * len(sockets)
    assert started.get("/ready").status_code == 200


def test_haproxy_is_in_front_where_there_is_one(started):
    """The fast way is really taken: HAProxy holds the front door, unless it is switched off."""
    (command,) = {command for _, port, command in list_ports(started.processes()) if port == started.port}

    assert ("haproxy" in command) == has_haproxy(started)


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
    report = started.leave(f"left-{stream}", QUESTION | {"model": "long"}, 1.0, stream=stream, within_s=10)

    assert report["outcome"] == "client_left"
    assert report["attempts"][0]["cancelled"] is True


def test_the_terminal_says_what_a_client_needs(started):
    """URL, tiers with state, two lines to paste, the page and the log; nothing of Ray's. A second server on the port is
    refused with the name of the first."""
    until(lambda: "Ctrl-C stops it" in started.screen.text, "it says that it is up")
    with terminal(started.command, started.flags) as second:
        until(second.has_ended, "the second is refused")
        assert second.code == 1
        assert f"is taken by another server of this kind, process {started.screen.pid}" in second.text
    text = started.screen.text

    assert f"export OPENAI_BASE_URL={started.url}/v1" in text
    assert "export OPENAI_API_KEY=unused" in text
    assert all(f"  {tier}" in text for tier in TIERS)
    assert "control room: http://127.0.0.1:" in text
    assert (started.folder / f"ms-{os.geteuid()}" / "logs" / f"serve-{started.port}.log").read_text() != ""


def test_ctrl_c_ends_it(started):
    """Under load Ctrl-C ends the server within ten seconds with exit code 0 and one line, and leaves no process. Each
    stream has ended whole, or in an error frame. (The last test here.)"""
    streams = Streams(started.url)
    streams.start(STREAMS)
    children = started.processes()[1:]
    began_s = time.monotonic()
    started.screen.type(b"\x03")
    until(started.screen.has_ended, "it is stopped")

    assert started.screen.code == 0
    assert time.monotonic() - began_s < 10
    assert f"stopping: finishing {STREAMS} requests, at most 4 s; again to stop now" in started.screen.text
    assert not any(words in started.screen.text for words in NOISE)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    streams.join()
    assert set(streams.ends) == {"done", "error"}


def _http_answer(port: int) -> bytes:
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
