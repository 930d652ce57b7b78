"""The ledger's files are their owner's alone: folders that are made here have mode 0700, files 0600.

Invariants: a folder or a file of another user, or into which others may write, is refused, so no journal is put in the
place of ours; others can read no file of the ledger; the mode of a folder that holds other things, as a home directory
does, never changes: the log says that others can read it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
from pathlib import Path

from deployments.running.own_folder import list_trusted

LOG = logging.getLogger("ray.serve")
FOLDER, FILE, OTHERS = 0o700, 0o600, 0o077
OTHERS_WRITE, ALL_WRITE = 0o022, 0o002
# Older versions also wrote sessions-K-of-N.sqlite and layouts.db.
OURS = re.compile(
    r"(ledger|sessions-\d+-of-\d+)\.sqlite(\.unreadable-\d+)?(-wal|-shm|-journal)?|layouts\.db(-journal)?"
)


class ForeignStateError(PermissionError):
    """Another user owns a file or folder of the ledger, or could replace it."""


def make_private_folder(folder: Path) -> None:
    """Make the folder where there is none, and close it to others where it holds nothing but the ledger. Raises
    ForeignStateError: it is another user's, or others could write into it. The message says what to do. OSError: it
    can't be made."""
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    _refuse_stranger(folder)
    if not (before := folder.stat().st_mode) & OTHERS:
        return
    if not before & stat.S_ISVTX and all(OURS.fullmatch(entry.name) for entry in folder.iterdir()):
        _close(folder, FOLDER)
    state = folder.stat()
    if state.st_mode & (OTHERS_WRITE if state.st_uid == os.geteuid() else ALL_WRITE):
        mode = stat.S_IMODE(state.st_mode)
        words = f"others can write into {folder} (mode {mode:04o}): chmod go-w it, or name a folder of your own"
        raise ForeignStateError(errno.EPERM, words)
    if state.st_mode & OTHERS:
        LOG.warning("the state folder %s is open to others and holds other things: chmod 700 closes it", folder)


def refuse_strangers_file(path: Path) -> None:
    """Return where the file, or a link in its place, is this user's or the system's, or isn't there. Raises OSError
    where it is another user's."""
    with contextlib.suppress(FileNotFoundError):
        _refuse_stranger(path)


def make_private_file(path: Path) -> None:
    """Make the file where there is none, and close it to others. Raises OSError where it can't be made, or is another
    user's."""
    refuse_strangers_file(path)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, FILE))
    if path.stat().st_mode & OTHERS:
        _close(path, FILE)


def _refuse_stranger(path: Path) -> None:
    for look in (path.lstat, path.stat):  # the link itself first: what it leads to may be missing
        if (user := look().st_uid) not in list_trusted():
            words = f"{path} belongs to user {user}, who could read and change it: move it away, or take it over"
            raise ForeignStateError(errno.EPERM, words)


def _close(path: Path, mode: int) -> None:
    try:
        path.chmod(mode)
    except PermissionError:
        LOG.warning("%s is open to others and belongs to somebody else: chmod %o closes it", path, mode)
