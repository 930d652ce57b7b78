"""Raw clients that misbehave, and a small app behind each of the two doors: HAProxy as Ray configures it, and uvicorn.

The app is the edge of the real one (its errors, its body reader, its event stream) without Ray behind it, so a door
with other bounds starts in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from deployments.api.body import Bodies
from deployments.api.exchange import EventStream
from deployments.api.responses import json_response
from deployments.cli.serve_command import environment
from deployments.config.free_port import free_port
from deployments.errors import ApiError
from deployments.listener.direct import ListenerProtocol
from deployments.listener.haproxy import WRAPPER
from tests.support.repository import ROOT
from tests.support.serving import until

# Between two bytes of a client that dribbles.
DRIBBLE_S = 0.05


@dataclass(frozen=True)
class Answer:
    """What a connection got until it ended; `status` 0: no HTTP. `reset`: it ended hard."""

    raw: bytes
    reset: bool
    elapsed_s: float

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1]) if self.raw.startswith(b"HTTP/1.") else 0

    @property
    def headers(self) -> dict[str, str]:
        lines = self.raw.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw.split(b"\r\n\r\n", 1)[1])["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class Raw:
    """One TCP connection. `buffer_bytes`: of what it may receive without reading."""

    def __init__(self, port: int, *, source: str = "127.0.0.1", buffer_bytes: int | None = None) -> None:
        self.peer = socket.socket()
        if buffer_bytes is not None:
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.peer.bind((source, 0))
        self.peer.settimeout(20)
        with contextlib.suppress(ConnectionResetError):  # closed before it was made: as good as just after
            self.peer.connect(("127.0.0.1", port))
        self.begun_s = time.monotonic()

    def send(self, *parts: str | bytes) -> Raw:
        """Send at once what the server still takes."""
        for part in parts:
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                self.peer.sendall(part.encode("latin-1") if isinstance(part, str) else part)
        return self

    def dribble(self, piece: str, bound_s: float) -> Answer:
        """Send `piece` again and again until the server answers or closes."""
        end_s = time.monotonic() + bound_s
        while time.monotonic() < end_s:
            if select.select([self.peer], [], [], DRIBBLE_S)[0]:
                return self.rest()
            self.send(piece)
        raise AssertionError(f"still open after {bound_s:g} s of dribbling")

    def rest(self, bound_s: float = 20.0) -> Answer:
        got, reset = bytearray(), False
        self.peer.settimeout(bound_s)
        try:
            while data := self.peer.recv(65536):
                got += data
        except ConnectionError:
            reset = True
        self.close()
        return Answer(bytes(got), reset, time.monotonic() - self.begun_s)

    def some(self, bytes_max: int) -> bytes:
        return self.peer.recv(bytes_max)

    def through(self, end: bytes) -> bytes:
        got = b""
        while not got.endswith(end):
            part = self.peer.recv(65536)
            assert part, got
            got += part
        return got

    @property
    def open(self) -> bool:
        """Whether nothing has come and nothing has ended."""
        return not select.select([self.peer], [], [], 0)[0]

    def close(self) -> None:
        self.peer.close()


def ask(port: int, path: str = "/quick", *headers: str, source: str = "127.0.0.1") -> Answer:
    lines = "".join(f"{line}\r\n" for line in ("host: 127.0.0.1", "connection: close", *headers))
    return Raw(port, source=source).send(f"GET {path} HTTP/1.1\r\n{lines}\r\n").rest()


@dataclass
class Back:
    """The app, and what it has seen. `port` is the door's."""

    port: int = 0
    body_s: float = 0.6
    readers_max: int = 64
    streams: int = 0
    reading: int = 0
    ended: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        bodies = Bodies(self.readers_max)

        async def read(request: Request) -> Response:
            self.reading += 1
            with contextlib.ExitStack() as ending:
                body = await bodies.read(request, bytes_max=16 << 20, first_s=self.body_s, ending=ending)
            return PlainTextResponse(f"{len(body)} bytes")

        async def stream(request: Request) -> Response:
            return EventStream(self.frames(float(request.query_params.get("pause_s", 0))), {})

        async def quick(_: Request) -> Response:
            return PlainTextResponse("quick")

        async def large(request: Request) -> Response:
            return PlainTextResponse("x" * int(request.query_params["bytes"]))

        async def error(_: Request, error: Exception) -> Response:
            assert isinstance(error, ApiError)
            return json_response(error.body(), status=error.status, headers=error.headers())

        quick_ones = [Route(path, quick) for path in ("/quick", "/-/healthz")]
        routes = [Route("/read", read, methods=["POST"]), Route("/stream", stream), Route("/large", large), *quick_ones]
        return Starlette(routes=routes, exception_handlers={ApiError: error})

    async def frames(self, pause_s: float) -> AsyncGenerator[bytes, None]:
        """A stream that ends only with its client."""
        self.streams += 1
        try:
            while True:
                yield b"data: " + b"x" * 1000 + b"\n\n"
                await asyncio.sleep(pause_s)
        finally:
            self.ended.append("stream")


@contextlib.contextmanager
def behind_uvicorn(back: Back, monkeypatch: Any, *, header_s: float = 1.0, unread_s: float = 1.0) -> Iterator[Back]:
    """The app behind our protocol alone."""
    monkeypatch.setenv("MLX_STACK_HEADER_S", str(header_s))
    monkeypatch.setenv("MLX_STACK_UNREAD_S", str(unread_s))
    back.port = free_port()
    config = uvicorn.Config(
        back.app(), host="127.0.0.1", port=back.port, http=ListenerProtocol, log_level="critical", timeout_keep_alive=30
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, "uvicorn listens")
    try:
        yield back
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        assert not thread.is_alive()


def rays_config(folder: Path, port: int, back_port: int | None) -> tuple[Path, dict[str, str]]:
    """HAProxy's configuration as Ray writes it, with one Router or none, and the environment of its start."""
    flags = environment(ROOT / "serve.env", dict(os.environ) | {"RAY_TMPDIR": str(folder)})
    writer = (
        "import sys; from ray.serve._private.haproxy import *; from ray.serve.config import HTTPOptions\n"
        "front, back, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]\n"
        "servers = [ServerConfig(name='r', host='127.0.0.1', port=int(back))] if back else []\n"
        "backends = {'b': BackendConfig(name='b', path_prefix='/', app_name='b', servers=servers)} if back else {}\n"
        "config = HAProxyConfig(http_options=HTTPOptions(host='127.0.0.1', port=front), is_head=True)\n"
        "api = HAProxyApi(cfg=config, backend_configs=backends, config_file_path=path)\n"
        "api._generate_config_file_internal(); print(config.socket_path)\n"
    )
    path = folder / "haproxy.cfg"
    command = [os.environ.get("PYTHON", flags["MLX_STACK_PYTHON"]), "-c", writer, str(port), str(back_port or "")]
    subprocess.run([*command, str(path)], env=flags, check=True, capture_output=True)
    return path, flags


@contextlib.contextmanager
def haproxy(path: Path, flags: dict[str, str], port: int) -> Iterator[None]:
    """HAProxy as Ray starts it: through our script."""
    log = path.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen([WRAPPER, "-db", "-f", path], env=flags, stdout=out, stderr=out)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
        return False

    try:
        until(listens, "HAProxy listens")
        yield
    finally:
        process.kill()
        process.wait(20)


@contextlib.contextmanager
def behind_haproxy(back: Back, folder: Path, monkeypatch: Any, *, of_one: int = 0, **bounds: float) -> Iterator[Back]:
    """The app behind HAProxy, with the same bounds (in whole seconds for what is unread)."""
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    with behind_uvicorn(back, monkeypatch, **bounds):
        if of_one:
            monkeypatch.setenv("MLX_STACK_CONNECTIONS_OF_ONE", str(of_one))
        port = free_port()
        path, flags = rays_config(folder, port, back.port)
        with haproxy(path, flags, port):
            back.port = port
            until(lambda: ask(port).status == 200, "the app is up behind HAProxy")
            yield back
