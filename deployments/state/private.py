"""The ledger's files are their owner's alone: a journal tells who asked what, when, and how much of it.

A folder that is made here has mode 0700, a file 0600, from its first moment on. What is there already and too open is
tightened where it is ours: each file by its name, and the folder where it holds nothing else. A folder that somebody
named in `state.path` may be anybody's, a home directory or /tmp: it stays as it is, and the log says so in one line.
A journal that another user has put there is refused: whoever owns a file reads it, and it may be another's history.

What must never happen: a file of the ledger that others can read, the mode of a folder changed that holds other things.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from pathlib import Path

from deployments.running.own_folder import list_trusted

__all__ = ["make_private_file", "make_private_folder", "refuse_strangers_file"]

LOG = logging.getLogger("ray.serve")
FOLDER, FILE, OTHERS = 0o700, 0o600, 0o077
# Older versions also wrote sessions-K-of-N.sqlite and layouts.db.
OURS = re.compile(
    r"(ledger|sessions-\d+-of-\d+)\.sqlite(\.unreadable-\d+)?(-wal|-shm|-journal)?|layouts\.db(-journal)?"
)


def make_private_folder(folder: Path) -> None:
    """Make the folder where there is none, and close it to others where it is ours.

    Raises:
        OSError: it can't be made.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    if not folder.stat().st_mode & OTHERS:
        return
    if all(OURS.fullmatch(entry.name) for entry in folder.iterdir()):
        _close(folder, FOLDER)
    else:
        LOG.warning("the state folder %s is open to others and holds other things: chmod 700 closes it", folder)


def refuse_strangers_file(path: Path) -> None:
    """Return where the file, or a link in its place, is this user's or the system's, or isn't there.

    Raises:
        OSError: it is another user's. The message says what to do.
    """
    with contextlib.suppress(FileNotFoundError):
        for user in (path.lstat().st_uid, path.stat().st_uid):
            if user not in list_trusted():
                words = f"{path} belongs to user {user}, who could read and change it: move it away, or take it over"
                raise PermissionError(errno.EPERM, words)


def make_private_file(path: Path) -> None:
    """Make the file where there is none, and close it to others.

    Raises:
        OSError: it can't be made, or is another user's.
    """
    refuse_strangers_file(path)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, FILE))
    if path.stat().st_mode & OTHERS:
        _close(path, FILE)


def _close(path: Path, mode: int) -> None:
    try:
        path.chmod(mode)
    except PermissionError:
        LOG.warning("%s is open to others and belongs to somebody else: chmod %o closes it", path, mode)
