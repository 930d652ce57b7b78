"""Write a file or a folder so that a reader sees all of it or nothing, lock a folder for as long as that takes, and
read a file that anybody may have made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_READ_BYTES_MAX = 32 * 1024 * 1024


def read_bounded(path: Path, bytes_max: int = _READ_BYTES_MAX) -> bytes:
    """Read a file, such as one of a repository that was cloned: a link in it may lead to /dev/zero. Raises OSError: it
    can't be read, or is too large."""
    with path.open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it is over {bytes_max:,} bytes")
    return data


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file atomically, also against a power cut. Raises OSError: it can't be written."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def make_whole(final: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `final` when the block ends. Of those that killed processes left under this
    prefix, beside it, none stays: one process at a time may do this. Raises OSError: it can't be made."""
    for left in final.parent.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        yield unfinished
        unfinished.rename(final)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Wait for the lock on a folder, and hold it. Raises OSError: there is no such folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
