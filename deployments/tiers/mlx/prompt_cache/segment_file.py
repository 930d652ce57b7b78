"""One file: the keys and values of a stretch of tokens, in the safetensors format, with the CRC-32 of all bytes behind
it.

A file is written under a name that no reader looks at, under a lock that the kernel drops with the process, synced, and
renamed: it is there complete or not at all. It is never changed afterwards. Before use all of it is read once, through
`read`, so that a failing disk is an error and not a signal; only then is it mapped.

Invariants: no file is used without having been checked; no other user can read one.
"""

from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

FORMAT = "mlx-stack-prompt-1"
SUFFIX, PART = ".safetensors", ".part-"
_TOKENS, _CHECKSUM = "tokens", "crc32"
_HEADER_BYTES_MAX = 16 << 20
_PIECE_BYTES = 4 << 20
_BITS = (8, 16, 32, 64)
_ALIGNMENT = 64
_UNREADABLE = (KeyError, TypeError, ValueError, OverflowError)  # JSON knows an infinite number
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, and no waiting at a pipe

# What each type of the format is in memory; numpy has no bfloat16.
DTYPES: Mapping[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"{name}{bits}") for kind, name in (("U", "uint"), ("I", "int")) for bits in _BITS},
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32)},
    "BF16": np.dtype("uint16"),
    "BOOL": np.dtype("bool"),
}


class Damaged(Exception):
    """The file isn't what its name promises, or not whole; the text says how."""


class Cancelled(Exception):
    """The writing was given up before its end."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor by its name and its type in the format. `array` may be a view with gaps."""

    name: str
    dtype: str
    array: Any


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What a file says of itself: whose it is (`key`), which `tokens` it is for, what precedes them (`before`, the name
    of that beginning, of `start` tokens), and the `form` of the cache that its tensors make."""

    key: str
    start: int
    before: str
    tokens: bytes
    form: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A file that has been checked, mapped."""

    head: SegmentHead
    arrays: Mapping[str, Any]
    dtypes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Place:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """A header, read: its metadata, where the tensors are, and where the data begins in the file."""

    metadata: Mapping[str, str]
    places: Mapping[str, _Place]
    begin: int


def write_segment(path: Path, head: SegmentHead, tensors: Sequence[Tensor], *, cancelled: Callable[[], bool]) -> int:
    """Write the file, or nothing; return its bytes. Raises OSError and `Cancelled`."""
    tokens = Tensor(_TOKENS, "U32", np.frombuffer(head.tokens, np.uint32))
    everything = [tokens, *tensors]
    raw, name = tempfile.mkstemp(prefix=PART, dir=path.parent)  # 0600
    try:
        with os.fdopen(raw, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            checksum = 0
            for piece in _list_pieces(_build_header(head, everything), everything):
                if cancelled():
                    raise Cancelled
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            file.write(struct.pack("<I", checksum))
            file.flush()
            os.fsync(file.fileno())
            written = file.tell()
            os.rename(name, path)  # under the lock still: who finds the lock free may remove the file
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return written


def read_head(path: Path) -> SegmentHead:
    """Read the head, and check that the file is complete. Raises OSError and `Damaged`."""
    with _open(path) as file:
        return _read_head(file, _read_layout(file))


def open_segment(path: Path, *, cancelled: Callable[[], bool]) -> Segment:
    """Check all of the file, and map it. Raises OSError, `Damaged` and `Cancelled`."""
    with _open(path) as file:
        layout = _read_layout(file)
        head = _read_head(file, layout)
        _check(file, cancelled)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {
        name: np.frombuffer(data, DTYPES[at.dtype], math.prod(at.shape), layout.begin + at.begin).reshape(at.shape)
        for name, at in layout.places.items()
        if name not in (_TOKENS, _CHECKSUM)
    }
    return Segment(head, arrays, {name: at.dtype for name, at in layout.places.items()})


def remove_if_orphan(path: Path) -> bool:
    """Remove an unfinished file unless somebody is writing it; return whether it was removed."""
    try:
        raw = os.open(path, _OPEN)
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(raw)
    except OSError:  # it is being written, or is gone already
        return False
    return True


def _build_header(head: SegmentHead, tensors: Sequence[Tensor]) -> bytes:
    metadata = {"format": FORMAT, "key": head.key, "start": str(head.start), "before": head.before, "form": head.form}
    fields: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for one in (*tensors, Tensor(_CHECKSUM, "U32", np.zeros(1, np.uint32))):
        end = at + one.array.nbytes
        fields[one.name] = {"dtype": one.dtype, "shape": list(one.array.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(fields, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % _ALIGNMENT)
    return struct.pack("<Q", len(raw)) + raw


def _list_pieces(header: bytes, tensors: Sequence[Tensor]) -> Iterator[memoryview]:
    yield memoryview(header)
    for one in tensors:
        yield from _cut(one.array)


def _cut(array: Any) -> Iterator[memoryview]:
    """Cut an array into pieces of bounded size, without a copy: along its first axis as long as there are gaps."""
    if not array.flags.c_contiguous:
        for part in array:
            yield from _cut(part)
    elif array.size:
        flat = memoryview(array.reshape(-1).view(np.uint8))
        for at in range(0, len(flat), _PIECE_BYTES):
            yield flat[at : at + _PIECE_BYTES]


def _open(path: Path) -> BinaryIO:
    raw = os.open(path, _OPEN)
    found = os.fstat(raw)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(raw)
        raise Damaged("it isn't a file of this user alone")
    return os.fdopen(raw, "rb")


def _read_layout(file: BinaryIO) -> _Layout:
    total = os.fstat(file.fileno()).st_size
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(total, _HEADER_BYTES_MAX):
            raise Damaged("its header is longer than it may be")
        fields = json.loads(file.read(length))
        metadata = fields.pop("__metadata__")
        if metadata["format"] != FORMAT:
            raise Damaged("it has another format")
        places = {
            name: _Place(str(at["dtype"]), tuple(map(int, at["shape"])), *map(int, at["data_offsets"]))
            for name, at in fields.items()
        }
    except (*_UNREADABLE, AttributeError, RecursionError, struct.error) as error:
        raise Damaged("its header can't be read") from error
    _check_places(places, total - 8 - length)
    return _Layout(metadata, places, 8 + length)


def _check_places(places: Mapping[str, _Place], data_bytes: int) -> None:
    """Check that the tensors fill the data, one behind the other: nothing lies outside, and nothing is missing."""
    at = 0
    for one in sorted(places.values(), key=lambda one: (one.begin, one.end)):
        if one.dtype not in DTYPES or min(one.shape, default=0) < 0:
            raise Damaged("a tensor has a type or a shape that there isn't")
        if one.begin != at or one.end - one.begin != math.prod(one.shape) * DTYPES[one.dtype].itemsize:
            raise Damaged("its tensors don't fill it")
        at = one.end
    if at != data_bytes or not {_TOKENS, _CHECKSUM} <= places.keys() or places[_CHECKSUM].end != at:
        raise Damaged("it isn't complete")


def _read_head(file: BinaryIO, layout: _Layout) -> SegmentHead:
    at, said = layout.places[_TOKENS], layout.metadata
    file.seek(layout.begin + at.begin)
    tokens = file.read(at.end - at.begin)
    try:
        return SegmentHead(said["key"], int(said["start"]), said["before"], tokens, said["form"])
    except _UNREADABLE as error:
        raise Damaged("its header can't be read") from error


def _check(file: BinaryIO, cancelled: Callable[[], bool]) -> None:
    left, checksum = os.fstat(file.fileno()).st_size - 4, 0
    piece = memoryview(bytearray(_PIECE_BYTES))
    file.seek(0)
    while left:
        if cancelled():
            raise Cancelled
        got = file.readinto(piece[: min(left, _PIECE_BYTES)])  # type: ignore[attr-defined]  # of a buffered file
        if not got:
            raise Damaged("it ends early")
        checksum = zlib.crc32(piece[:got], checksum)
        left -= got
    if file.read(4) != struct.pack("<I", checksum):
        raise Damaged("its checksum is wrong")
