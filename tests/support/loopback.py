"""Servers on a free port of loopback, each on threads of its own until its block ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = tuple[int, object] | tuple[int, object, Mapping[str, str]]


class LoopbackServer(ThreadingHTTPServer):
    """A server for `with`. Its handler finds it as `self.server`, and in it whatever it is to answer from."""

    daemon_threads = True

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answers in whole, and says nothing of it. `get` answers a HEAD too."""

    server: Any
    protocol_version = "HTTP/1.1"

    def get(self) -> None:
        self.reply(status=404)

    def post(self) -> None:
        self.reply(status=404)

    def do_GET(self) -> None:
        self.get()

    def do_HEAD(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def reply(self, data: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with these bytes; a HEAD with their number alone."""
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class JsonServer(LoopbackServer):
    """Answers each path with JSON. `answers`: status, body and headers by path, without its query; any other gets
    `otherwise`. `asked`: path and key of each request."""

    def __init__(self, answers: Mapping[str, Answer] | None = None, otherwise: Answer = (404, {})) -> None:
        super().__init__(_JsonHandler)
        self.answers, self.otherwise = dict(answers or {}), otherwise
        self.asked: list[tuple[str, str | None]] = []


class _JsonHandler(LoopbackHandler):
    def get(self) -> None:
        self.server.asked.append((self.path, self.headers.get("authorization")))
        status, body, *headers = self.server.answers.get(self.path.partition("?")[0], self.server.otherwise)
        self.reply(json.dumps(body).encode(), status, *headers)
