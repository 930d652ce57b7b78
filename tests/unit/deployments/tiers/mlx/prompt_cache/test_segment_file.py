"""One stored stretch of a prompt: complete or not there, checked before it is used, and nobody else's to read."""

import contextlib
import json
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from deployments.tiers.mlx.prompt_cache import segment_file
from deployments.tiers.mlx.prompt_cache.segment_file import (
    PART,
    Damaged,
    Tensor,
    open_segment,
    read_head,
    write_segment,
)
from deployments.tiers.packed_tokens import pack

TOKENS = list(range(7))
HEAD = segment_file.SegmentHead(key="k" * 64, start=3, before="ab", tokens=pack(TOKENS), form='{"layers": ["KVCache"]}')


def make_tensors() -> list[Tensor]:
    """A view with gaps, one of another type, one of 16 bits that stands for bfloat16, and an empty one."""
    whole = np.arange(2 * 10 * 4, dtype=np.float32).reshape(1, 2, 10, 4)
    return [
        Tensor("0.keys", "F32", whole[..., 3:, :]),
        Tensor("0.values", "BF16", np.arange(56, dtype=np.uint16).reshape(1, 2, 7, 4)),
        Tensor("1", "I32", np.zeros((0, 4), np.int32)),
    ]


def never() -> bool:
    return False


def write(folder: Path, name: str = "s3-10-ab-cd.safetensors") -> Path:
    path = folder / name
    assert write_segment(path, HEAD, make_tensors(), cancelled=never) == path.stat().st_size
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Law: head and tensors come back as they were, gaps or none; the file is its user's alone, and the only one."""
    path = write(tmp_path)
    segment = open_segment(path, cancelled=never)
    assert read_head(path) == segment.head == HEAD
    for one in make_tensors():
        np.testing.assert_array_equal(segment.arrays[one.name], one.array)
        assert segment.dtypes[one.name] == one.dtype
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_others_can_read_the_format(tmp_path: Path) -> None:
    """Law: it is a safetensors file; the library of that name reads it."""
    tensors = make_tensors()[:1]
    write_segment(tmp_path / "a.safetensors", HEAD, tensors, cancelled=never)
    read = load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(read["0.keys"], tensors[0].array)
    assert list(read["tokens"]) == TOKENS


READS: tuple[Callable[[Path], Any], ...] = (read_head, partial(open_segment, cancelled=never))


def lay(folder: Path, raw: bytes) -> Path:
    path = folder / "a.safetensors"
    path.write_bytes(raw)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("good")).read_bytes()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_goes_unnoticed(good: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Law: a file in which a byte is changed, that is cut off, or that goes on, is `Damaged` when it is opened; nothing
    else is raised, also where only the head is read."""
    how = data.draw(st.sampled_from(["change", "cut", "append"]))
    at = data.draw(st.integers(0, len(good) - 1))
    changed = bytes([good[at] ^ data.draw(st.integers(1, 255))])
    raw = {"change": good[:at] + changed + good[at + 1 :], "cut": good[:at], "append": good + good[at:]}[how]
    path = lay(tmp_path_factory.mktemp("bad"), raw)
    with pytest.raises(Damaged):
        open_segment(path, cancelled=never)
    with contextlib.suppress(Damaged):
        read_head(path)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_file_is_read_or_damaged(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    """Law: whatever lies there, the outcome is `Damaged`."""
    for read in READS:
        with pytest.raises(Damaged):
            read(lay(tmp_path_factory.mktemp("any"), raw))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["format", "key", "start", "before", "form", "dtype", "shape", "data_offsets"]),
    st.recursive(
        st.none() | st.integers(-9, 1 << 70) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=5,
    ),
)
def test_any_header_is_read_or_damaged(good, tmp_path_factory, field, value):
    """Law: whatever stands in the header, of whatever kind, what isn't read is `Damaged`."""
    (length,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + length])
    header["__metadata__" if field in header["__metadata__"] else "0.keys"][field] = value
    raw = json.dumps(header).encode()
    path = lay(tmp_path_factory.mktemp("header"), struct.pack("<Q", len(raw)) + raw + good[8 + length :])
    for read in READS:
        with contextlib.suppress(Damaged):
            read(path)


def test_a_file_of_others_is_not_used(tmp_path: Path) -> None:
    """Law: what others may read or have put there as a link isn't used, and what is gone is simply not there."""
    path = write(tmp_path)
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        open_segment(link, cancelled=never)
    path.chmod(0o644)
    with pytest.raises(Damaged):
        read_head(path)
    with pytest.raises(FileNotFoundError):
        read_head(tmp_path / "nothing")


def test_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    """Law: what lies there and is no file is damage at once, or no orphan; nobody waits for somebody to write to it."""
    os.mkfifo(tmp_path / "a.safetensors", 0o600)
    (tmp_path / "b.safetensors").mkdir()
    for name in ("a.safetensors", "b.safetensors"):
        with pytest.raises(Damaged):
            read_head(tmp_path / name)
    os.mkfifo(tmp_path / f"{PART}a")
    assert segment_file.remove_if_orphan(tmp_path / f"{PART}a")
    (tmp_path / f"{PART}b").symlink_to(write(tmp_path))
    assert not segment_file.remove_if_orphan(tmp_path / f"{PART}b")


def test_a_cancelled_write_leaves_nothing(tmp_path: Path) -> None:
    """Law: whenever it is given up, the folder is as before; a cancelled check says so."""
    for pieces in range(4):
        answers = iter([False] * pieces + [True])
        with pytest.raises(segment_file.Cancelled):
            write_segment(tmp_path / "a", HEAD, make_tensors(), cancelled=lambda: next(answers))  # noqa: B023
    assert os.listdir(tmp_path) == []
    with pytest.raises(segment_file.Cancelled):
        open_segment(write(tmp_path), cancelled=lambda: True)


def test_an_error_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: where the disk refuses, the error comes out and nothing stays."""

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_file.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_segment(tmp_path / "a", HEAD, make_tensors(), cancelled=never)
    assert os.listdir(tmp_path) == []
