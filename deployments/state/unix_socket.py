"""The Unix socket of the state actor, for the steps of Routers on its node: docs/decisions/062-a-socket-for-steps.md.

A frame is its length in four bytes, and a `_Question` or a `_SocketReply` (`work/wire.py`). A step that can't be
encoded goes through Ray. The socket has mode 0600 in a folder of mode 0700, and each end first asks the kernel for the
other's user: SO_PEERCRED (unix(7)), on macOS LOCAL_PEERCRED (<sys/ucred.h>).
Invariants: only the dataclasses of a step are built from a frame; a frame has at most `_FRAME_BYTES_MAX` bytes; no
bytes that come through the socket end the actor; who can't be let in now is let in later.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.running.folder import base_folder
from deployments.running.own_folder import make_own
from deployments.state.link import Actor, StateUnavailable
from deployments.state.records import Reply, StateLimits, StateStep
from deployments.telemetry import log_error
from deployments.work.wire import codec_of

_FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_WAITING_MAX = 64  # Routers that connect at the same moment
_PAUSE_S = 0.1
_OWNER_ONLY = 0o177
_RUN = "MLX_STACK_RUN"  # the folder of this run, where a supervisor has made one

_UCRED = struct.Struct("3i")
_XUCRED = struct.Struct("II")
_XUCRED_BYTES = 76  # with its 16 groups
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1  # <sys/un.h> of macOS


@dataclass(frozen=True, slots=True)
class _Question:
    """What a Router sends: a step, and its limits where the actor has asked for them."""

    step: StateStep
    limits: StateLimits | None = None


@dataclass(frozen=True, slots=True)
class _SocketReply:
    """What the actor sends. `failed`: what the step raised; `refused`: these bytes were no question."""

    reply: Reply | None = None
    failed: str = ""
    refused: str = ""


_QUESTION, _ANSWER = codec_of(_Question), codec_of(_SocketReply)


def find_socket_folder(environ: Mapping[str, str]) -> Path:
    """Return a folder that only this user can reach: the run's, or that of all runs. Raises ConfigError."""
    return make_own(Path(environ[_RUN])) if environ.get(_RUN) else base_folder(environ)


class StepListener:
    """Answers steps that come through the socket at `path` by calling `step`, on a thread for each connection."""

    def __init__(self, path: Path, step: Callable[..., Any]) -> None:
        self.path = path
        self._step = step
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        with suppress(FileNotFoundError):
            path.unlink()  # an earlier incarnation's
        before = os.umask(_OWNER_ONLY)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(before)
        self._socket.listen(_WAITING_MAX)
        threading.Thread(target=self._accept, name="state-listener", daemon=True).start()

    def close(self) -> None:
        """Let no Router in any more."""
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                router, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(router,), name="state-router", daemon=True).start()
            except (OSError, RuntimeError):  # closed, or short of files or threads: not for ever
                self._closed.wait(_PAUSE_S)

    def _serve(self, router: socket.socket) -> None:
        with router, router.makefile("rb") as frames, suppress(OSError, struct.error):  # the Router is gone
            try:
                _refuse_foreigner(router)
            except PermissionError as error:
                log_error("state_socket_foreigner", error)
                return
            while True:
                frame = frames.read(_length(frames.read(_LENGTH.size)))
                router.sendall(_frame(_ANSWER.encode(self._answer(frame))))

    def _answer(self, frame: bytes) -> _SocketReply:
        try:
            question: _Question = _QUESTION.decode(frame)
        except ValueError as error:
            return _SocketReply(refused=str(error))
        try:
            return _SocketReply(reply=self._step(question.step, question.limits))
        except Exception as error:
            return _SocketReply(failed=f"{type(error).__name__}: {error}")


class SocketActor:
    """`deployments.state.link.Actor` whose steps go through the socket at `path`, and all else through `ray_actor`."""

    def __init__(self, ray_actor: Actor, path: str) -> None:
        self._ray_actor, self._path = ray_actor, path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, *args: Any) -> Any:
        """Call as the protocol says. Raises StateUnavailable: the step failed. OSError, EOFError: the actor is gone, or
        another user's process is in its place."""
        if method != "step":
            return await self._ray_actor.call(method, *args)
        try:
            frame = _frame(_QUESTION.encode(_Question(*args)))
        except (TypeError, ValueError) as error:  # a value that the types don't promise, or too much of it
            return await self._call_through_ray(error, args)
        answer = await self._exchange(frame)
        if answer.refused:
            return await self._call_through_ray(ValueError(answer.refused), args)
        if answer.failed:
            raise StateUnavailable(answer.failed)
        return answer.reply

    async def _call_through_ray(self, error: Exception, args: tuple[Any, ...]) -> Any:
        """Call by Ray, whose transport carries any value; otherwise the same step would fail for ever."""
        log_error("state_socket_unfit", error)
        return await self._ray_actor.call("step", *args)

    async def _exchange(self, frame: bytes) -> _SocketReply:
        streams, self._streams = self._streams, None
        fresh = streams is None
        reader, writer = streams = streams or await asyncio.open_unix_connection(self._path, limit=_FRAME_BYTES_MAX)
        try:
            if fresh:
                _refuse_foreigner(writer.get_extra_info("socket"))
            writer.write(frame)
            size = _length(await reader.readexactly(_LENGTH.size))
            answer: _SocketReply = _ANSWER.decode(await reader.readexactly(size))
        except BaseException:
            writer.close()
            raise
        self._streams = streams
        return answer

    def close(self) -> None:
        """Close the connection. A running call keeps its own."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


def _refuse_foreigner(peer: Any) -> None:
    """Return where the process at the other end belongs to this user. Raises PermissionError; OSError where it is gone.
    `peer`: a socket, or what asyncio gives out of one."""
    if sys.platform == "darwin":
        version, user = _XUCRED.unpack_from(peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES))
        if version != 0:
            raise PermissionError(f"the kernel's struct xucred has version {version}, not 0")
    else:
        _, user, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if user != os.geteuid():
        raise PermissionError(f"the process at the other end belongs to user {user}, not to user {os.geteuid()}")


def _frame(data: bytes) -> bytes:
    if len(data) > _FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(data)} bytes is over {_FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(data)) + data


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > _FRAME_BYTES_MAX:
        raise OSError(f"a frame of {length} bytes is over {_FRAME_BYTES_MAX}")
    return int(length)
