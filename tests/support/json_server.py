"""A server on loopback that answers each path with JSON, and remembers what it was asked."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, object] | tuple[int, object, Mapping[str, str]]


class JsonServer(ThreadingHTTPServer):
    """`answers`: status, body and headers by path, without its query; any other gets `otherwise`. `asked`: path and
    key of each request."""

    daemon_threads = True

    def __init__(self, answers: Mapping[str, Answer] | None = None, otherwise: Answer = (404, {})) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.otherwise = dict(answers or {}), otherwise
        self.asked: list[tuple[str, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> "JsonServer":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: JsonServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("authorization")))
        status, body, *headers = self.server.answers.get(self.path.partition("?")[0], self.server.otherwise)
        self.send_response(status)
        for name, value in (headers[0] if headers else {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
