"""A call and its outcome as messages between `worker_pool.py` and a worker, encoded by `deployments/work/wire.py`.

The worker imports the function that its parent names. The parent imports nothing that a worker names: an error is of a
known class of this program, or a RuntimeError with its words.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from deployments.work.wire import Codec, codec_of, find_class, name_of


@dataclass(frozen=True, slots=True)
class _Job:
    """A call. `arguments`: each one encoded, by its name."""

    function: str
    arguments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Done:
    """What the function returned, encoded."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Raised:
    """What it raised: the class, the arguments that make the same error again where they are plain, and its words."""

    name: str
    arguments: Sequence[Any] | None
    words: str


JOB: Codec[_Job] = codec_of(_Job)
OUTCOME: Codec[Done | Raised] = codec_of(Done | Raised)


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


def write_job(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, bytes]:
    """Write a call; return the function itself, without its partial arguments, and the message. Raises TypeError,
    ValueError: an argument isn't of the type that the function declares."""
    inner: Any = function
    while isinstance(inner, partial):
        inner, args, named = inner.func, (*inner.args, *args), {**inner.keywords, **named}
    types = _types_of(inner)
    bound = types.signature.bind(*args, **named).arguments
    more = bound.pop(types.more, {})
    arguments = {name: types.codec_for(name).encode(value) for name, value in {**bound, **more}.items()}
    return inner, JOB.encode(_Job(name_of(inner), arguments))


def do_job(message: bytes) -> bytes:
    """Do a call; return the message of its outcome."""
    try:
        job = JOB.decode(message)
        module, _, path = job.function.partition(":")
        function: Callable[..., Any] = attrgetter(path)(importlib.import_module(module))
        types = _types_of(function)
        result = function(**{name: types.codec_for(name).decode(data) for name, data in job.arguments.items()})
        return OUTCOME.encode(Done(types.result.encode(result)))
    except Exception as error:  # whatever it is, it is the caller's to see
        return _write_error(error)


def _write_error(error: Exception) -> bytes:
    words = f"{type(error).__name__}: {error}"
    reduced = error.__reduce__()
    try:  # by what Python itself says would make it again
        return OUTCOME.encode(Raised(name_of(type(error)), list(reduced[1]), words))
    except (TypeError, ValueError):
        return OUTCOME.encode(Raised(name_of(type(error)), None, words))


def read_outcome(function: Callable[..., Any], message: bytes) -> Any:
    """Return what the function returned, or raise what it raised. Raises ValueError: the message is no outcome of this
    function; RuntimeError: it raised an error of a class that isn't this program's."""
    outcome = OUTCOME.decode(message)
    if isinstance(outcome, Done):
        return _types_of(function).result.decode(outcome.result)
    try:
        error = find_class(outcome.name, Exception)(*(outcome.arguments or ()))
    except (TypeError, ValueError, LookupError):
        error = RuntimeError(outcome.words)
    raise error
