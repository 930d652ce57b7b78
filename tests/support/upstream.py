"""A real HTTP server on loopback that plays OpenRouter, well or badly, and remembers what was asked of it.

    with Upstream() as upstream:
        upstream.plays("some/model", status(429, headers={"Retry-After": "2"}), good("Hello."))
        tier = HostedTier(name="premium", base_url=upstream.base_url, model="some/model")

The plays of a model (`tests.support.plays`) are used one per request; the last one stays. A model without plays gets
`good()`. With a `key` the server asks for it, and echoes a wrong one in its error, as careless servers do. The `log`
holds a `Seen` per request. Connections are kept between requests. The server has an event loop and a thread of its own;
leaving the `with` block ends both, whatever hangs.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

from tests.support.plays import Abort, Hang, Head, Play, Player, Seen, Send, Wait, good, status

JOIN_S = 10.0
BODY_BYTES_MAX = 64 * 1024 * 1024


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

    def __exit__(self, *_: object) -> None:
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
                seen.client = writer.get_extra_info("peername")[1]
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
        if not seen.path.endswith(("/completions", "/embeddings")):
            return status(404, f"no route {seen.path}")
        given = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is not None and given != self._key:
            return status(401, f"Incorrect API key provided: {given}", error_code="invalid_api_key")
        with self._lock:
            plays = self._plays.get(seen.model) or [good()]
            player = plays.pop(0) if len(plays) > 1 else plays[0]
        return player(seen) if callable(player) else player


class _Inlet:
    """The bytes that come in, read by a task that may outlive a request, so that none is lost between two."""

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
