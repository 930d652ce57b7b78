"""A throw-away folder that an agent's tools can't leave.

A path is walked from the folder's descriptor, part by part, without symbolic links (`O_NOFOLLOW`), so a folder that is
swapped meanwhile leads nowhere. Reads and writes are bounded. Invariant: no byte from outside, none to outside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

FILE_BYTES_MAX = 1_000_000
FILES_MAX = 200
DEPTH_MAX = 8
PATH_CHARS_MAX = 200


class Refused(Exception):
    """The tool didn't do what it was asked to. The message says why, for the agent."""


class WorkFolder:
    """The folder of one run. `refusals` counts the attempts to leave it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refusals = 0

    def read(self, path: str) -> str:
        with self._open(path, os.O_RDONLY) as file:
            return os.read(file, FILE_BYTES_MAX).decode("utf-8", "replace")

    def write(self, path: str, text: str) -> None:
        """Write a file that is there; none is made."""
        data = text.encode("utf-8", "replace")
        if len(data) > FILE_BYTES_MAX:
            raise Refused(f"{path} would be larger than {FILE_BYTES_MAX} bytes")
        with self._open(path, os.O_WRONLY) as file:
            os.ftruncate(file, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]

    def list_files(self) -> list[str]:
        """List the files, without links and whatever isn't a file."""
        found: list[str] = []
        for folder, folders, names in os.walk(self.root, followlinks=False):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = Path(folder, name)
                if stat.S_ISREG(path.lstat().st_mode):
                    # A name that isn't UTF-8 is shown as far as it is: nobody can open it by that.
                    found.append(os.fsencode(path.relative_to(self.root)).decode("utf-8", "replace"))
        return sorted(found)[:FILES_MAX]

    @contextlib.contextmanager
    def _open(self, path: str, flags: int) -> Iterator[int]:
        parts = self._split(path)
        with contextlib.ExitStack() as opened:
            try:
                here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:  # the tests have taken it away
                raise Refused("the folder is gone") from None
            opened.callback(os.close, here)
            for part in parts[:-1]:
                here = self._step(path, part, os.O_RDONLY | os.O_DIRECTORY, here)
                opened.callback(os.close, here)
            file = self._step(path, parts[-1], flags | os.O_NONBLOCK, here)
            opened.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Refused(f"{path} is no file")
            yield file

    def _step(self, path: str, part: str, flags: int, here: int) -> int:
        try:
            return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
                    self._refuse(f"{path}: symbolic links are not followed")
            raise Refused(f"there is no file {path[:PATH_CHARS_MAX]!r}; list_files shows which there are") from None

    def _split(self, path: str) -> list[str]:
        if not path or len(path) > PATH_CHARS_MAX or "\0" in path:
            raise Refused("a path of a file in this folder is needed")
        if path.startswith(("/", "~")) or "\\" in path:
            self._refuse(f"{path!r}: only paths inside this folder, relative to it")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            self._refuse(f"{path!r} leads out of this folder")
        if not parts or len(parts) > DEPTH_MAX:
            raise Refused(f"there is no file {path!r}")
        return parts

    def _refuse(self, words: str) -> None:
        self.refusals += 1
        raise Refused(words)
