"""The Unix socket of the state actor, for Routers on its node, beside Ray's calls.

    Link ── step ──▶ SocketActor ═ frames ═▶ StepListener, a thread for each Router ─▶ SessionState.step
      └── questions ──▶ Ray ────────────────────────────────────────────────────────▶ SessionState

Each request waits for a step, and a call through Ray's core costs both processes milliseconds of CPU. So a Router on
the actor's node sends its steps here, one at a time; one on another node, and whatever isn't a step, goes through Ray.
Nothing else differs: the same step, the same answer, the same exceptions.

Measured 2026-11-22 (2 vCPU AMD EPYC, one hosted tier on the upstream of `loadtests.bench`), a request of one client: 17
ms and 23 ms of CPU through Ray, 10 and 12 through the socket; at 32 clients, who share steps, 5 % more requests.

A frame is its length in four bytes and a pickle. Who may connect may run code in the other process, so the socket is
its owner's alone (mode 0600, before anybody can connect); it lies where Ray's own sockets are and goes with them. An
actor that dies closes its sockets, which its Routers see at once; a connection whose call was cancelled or broken is
closed, since what comes on it next would answer another question.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from deployments.state.link import Actor

__all__ = ["SocketActor", "StepListener"]

FRAME_BYTES_MAX = 64 * 1024 * 1024
LENGTH = struct.Struct(">I")
WAITING_MAX = 64  # Routers that connect at the same moment
OWNER_ONLY = 0o177


class StepListener:
    """Answers steps that come through the socket at `path` by calling `step`, for each connection on a thread of its
    own. `step` is called by several threads."""

    def __init__(self, path: Path, step: Callable[..., Any]) -> None:
        self.path = path
        self._step = step
        self._socket = socket.socket(socket.AF_UNIX)
        with suppress(FileNotFoundError):
            path.unlink()  # an earlier incarnation's
        before = os.umask(OWNER_ONLY)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(before)
        self._socket.listen(WAITING_MAX)
        threading.Thread(target=self._accept, name="state-listener", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                router, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(router,), name="state-router", daemon=True).start()

    def _serve(self, router: socket.socket) -> None:
        with router, suppress(OSError, EOFError):  # the Router is gone
            while True:
                router.sendall(_frame(self._call_step(pickle.loads(_read_frame(router)))))

    def _call_step(self, args: tuple[Any, ...]) -> tuple[bool, Any]:
        try:
            return True, self._step(*args)
        except Exception as error:
            return False, error


class SocketActor:
    """`deployments.state.link.Actor` whose steps go through the socket at `path`, and all else through `ray_actor`."""

    def __init__(self, ray_actor: Actor, path: str) -> None:
        self._ray_actor, self._path = ray_actor, path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, *args: Any) -> Any:
        """Call as the protocol says. Raises what the method raises, and OSError or EOFError where the actor is gone."""
        if method != "step":
            return await self._ray_actor.call(method, *args)
        streams, self._streams = self._streams, None
        if streams is None:
            streams = await asyncio.open_unix_connection(self._path, limit=FRAME_BYTES_MAX)
        try:
            returned, answer = await _exchange(*streams, args)
        except BaseException:
            streams[1].close()
            raise
        self._streams = streams
        if not returned:
            raise answer
        return answer

    def close(self) -> None:
        """Close the connection. A call that runs keeps its own."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, args: tuple[Any, ...]) -> Any:
    writer.write(_frame(args))
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def _frame(value: Any) -> bytes:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(data)} bytes is over {FRAME_BYTES_MAX}")
    return LENGTH.pack(len(data)) + data


def _read_frame(router: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_read_exactly(router, LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise OSError(f"a frame of {length} bytes is over {FRAME_BYTES_MAX}")
    return _read_exactly(router, length)


def _read_exactly(router: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = router.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        data += piece
    return bytes(data)
