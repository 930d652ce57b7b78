"""Processes for work that is too large for the event loop: `await workers.run(function, *args)`.

Work that has used up its steps on the loop is repeated by one of `_WORKERS_MAX` low-priority processes, which inherit
no key; a call and its outcome are carried by the types that a function declares (`wire.py`). The worker imports the
function that its parent names. The parent imports nothing that a worker names: an error is of a known class of this
program, or a RuntimeError with its words. A job that computes for `_JOB_S` is ended by the kernel (`JobTooLong`); a job
that gets no turn (`turns.py`), or no result within `_DONE_S`, is `Busy`; one whose worker dies is repeated, then lost.

Invariants: no job without an end, no worker without a Router, no job on the loop instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import signal
import socket
import struct
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from deployments.work.turns import NOBODY, Asker, Turns
from deployments.work.wire import Codec, codec_of, find_class, name_of
from reliability.answer.judgement import Judged
from reliability.steps import OutOfSteps, Steps

_WORKERS_MAX = 2
_JOB_S = 5.0  # of a core
_START_S = 30.0  # until a new worker has imported what it needs
_DONE_S = 60.0  # by the clock: others, too, want the cores
HEAD = struct.Struct("!dQ")  # seconds of a core for the job, bytes of the message
_READ_BYTES = 1 << 20
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "VIRTUAL_ENV")

_Result = TypeVar("_Result")


class Undone(Exception):
    """A job that brought no result. The message is fit for clients."""


class JobTooLong(Undone):
    """It computed for longer than a job may."""


class Busy(Undone):
    """The workers have no time for it now. It may be done later."""


class _Lost(Undone):
    """The worker died of something else, twice."""


class Workers:
    """A few processes that do large work. Belongs to one event loop; nothing is started before it is needed."""

    def __init__(self, count: int = _WORKERS_MAX, *, job_s: float = _JOB_S, imports: Sequence[str] = ()) -> None:
        self._turns = Turns(count)
        self._imports = imports  # modules that a worker loads before its first job comes
        self._job_s = job_s
        self._idle: list[_Worker] = []
        self._jobs: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, function: Callable[..., _Result], *args: Any, asker: Asker = NOBODY, **named: Any) -> _Result:
        """Have a worker call `function(*args, **named)` when it is the asker's turn. Raises what it raises; Undone: it
        was not done, or not to its end."""
        if not await self._turns.take(asker):
            raise Busy("this server is busy with other large requests")
        try:
            called, message = _write_job(function, args, named)
        except BaseException:
            self._turns.pass_on(asker)
            raise
        job = asyncio.create_task(self._do(message, asker))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        job.add_done_callback(lambda task: task.cancelled() or task.exception())  # its caller may be gone
        result: _Result = _read_outcome(called, await asyncio.shield(job))
        return result

    async def close(self) -> None:
        """End all workers; what they were at is lost."""
        self._closed = True
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        for worker in self._idle:
            await worker.end()
        self._idle.clear()

    async def _do(self, message: bytes, asker: Asker) -> bytes:
        try:
            for _ in range(2):
                try:
                    worker = self._idle.pop() if self._idle else await _Worker.start(self._imports)
                except (OSError, asyncio.IncompleteReadError):
                    continue
                try:
                    answer = await worker.run_job(message, self._job_s)
                except BaseException as error:
                    await worker.end()
                    if isinstance(error, TimeoutError):
                        raise Busy("this server is too busy to finish a large request") from None
                    if worker.is_out_of_time:
                        raise JobTooLong(f"it takes longer than {self._job_s:g} s") from None
                    if isinstance(error, (OSError, asyncio.IncompleteReadError)):
                        continue
                    raise
                self._idle.append(worker)
                return answer
            raise _Lost("the process that worked on it died")
        finally:
            self._turns.pass_on(asker)


class _Worker:
    """One process and the socket to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, imports: Sequence[str]) -> _Worker:
        """Start a new process, ready for its first job. Raises OSError where there is none to be had."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(_spawn, theirs, imports)
        reader, writer = await asyncio.open_connection(sock=ours, limit=_READ_BYTES)
        worker = cls(process, reader, writer)
        try:
            async with asyncio.timeout(_START_S):
                await reader.readexactly(1)
        except BaseException as error:
            await worker.end()
            if isinstance(error, TimeoutError):
                raise Busy("this server is too busy to start a process for a large request") from None
            raise
        return worker

    async def run_job(self, message: bytes, job_s: float) -> bytes:
        """Return the answer to a message. Raises TimeoutError: none came; OSError, IncompleteReadError: it is gone."""
        async with asyncio.timeout(_DONE_S):
            self._writer.write(HEAD.pack(job_s, len(message)))
            self._writer.write(message)
            await self._writer.drain()
            _, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            return await self._reader.readexactly(size)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the kernel has ended it because its job computed for too long."""
        return self._process.returncode == -signal.SIGPROF

    async def end(self) -> None:
        """Kill the process and wait for its end; safe for one that is gone."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)


def _spawn(theirs: socket.socket, imports: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "deployments.work.worker", str(theirs.fileno()), *imports],
        pass_fds=(theirs.fileno(),),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


# -- calls and outcomes as messages ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """A call. `arguments`: each one encoded, by its name."""

    function: str
    arguments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Raised:
    """What it raised: the class, the arguments that make the same error again where they are plain, and its words."""

    name: str
    arguments: Sequence[Any] | None
    words: str


_JOB: Codec[_Job] = codec_of(_Job)
_OUTCOME: Codec[bytes | _Raised] = codec_of(bytes | _Raised)  # what the function returned, encoded; what it raised


@dataclass(frozen=True, slots=True)
class _Types:
    """The types that a function declares, as codecs. `more`: the name of its `**more`, if it has one."""

    signature: inspect.Signature
    arguments: Mapping[str, Codec[Any]]
    result: Codec[Any]
    more: str

    def codec_for(self, name: str) -> Codec[Any]:
        """Return the codec of an argument; what goes into `**more` is plain."""
        return self.arguments.get(name) or codec_of(Any)


@functools.cache
def _types_of(function: Callable[..., Any]) -> _Types:
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    more = next((n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD), "")
    declared = {name: hints.get(name, Any) for name in signature.parameters}
    if typing.get_origin(declared.get(more)) is typing.Unpack:  # `**more` is a TypedDict's fields
        declared |= typing.get_type_hints(typing.get_args(declared.pop(more))[0])
    return _Types(
        signature=signature,
        arguments={name: codec_of(hint) for name, hint in declared.items()},
        result=codec_of(hints.get("return", Any)),
        more=more,
    )


def _write_job(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, bytes]:
    """Write a call; return the function without its partial arguments, and the message. Raises TypeError, ValueError:
    an argument isn't of the declared type."""
    inner: Any = function
    while isinstance(inner, partial):
        inner, args, named = inner.func, (*inner.args, *args), {**inner.keywords, **named}
    types = _types_of(inner)
    bound = types.signature.bind(*args, **named).arguments
    more = bound.pop(types.more, {})
    arguments = {name: types.codec_for(name).encode(value) for name, value in {**bound, **more}.items()}
    return inner, _JOB.encode(_Job(name_of(inner), arguments))


def do_job(message: bytes) -> bytes:
    """Do a call; return the message of its outcome."""
    try:
        job = _JOB.decode(message)
        module, _, path = job.function.partition(":")
        function: Callable[..., Any] = attrgetter(path)(importlib.import_module(module))
        types = _types_of(function)
        result = function(**{name: types.codec_for(name).decode(data) for name, data in job.arguments.items()})
        return _OUTCOME.encode(types.result.encode(result))
    except Exception as error:  # whatever it is, it is the caller's to see
        return _write_error(error)


def _write_error(error: Exception) -> bytes:
    words = f"{type(error).__name__}: {error}"
    reduced = error.__reduce__()
    try:  # by what Python itself says would make it again
        return _OUTCOME.encode(_Raised(name_of(type(error)), list(reduced[1]), words))
    except (TypeError, ValueError):
        return _OUTCOME.encode(_Raised(name_of(type(error)), None, words))


def _read_outcome(function: Callable[..., Any], message: bytes) -> Any:
    """Return what the function returned, or raise what it raised, as a RuntimeError where its class isn't ours. Raises
    ValueError: the message is no outcome of this function."""
    outcome = _OUTCOME.decode(message)
    if isinstance(outcome, bytes):
        return _types_of(function).result.decode(outcome)
    try:
        error = find_class(outcome.name, Exception)(*(outcome.arguments or ()))
    except (TypeError, ValueError, LookupError):
        error = RuntimeError(outcome.words)
    raise error


# -- judgements, here or in a worker ---------------------------------------------------------------------------

STEPS_INLINE = 20_000
STEPS_LARGE = 20_000_000  # more than a worker's seconds are worth: those decide

_Question = Callable[..., Judged]
_Here = Callable[[Callable[[], Judged]], Awaitable[Judged]]
Elsewhere = Callable[..., Awaitable[Any]]


async def make_judgement(
    question: _Question, here: _Here, elsewhere: Elsewhere | None, left_s: float, owner: str = ""
) -> Judged:
    """Make the judgement for the API key `owner`, within `left_s` seconds where it is made elsewhere. Without
    `elsewhere` it takes as many steps as it takes. Raises Busy, TimeoutError: they say nothing of the answer."""
    if elsewhere is None:
        return await here(question)
    try:
        return await here(partial(question, steps=Steps(STEPS_INLINE, owner=owner)))
    except OutOfSteps:
        pass
    try:
        async with asyncio.timeout(max(0.0, left_s)):
            steps = Steps(STEPS_LARGE, final=True, owner=owner)
            return await elsewhere(question, steps=steps)  # type: ignore[no-any-return]
    except (JobTooLong, _Lost):
        return question(steps=Steps(0, final=True))
