"""A real HTTP server on loopback that plays OpenRouter, well or badly, and remembers what was asked of it.

    with Upstream() as upstream:
        upstream.plays("some/model", status(429, headers={"Retry-After": "2"}), good("Hello."))
        tier = HostedTier(name="premium", base_url=upstream.base_url, model="some/model")

The plays of a model are used one per request; the last one stays. A model without plays gets `good()`. A play
is a tuple of acts (send bytes, wait, hang, abort the socket), or a function from the request to one.
`Upstream(key="...")` asks for that key, and echoes a wrong one in its error, as careless servers do.

`upstream.log` holds a `Seen` per request: method, path, headers, body, and how it ended: `ended` (the play was
played to its end) or `left` (the client closed the connection before). Connections stay open between requests.

The server runs on its own event loop in its own thread; leaving the `with` block ends both, whatever hangs.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
JOIN_S = 10.0
BODY_BYTES_MAX = 64 * 1024 * 1024


@dataclass
class Seen:
    """One request, as it arrived, and how it ended."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    ended: bool = False
    left: bool = False

    @property
    def body(self) -> Any:
        """The JSON that was sent."""
        return json.loads(self.raw) if self.raw else None

    @property
    def model(self) -> str:
        """The model that was asked for."""
        body = self.body
        return str(body.get("model", "")) if isinstance(body, dict) else ""


@dataclass(frozen=True)
class Head:
    """Status line and headers. Without a content length the body is chunked."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Send:
    """Bytes of the body, as one write (and one HTTP chunk)."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Nothing any more."""


@dataclass(frozen=True)
class Abort:
    """Reset the connection."""


Act = Head | Send | Wait | Hang | Abort
Play = tuple[Act, ...]
Player = Play | Callable[[Seen], Play]

SSE = {"Content-Type": "text/event-stream"}


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One frame with one chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({"id": "gen-1", "model": "up/stream", "choices": [choice]} | more)


def frame(payload: Any) -> bytes:
    """One frame with any JSON."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def words(text: str) -> list[Send]:
    """A write per word."""
    first, *rest = text.split(" ")
    return [Send(chunk({"content": part})) for part in (first, *(f" {word}" for word in rest)) if part]


def tail(finish: str = "stop", usage: Mapping[str, Any] | None = USAGE) -> list[Send]:
    """Finish reason, usage on a chunk without choices, and `[DONE]`."""
    end = [Send(chunk({}, finish))]
    if usage is not None:
        end.append(Send(frame({"id": "gen-1", "model": "up/stream", "choices": [], "usage": usage})))
    return [*end, Send(b"data: [DONE]\n\n")]


def good(
    text: str = "Hello from above.", *, reasoning: str = "", usage: Mapping[str, Any] | None = USAGE
) -> Play:
    """A good answer, one write per word, with OpenRouter's comment before it."""
    thought = [Send(chunk({"reasoning": reasoning}))] if reasoning else []
    return (
        Head(headers=SSE),
        Send(b": OPENROUTER PROCESSING\n\n"),
        *thought,
        *words(text),
        *tail(usage=usage),
    )


def tools(*calls: tuple[str, Any], text: str = "") -> Play:
    """A good answer that calls tools, each call in three pieces. Arguments as a text are sent as they are."""
    sends: list[Send] = words(text) if text else []
    for index, (name, arguments) in enumerate(calls):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = len(written) // 2
        pieces: list[dict[str, Any]] = [
            {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": ""},
            },
            {"index": index, "function": {"arguments": written[:half]}},
            {"index": index, "function": {"arguments": written[half:]}},
        ]
        sends += [Send(chunk({"tool_calls": [piece]})) for piece in pieces]
    return (Head(headers=SSE), *sends, *tail("tool_calls"))


def status(
    code: int,
    message: str = "made to fail",
    *,
    error_code: str | int | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Play:
    """An error with an OpenAI-shaped body."""
    error = {"message": message, "code": code if error_code is None else error_code, "param": param}
    return whole(json.dumps({"error": error}).encode(), status_code=code, headers=headers)


def whole(data: bytes, *, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Play:
    """Any body, all at once, with its length."""
    told = {"Content-Type": "application/json", "Content-Length": str(len(data))} | dict(headers or {})
    return (Head(status_code, told), Send(data))


def plain_json(text: str = "Hello at once.", **message: Any) -> Play:
    """One JSON body, from a server that ignores `stream`."""
    said = {"role": "assistant", "content": text} | message
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return whole(json.dumps({"model": "up/stream", "choices": [choice], "usage": USAGE}).encode())


def slow(seconds: float, text: str = "Hello at last.", *, headers_too: bool = False) -> Play:
    """A good answer whose first token (and, if told so, whose headers) come late."""
    head, *rest = good(text)
    return (Wait(seconds), head, *rest) if headers_too else (head, Wait(seconds), *rest)


def hang(after: int | None = None) -> Play:
    """Silence: before the headers, or after so many words."""
    return (Hang(),) if after is None else (*_first_words(after), Hang())


def cut(after: int | None = None) -> Play:
    """A reset connection: before the headers, or after so many words."""
    return (Abort(),) if after is None else (*_first_words(after), Abort())


def ends_early(after: int = 2) -> Play:
    """A body that ends as HTTP says, but without a finish reason."""
    return _first_words(after)


def malformed(after: int = 2) -> Play:
    """A frame that is not JSON."""
    return (*_first_words(after), Send(b'data: {"choices": [{"delta"\n\n'), *tail())


def no_done() -> Play:
    """A good answer whose `[DONE]` never comes."""
    return good()[:-1]


def error_frame(after: int = 2, code: int | str = 502, message: str = "Provider returned error") -> Play:
    """An error in the middle of the stream, as OpenRouter sends it."""
    error = {"code": code, "message": message}
    sent = frame({"error": error, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]})
    return (*_first_words(after), Send(sent))


def _first_words(count: int) -> Play:
    return (Head(headers=SSE), *words(" ".join(f"w{i}" for i in range(count)))[:count])


class Upstream:
    """The server. A context manager: started inside, gone after."""

    def __init__(self, *, key: str | None = None) -> None:
        self._key = key
        self._plays: dict[str, list[Player]] = {}
        self._log: list[Seen] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="upstream", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def base_url(self) -> str:
        """What to configure a tier with."""
        return f"http://127.0.0.1:{self.port}/api/v1"

    @property
    def log(self) -> list[Seen]:
        """All requests so far, the oldest first."""
        with self._lock:
            return list(self._log)

    def plays(self, model: str, *plays: Player) -> None:
        """Set what the next requests for `model` get; the last of them stays."""
        with self._lock:
            self._plays[model] = list(plays)

    def __enter__(self) -> Upstream:
        self._thread.start()
        if not self._ready.wait(JOIN_S):
            raise RuntimeError("the upstream didn't start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            raise RuntimeError("the upstream didn't stop")

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        inlet = _Inlet(reader)
        try:
            while (seen := await _request(inlet)) is not None:
                with self._lock:
                    self._log.append(seen)
                if not await self._answer(seen, inlet, writer):
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            self._connections.discard(task)
            inlet.close()
            writer.transport.abort()

    async def _answer(self, seen: Seen, inlet: _Inlet, writer: asyncio.StreamWriter) -> bool:
        """Play, and watch meanwhile for a client that leaves. False: the connection is of no more use."""
        playing = asyncio.create_task(_play(self._choose(seen), writer))
        try:
            while not playing.done():
                arrived = inlet.arriving()
                await asyncio.wait({playing, arrived}, return_when=asyncio.FIRST_COMPLETED)
                if playing.done() or await inlet.fill():
                    continue
                seen.left = True
                return False
            alive = playing.result()
            seen.ended = True
            return alive
        except ConnectionError:
            seen.left = True
            return False
        finally:
            playing.cancel()

    def _choose(self, seen: Seen) -> Play:
        if not seen.path.endswith("/chat/completions"):
            return status(404, f"no route {seen.path}")
        given = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is not None and given != self._key:
            return status(401, f"Incorrect API key provided: {given}", error_code="invalid_api_key")
        with self._lock:
            plays = self._plays.get(seen.model) or [good()]
            player = plays.pop(0) if len(plays) > 1 else plays[0]
        return player(seen) if callable(player) else player


class _Inlet:
    """The bytes that come in, read by one task that may outlive a request, so that no byte is lost between two."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.buffer = bytearray()
        self._reader = reader
        self._arriving: asyncio.Task[bytes] | None = None

    def arriving(self) -> asyncio.Task[bytes]:
        """The read that is under way."""
        if self._arriving is None:
            self._arriving = asyncio.create_task(self._reader.read(65536))
        return self._arriving

    async def fill(self) -> bool:
        """Add what arrives to the buffer; False at the end."""
        data = await self.arriving()
        self._arriving = None
        self.buffer += data
        return bool(data)

    def close(self) -> None:
        """Stop reading."""
        if self._arriving is not None:
            self._arriving.cancel()


async def _request(inlet: _Inlet) -> Seen | None:
    while (end := inlet.buffer.find(b"\r\n\r\n")) < 0:
        if not await inlet.fill():
            return None
    lines = inlet.buffer[:end].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    size = int(headers.get("content-length", "0"))
    assert size <= BODY_BYTES_MAX
    while len(inlet.buffer) < end + 4 + size:
        if not await inlet.fill():
            return None
    raw = bytes(inlet.buffer[end + 4 : end + 4 + size])
    del inlet.buffer[: end + 4 + size]
    method, path, _ = lines[0].split(" ", 2)
    return Seen(method=method, path=path, headers=headers, raw=raw)


async def _play(play: Play, writer: asyncio.StreamWriter) -> bool:
    """Do the acts. True where the connection may be used again."""
    chunked = False
    for act in play:
        match act:
            case Head():
                chunked = "Content-Length" not in act.headers
                framing = {"Transfer-Encoding": "chunked"} if chunked else {}
                told = dict(act.headers) | framing
                fields = "".join(f"{name}: {value}\r\n" for name, value in told.items())
                writer.write(f"HTTP/1.1 {act.status} Played\r\n{fields}\r\n".encode("latin-1"))
            case Send():
                writer.write(b"%x\r\n%b\r\n" % (len(act.data), act.data) if chunked else act.data)
            case Wait():
                await asyncio.sleep(act.seconds)
            case Hang():
                await asyncio.get_running_loop().create_future()
            case Abort():
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return True
