"""Make a folder that only this user can reach, or raise one clear error.

It belongs to this user with mode 0700 and is no link; each folder above it, links followed, belongs to this user or the
system, and has the sticky bit where others may write: else another user could replace a socket in it, or the folder.
`refuse_strangers` asks less, for caches that others may read: no stranger could have made or changed it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from deployments.config.config_errors import ConfigError

OTHERS, OTHERS_WRITE, ALL_WRITE = 0o077, 0o022, 0o002
LINKS_MAX = 40


def make_own(folder: Path) -> Path:
    """Return the folder, made where it is missing. Raises ConfigError: it can't be made, or another user could reach it
    or replace it. One line, with what to do."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # looked at below, whoever made it
            folder.mkdir(mode=0o700)
        fault = _find_fault(folder.lstat()) or _find_fault_above(folder.absolute())
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; set RAY_TMPDIR to a folder of your own") from None
    if fault:
        raise ConfigError(f"{folder}: {fault}; mend that, or set RAY_TMPDIR to a folder of your own")
    return folder


def refuse_strangers(folder: Path) -> None:
    """Return where no stranger could have made the folder or what is in it. It need not exist. Raises OSError: one
    could. The message says where."""
    if fault := _find_strangers(folder.absolute() / "anything"):
        raise OSError(errno.EPERM, f"{folder} isn't used: {fault}; mend that, or take a folder of your own")


def _find_strangers(path: Path, links: int = 0) -> str:
    """Find a folder on the way in which a stranger could have made or renamed what is on the way."""
    trusted = list_trusted()
    for name in (path, *path.parents)[:-1]:
        try:
            above = name.parent.stat()
            state = name.lstat() if os.path.lexists(name) else None
        except FileNotFoundError:
            continue
        shared = bool(above.st_mode & ALL_WRITE)
        if shared and not above.st_mode & stat.S_ISVTX:
            return f"everybody can write into {name.parent} (mode {stat.S_IMODE(above.st_mode):04o})"
        if shared and state is not None and state.st_uid not in trusted:
            return f"user {state.st_uid} has made {name}, where anybody could"
        if state is not None and stat.S_ISLNK(state.st_mode):
            if links >= LINKS_MAX:
                return f"{name} is a link that leads in a circle"
            if fault := _find_strangers(name.parent / name.readlink(), links + 1):
                return fault
    return ""


def list_trusted() -> set[int]:
    """List the users whose folders count as the system's own: root and this one; in a container that maps users,
    whoever root is there."""
    return {0, os.geteuid(), Path("/").stat().st_uid}


def _find_fault(state: os.stat_result) -> str:
    if not stat.S_ISDIR(state.st_mode):
        return "it is no folder" + (" but a symbolic link" if stat.S_ISLNK(state.st_mode) else "")
    if state.st_uid != os.geteuid():
        return f"it belongs to user {state.st_uid}, not to user {os.geteuid()}"
    if state.st_mode & OTHERS:
        return f"other users can reach it (mode {stat.S_IMODE(state.st_mode):04o}, needed is 0700)"
    return ""


def _find_fault_above(folder: Path, links: int = 0) -> str:
    """Find a folder on the way to this one in which another user could rename what is on the way."""
    trusted = list_trusted()
    for parent in folder.parents:
        state = parent.lstat()
        if state.st_uid not in trusted:
            return f"{parent} above it belongs to user {state.st_uid}"
        if stat.S_ISLNK(state.st_mode):
            if links >= LINKS_MAX:
                return f"{parent} above it is a link that leads in a circle"
            target = parent.parent / parent.readlink()
            if fault := _find_fault_above(target / folder.name, links + 1):
                return fault
        elif state.st_mode & OTHERS_WRITE and not state.st_mode & stat.S_ISVTX:
            return f"other users can rename it in {parent} (mode {stat.S_IMODE(state.st_mode):04o})"
    return ""
