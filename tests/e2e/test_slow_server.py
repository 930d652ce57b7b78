"""The real server, as `make serve` starts it, with small bounds: slow clients, behind HAProxy and without it.

What each bound does is shown in `tests/test_slow_clients.py`; here it is that both doors of the server have them, that
they outlive HAProxy's reloads, and that a stream which nobody reads ends on the tier and on the books.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from deployments.cli.front import environment, free_port
from tests.doors import Raw, ask
from tests.repository import ROOT
from tests.serving import ends_with_family, until

pytestmark = pytest.mark.ray

BOUND_S = 30.0
BOUNDS = {"MLX_STACK_HEADER_S": "2", "MLX_STACK_UNREAD_S": "2"}
TIERS = {
    "fast": {"kind": "scripted", "script": [{"answer": "one two three"}]},
    # Far more than all buffers on the way hold.
    "long": {"kind": "scripted", "script": [{"answer": "word" * 2000 + " " + ("word" * 2000 + " ") * 1000}]},
}
DOORS = [
    pytest.param("1", marks=pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no HAProxy there")),
    pytest.param("0"),
]


@dataclass
class Started:
    """The server. `haproxy` says which door it has."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    haproxy: bool

    def get(self, path: str) -> httpx.Response:
        """One GET."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30)

    def ready(self) -> bool:
        """Whether it answers."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        with contextlib.suppress(httpx.TransportError):
            return self.get("/ready").status_code == 200
        return False


@pytest.fixture(scope="module", params=DOORS, ids=["haproxy", "direct"])
def started(request) -> Iterator[Started]:
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        port, path, log = free_port(), Path(folder) / "c.yaml", Path(folder) / "log"
        escalation = {"chain": list(TIERS)}
        budget = {"max_output_tokens": 10_000_000, "per_session": None, "per_hour": None}
        reliability = {"escalation": escalation, "token_budget": budget, "loop_detection": {"enabled": False}}
        args = {"tiers": TIERS, "reliability": reliability, "state": {"path": folder}, "server": {"body_s": 1}}
        app = {"name": "s", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
        config = {"proxy_location": "HeadOnly", "http_options": {"host": "127.0.0.1", "port": port}}
        path.write_text(yaml.safe_dump(config | {"applications": [app]}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_SERVE_", "RAY_AUTH_"))}
        own = {"RAY_TMPDIR": folder, "HOME": folder, "RAY_SERVE_ENABLE_HA_PROXY": request.param} | BOUNDS
        with log.open("wb") as out:
            command = [Path(sys.executable).with_name("serve"), "run", path]
            flags = environment(ROOT / "serve.env", kept | own)
            process = subprocess.Popen(command, cwd=ROOT, env=flags, stdout=out, stderr=out, start_new_session=True)
        with ends_with_family(process):
            server = Started(process, port, log, request.param == "1")
            until(server.ready, "the server is up", wait_s=300)
            yield server


def chat(model: str, request_id: str, **more: Any) -> str:
    """The bytes of one request."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], **more})
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
    replicas = [
        child
        for child in psutil.Process(started.process.pid).children(recursive=True)
        if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::ServeReplica:s:Router")
    ]
    assert len(replicas) == 1
    os.kill(replicas[0].pid, signal.SIGKILL)
    statuses = set()

    def back() -> bool:
        answer = ask(started.port, "/ready")
        if started.haproxy and answer.status not in (0, 200):  # 0: the Router died with this very request
            statuses.add((answer.status, answer.error["type"]))
        return answer.status == 200 and replicas[0].is_running() is False

    until(back, "a new Router answers", wait_s=120)
    assert not started.haproxy or statuses <= {(503, "server_error"), (502, "server_error")}
    answer = Raw(started.port).send("GET /rea").rest()

    assert answer.status == 408
    assert answer.elapsed_s < BOUND_S
