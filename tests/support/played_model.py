"""A chat completions server on loopback whose model is a function: what an evaluation can be run against at once.

    with PlayedServer({"m": play}) as server: ChatClient(server.url).ask(...)

`play(body)` returns the message of the answer (`say`, `call`), or a status with an error object.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
Play = Callable[[Mapping[str, Any]], Message | tuple[int, dict[str, Any]]]


def say(text: str) -> Message:
    """A message of text."""
    return {"role": "assistant", "content": text}


def call(name: str, **arguments: Any) -> Message:
    """A message with one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


class PlayedServer:
    """The server; `asked` has the body and the headers of each request."""

    def __init__(self, models: Mapping[str, Play], paths: Mapping[str, Any] | None = None) -> None:
        self.models, self.paths = models, dict(paths or {})
        self.asked: list[tuple[Mapping[str, Any], Mapping[str, str]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> PlayedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        played = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    self._send(200, {"data": [{"id": name, "context_length": 4096} for name in played.models]})
                else:
                    known = played.paths.get(self.path)
                    self._send(404 if known is None else 200, known or {"error": {"message": "no such route"}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                played.asked.append((body, dict(self.headers)))
                answer = played.models[body["model"]](body)
                if isinstance(answer, tuple):
                    self._send(*answer)
                elif body.get("stream"):
                    self._stream(answer)
                else:
                    self._send(200, {"choices": [{"message": answer, "finish_reason": "stop"}], "usage": USAGE})

            def _send(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, message: Message) -> None:
                deltas = [{"choices": [{"delta": {"content": word}}]} for word in (message["content"] or "x").split()]
                frames = [*deltas, {"choices": [], "usage": USAGE}]
                data = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data.encode())

        return Handler


USAGE = {"prompt_tokens": 40, "completion_tokens": 4, "total_tokens": 44, "prompt_tokens_details": {"cached_tokens": 8}}
