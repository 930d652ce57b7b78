"""A log file that doesn't grow without end: the newest part, and beside it, under `.1`, the part before it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PART_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 65_536
TAIL_BYTES = 16_384


class BoundedLog:
    """Appends to `path`; with `shown`, to the terminal too. Never raises: a full disk ends no server."""

    def __init__(self, path: Path, shown: bool = False) -> None:
        self._path = path
        self._shown = shown
        self._file: int | None = None
        self._bytes = 0
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()

    def pump(self, source: int) -> bool:
        """Write what can be read there; return False at its end, and where nothing comes."""
        try:
            data = os.read(source, READ_BYTES)
        except OSError:
            return False
        self.write(data)
        return bool(data)

    def write(self, data: bytes) -> None:
        if self._shown:
            with contextlib.suppress(OSError):
                os.write(1, data)
        with contextlib.suppress(OSError):
            if self._bytes + len(data) > PART_BYTES_MAX:
                self._turn()
            if self._file is not None:
                self._bytes += os.write(self._file, data)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._bytes = os.fstat(self._file).st_size

    def _turn(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._open()


def tail(path: Path) -> str:
    """Return the end of a log; "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
