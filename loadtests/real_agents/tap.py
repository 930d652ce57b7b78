"""A proxy on loopback between one run of an agent and the server: passes everything on as it is, and keeps a record."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from tests.support.loopback import LoopbackHandler, LoopbackServer

Kept = TypeVar("Kept", bound="Tap")
ANSWER_BYTES_MAX = 4 * 1024 * 1024
TIMEOUT_S = 600.0  # beyond any answer of a small model on a slow machine
HOP_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One chat completion. `at_s`: when it was asked for, since the tap began; `answer`: the assistant's message, or
    the error; `loop`: what the server said of it."""

    at_s: float
    body: dict[str, Any]
    status: int
    answer: dict[str, Any]
    loop: str | None
    session: str


@dataclass
class Tap:
    """What has gone through."""

    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def keep(self, at_s: float, path: str, body: bytes, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        """Keep one exchange, if it is a chat completion."""
        if not path.rstrip("/").endswith("/chat/completions"):
            return
        answer, report = read_answer(raw)
        loop = headers.get("x-mlx-stack-loop") or report.get("loop")
        session = headers.get("x-mlx-stack-session") or report.get("session") or ""
        self.exchanges.append(Exchange(at_s, json.loads(body), status, answer, loop, session))


def read_answer(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read an answer, whole or streamed: the assistant's message, or `{"error": ...}`, and the server's report."""
    if not raw.lstrip().startswith(b"data:") and b"\ndata:" not in raw:
        whole = json.loads(raw or b"{}")
        return _read_message(whole) if "choices" in whole else whole, whole.get("mlx_stack") or {}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    report: dict[str, Any] = {}
    for line in raw.splitlines():
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        report = chunk.get("mlx_stack") or report
        if "error" in chunk:
            return {"error": chunk["error"], "partly": message}, report
        for choice in chunk.get("choices", []):
            add_delta(message, choice["delta"])
    return message, report


def _read_message(whole: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in whole["choices"][0]["message"].items() if value}


def add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta of a stream to the message that it is a part of."""
    message["content"] += delta.get("content") or ""
    for part in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= part["index"]:
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call = calls[part["index"]]
        call["id"] = part.get("id") or call["id"]
        for key, text in (part.get("function") or {}).items():
            call["function"][key] += text or ""


def _build_handler(tap: Tap, target: str, client: httpx.Client) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        """Passes one request on. HTTP/1.0: the end of an answer is the end of its connection."""

        protocol_version = "HTTP/1.0"

        def post(self) -> None:
            self.get()

        def get(self) -> None:
            """Ask the server, and hand on each piece as it comes."""
            at_s = time.monotonic() - tap.begun
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
            with client.stream(self.command, target + self.path, content=body, headers=headers) as response:
                self.send_response(response.status_code)
                for name, value in response.headers.items():
                    if name.lower() not in HOP_HEADERS | {"server", "date"}:
                        self.send_header(name, value)
                self.end_headers()
                raw = self.copy(response)
            tap.keep(at_s, self.path.partition("?")[0], body, response.status_code, response.headers, raw)

        def copy(self, response: httpx.Response) -> bytes:
            """Hand on the body, and return it; a client that leaves takes the server's answer with it."""
            raw = b""
            with contextlib.suppress(ConnectionError):
                for piece in response.iter_bytes():
                    raw += piece[: ANSWER_BYTES_MAX - len(raw)]
                    self.wfile.write(piece)
                    self.wfile.flush()
            return raw

    return Handler


@contextlib.contextmanager
def listen(target: str, tap: Kept) -> Iterator[Kept]:
    """Stand in front of the server at `target` (no path) for a while; `url` of the `tap` is what the agent is told."""
    with httpx.Client(timeout=TIMEOUT_S) as client, LoopbackServer(_build_handler(tap, target, client)) as server:
        tap.url = server.url
        yield tap
