"""Encode values of this program for a socket, by their types: MessagePack, and never a pickle.

msgspec handles dataclasses, enums, tuples and plain values; this module adds unions of dataclasses (tagged), `Named`
(any dataclass of this program), headers as pairs, and `Steps`, `Memo` and pydantic models. What doesn't fit MessagePack
goes as JSON, and the first byte says so (docs/decisions/083). Invariants: decoding builds dataclasses,
enums and plain values, and calls nothing that the bytes name; every value arrives equal to what was sent, apart from
lists in place of tuples where the type is `Any`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union

import msgspec
from pydantic import BaseModel
from starlette.datastructures import Headers

from reliability.loops import Memo
from reliability.steps import Steps

_NAMED = "a dataclass of this program, under its name"
Named = Annotated[Any, _NAMED]  # as the annotation of a field: its values say themselves what they are
_PACKAGES = ("deployments", "reliability")
_PACKED, _SPELLED = b"m", b"j"

T = TypeVar("T")


class Codec(typing.Generic[T]):
    """Encode and decode the values of one type."""

    def __init__(self, kind: Any) -> None:
        self._shape = _shape_of(kind)
        self._decoder = msgspec.msgpack.Decoder(self._shape.kind, dec_hook=_build)

    def encode(self, value: T) -> bytes:
        """Return the bytes. Raises TypeError, ValueError: the value isn't one of this type."""
        packed = value if self._shape.pack is None else self._shape.pack(value)
        try:
            return _PACKED + _ENCODER.encode(packed)
        except (UnicodeEncodeError, OverflowError):
            return _SPELLED + json.dumps(msgspec.to_builtins(packed, enc_hook=_plain)).encode()
        except RecursionError:
            raise ValueError(f"this {self._shape.name} is nested too deeply") from None

    def decode(self, data: bytes) -> T:
        """Return the value. Raises ValueError: these bytes are no value of this type."""
        try:
            if data[:1] == _PACKED:
                packed = self._decoder.decode(memoryview(data)[1:])
            elif data[:1] == _SPELLED:
                packed = msgspec.convert(json.loads(data[1:]), self._shape.kind, dec_hook=_build)
            else:
                raise ValueError("neither MessagePack nor JSON")
            value: T = packed if self._shape.unpack is None else self._shape.unpack(packed)
        except Exception as error:  # of whatever class: the bytes are the other side's
            raise ValueError(f"this is no {self._shape.name}: {type(error).__name__}: {str(error)[:200]}") from None
        return value


@functools.cache
def codec_of(kind: Any) -> Codec[Any]:
    """Return the codec of a type, made once."""
    return Codec(kind)


def name_of(thing: Any) -> str:
    """Return the module and the name of a function or a class."""
    return f"{thing.__module__}:{thing.__qualname__}"


def find_class(name: str, parent: type[T]) -> type[T]:
    """Find a class of this program that has been imported already, by its `module:name`. Raises ValueError: there is
    none, or it is no `parent`."""
    module, _, path = name.partition(":")
    found = getattr(sys.modules.get(module), path, None)
    if module.partition(".")[0] not in _PACKAGES or not (isinstance(found, type) and issubclass(found, parent)):
        raise ValueError(f"{name[:100]} is no {parent.__name__} of this program")
    return found


# -- shapes ----------------------------------------------------------------------------------------------------

_Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a type travels: msgspec's type for it, and the ways there and back, None where it is the type itself."""

    kind: Any
    pack: _Change | None = None
    unpack: _Change | None = None
    name: str = "value"


@functools.cache
def _shape_of(kind: Any) -> _Shape:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated and _NAMED in args:
        return _Shape(tuple[str, bytes] | None, _pack_named, _unpack_named)
    if dataclasses.is_dataclass(kind):
        return _shape_record(kind)
    if origin in (Union, types.UnionType):
        return _shape_union(args)
    if origin in (tuple, list, Sequence) and (len(args) == 1 or args[1:] == (...,)):
        return _shape_sequence(kind, tuple if origin is tuple else list, args[0])
    if kind == Mapping[str, str]:
        return _Shape(list[tuple[str, str]], lambda of: list(of.items()), _join_pairs)
    return _Shape(kind)


def _shape_record(kind: Any) -> _Shape:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.name: _shape_of(hints[field.name]) for field in dataclasses.fields(kind)}
    if all(shape.pack is None for shape in fields.values()):
        return _Shape(kind, name=kind.__name__)
    # Keywords: fields without a default may follow those with one where the class says so.
    struct = msgspec.defstruct(kind.__name__, [(n, shape.kind) for n, shape in fields.items()], array_like=True)

    def pack(value: Any) -> Any:
        given = (getattr(value, name) for name in fields)
        return struct(*(v if s.pack is None else s.pack(v) for v, s in zip(given, fields.values(), strict=True)))

    def unpack(packed: Any) -> Any:
        given = {name: getattr(packed, name) for name in fields}
        return kind(**{n: v if (back := fields[n].unpack) is None else back(v) for n, v in given.items()})

    return _Shape(struct, pack, unpack, kind.__name__)


def _shape_union(members: tuple[Any, ...]) -> _Shape:
    shapes = {member: _shape_of(member) for member in members}
    records: list[Any] = [member for member in members if dataclasses.is_dataclass(member)]
    if len(records) < 2 and all(shape.pack is None for shape in shapes.values()):
        return _Shape(_one_of(members))
    tagged = {
        member: msgspec.defstruct(member.__name__, [("value", shapes[member].kind)], tag=True, array_like=True)
        for member in records
    }
    ways: dict[Any, _Change] = {member: _make_way(struct, shapes[member].pack) for member, struct in tagged.items()}
    back: dict[Any, _Change | None] = {struct: shapes[member].unpack for member, struct in tagged.items()}
    [other] = [s for m, s in shapes.items() if m not in tagged and m is not type(None)] or [_Shape(None)]

    mixed = len(tagged) + (type(None) in members) < len(members)

    def pack(value: Any) -> Any:
        if value is None:
            return None
        way = ways.get(type(value), other.pack)
        if way is None and not mixed:
            raise TypeError(f"a {type(value).__name__} isn't one of {', '.join(kind.__name__ for kind in tagged)}")
        return value if way is None else way(value)

    def unpack(packed: Any) -> Any:
        if type(packed) in back:
            way = back[type(packed)]
            return packed.value if way is None else way(packed.value)
        return packed if other.unpack is None or packed is None else other.unpack(packed)

    plain = tuple(shape.kind for member, shape in shapes.items() if member not in tagged)
    return _Shape(_one_of((*tagged.values(), *plain)), pack, unpack)


def _one_of(members: tuple[Any, ...]) -> Any:
    return functools.reduce(operator.or_, members)


def _make_way(struct: Any, pack: _Change | None) -> _Change:
    return struct if pack is None else lambda value: struct(pack(value))


def _shape_sequence(kind: Any, made: type, item: Any) -> _Shape:
    shape = _shape_of(item)
    pack, unpack = shape.pack, shape.unpack
    if pack is None or unpack is None:
        return _Shape(kind)
    return _Shape(
        types.GenericAlias(list, (shape.kind,)), lambda of: list(map(pack, of)), lambda of: made(map(unpack, of))
    )


def _pack_named(value: Any) -> tuple[str, bytes] | None:
    kind: Any = type(value)
    return None if value is None else (name_of(kind), codec_of(kind).encode(value))


def _unpack_named(packed: tuple[str, bytes] | None) -> Any:
    if packed is None:
        return None
    kind: Any = find_class(packed[0], object)
    if not hasattr(kind, "__dataclass_fields__"):
        raise ValueError(f"{packed[0][:100]} is no dataclass")
    return codec_of(kind).decode(packed[1])


def _join_pairs(pairs: list[tuple[str, str]]) -> Mapping[str, str]:
    if len(unique := dict(pairs)) == len(pairs):
        return unique
    return Headers(raw=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs])


# -- classes that are no dataclasses ---------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, Steps):
        return [value.left, value.final, value.owner]
    if isinstance(value, Memo):
        return None
    if isinstance(value, BaseModel):
        return value.model_dump()
    raise TypeError(f"a {type(value).__name__} isn't carried")


def _build(kind: Any, plain: Any) -> Any:
    if kind is Steps:
        left, final, owner = plain
        return Steps(int(left), final=bool(final), owner=str(owner))
    if kind is Memo:
        return Memo()
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate(plain)
    raise TypeError(f"a {kind} isn't carried")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
