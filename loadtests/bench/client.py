"""The load generator: closed loop, one kept connection a client, and as little Python per request as can be.

It shares the machine with what it measures, so it parses no JSON: an answer's end is its Content-Length or the last
chunk, its first token the first `data:` of the body. A stream is good that says `[DONE]` at its end and `"error"`
nowhere; whatever else came is a fault, and no fault is among the durations.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 60.0
AFTER_A_FAULT_S = 0.05  # a refused connection costs next to nothing, and whoever asks again at once a whole core
LENGTH = b"\r\ncontent-length:"
ERROR_FRAME = (b'"error":{', b'"error": {')
TAIL_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to ask: `clients` at a time, for `seconds`, and at least `least` requests a client."""

    url: str
    body: dict[str, Any]
    clients: int
    seconds: float
    key: str = ""
    least: int = 1


@dataclass(slots=True)
class Outcome:
    """What came of it. Durations in milliseconds, of answers with status 200 alone."""

    total_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    failed: int = 0
    elapsed_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Good answers a second."""
        return len(self.total_ms) / self.elapsed_s if self.elapsed_s else 0.0


def _build_request(load: Load) -> bytes:
    parts = urlsplit(load.url)
    raw = json.dumps(load.body).encode()
    lines = [
        f"POST {parts.path}/v1/chat/completions HTTP/1.1",
        f"host: {parts.netloc}",
        "content-type: application/json",
        f"content-length: {len(raw)}",
        f"authorization: Bearer {load.key or 'sk-bench'}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


async def drive(load: Load) -> Outcome:
    """Run the load."""
    outcome = Outcome()
    began = time.perf_counter()
    request = _build_request(load)
    await asyncio.gather(*(_run_client(load, request, began + load.seconds, outcome) for _ in range(load.clients)))
    outcome.elapsed_s = time.perf_counter() - began
    return outcome


async def _run_client(load: Load, request: bytes, until: float, outcome: Outcome) -> None:
    done, streams = 0, None
    while done < load.least or time.perf_counter() < until:
        done += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                if streams is None:
                    parts = urlsplit(load.url)
                    streams = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
                kept = await _ask_once(request, *streams, outcome)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            _count_fault(outcome, type(error).__name__)
            kept = False
        if not kept:
            await asyncio.sleep(AFTER_A_FAULT_S)
            if streams is not None:
                streams[1].close()
                streams = None
    if streams is not None:
        streams[1].close()


async def _ask_once(
    request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outcome: Outcome
) -> bool:
    """Send one request; return whether the connection may be used again."""
    began = time.perf_counter()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 "):
        raise OSError("what came is no answer")
    first, fault = 0.0, ""
    at = head.find(LENGTH)
    if at >= 0:
        at += len(LENGTH)
        await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
    else:
        first, fault = await _read_stream(reader)
    now = time.perf_counter()
    status = head[9:12].decode()
    if status != "200" or fault:
        _count_fault(outcome, fault or status)
    else:
        outcome.total_ms.append((now - began) * 1000)
        outcome.first_ms.append(((first or now) - began) * 1000)
    return b"connection: close" not in head


async def _read_stream(reader: asyncio.StreamReader) -> tuple[float, str]:
    """Read a stream; return when its first piece came, and what was wrong with it."""
    first, tail, wrong = 0.0, b"", False
    while not tail.endswith(b"0\r\n\r\n"):
        piece = await reader.read(65536)
        if not piece:
            raise asyncio.IncompleteReadError(tail, None)
        if not first and b"data:" in piece:
            first = time.perf_counter()
        tail += piece
        wrong = wrong or any(mark in tail for mark in ERROR_FRAME)
        tail = tail[-TAIL_BYTES:]
    return first, "error frame" if wrong else "" if b"[DONE]" in tail else "no end"


def _count_fault(outcome: Outcome, name: str) -> None:
    outcome.failed += 1
    outcome.faults[name] = outcome.faults.get(name, 0) + 1
