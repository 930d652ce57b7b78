"""Folders and files that only this user can reach, made so, or one clear error.

`make_own`, for a run: the folder belongs to this user with mode 0700 and is no link; each folder above it, links
followed, belongs to this user or the system, and has the sticky bit where others may write: else another user could
replace a socket in it, or the folder.
`refuse_strangers` asks less, for caches that others may read: no stranger could have made or changed them.
`refuse_read_token` asks it of the token that Ray has made, and that no other user could have read it.
`make_private_folder`, `make_private_file`, for the ledger: what belongs to another user, or may be written by others,
is refused. The mode of a folder that holds other things, as a home directory does, never changes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from deployments.config.config_errors import ConfigError

LOG = logging.getLogger("ray.serve")
_FOLDER, _FILE, _OTHERS = 0o700, 0o600, 0o077
_OTHERS_WRITE, _OTHERS_ENTER, _ALL_WRITE = 0o022, 0o011, 0o002
_LINKS_MAX = 40
# The ledger's files. Older versions also wrote sessions-K-of-N.sqlite and layouts.db.
_LEDGER_FILES = re.compile(
    r"(ledger|sessions-\d+-of-\d+)\.sqlite(\.unreadable-\d+)?(-wal|-shm|-journal)?|layouts\.db(-journal)?"
)


class ForeignStateError(PermissionError):
    """Another user owns a file or folder of the ledger, or could replace it."""


def make_own(folder: Path) -> Path:
    """Return the folder, made where it is missing. Raises ConfigError: another user could reach or replace it."""
    try:
        folder.parent.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # looked at below, whoever made it
            folder.mkdir(mode=_FOLDER)
        fault = _find_fault(folder.lstat()) or _find_fault_above(folder.absolute())
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; set RAY_TMPDIR to a folder of your own") from None
    if fault:
        raise ConfigError(f"{folder}: {fault}; mend that, or set RAY_TMPDIR to a folder of your own")
    return folder


def refuse_strangers(folder: Path) -> None:
    """Raise OSError where a stranger could have made the folder, which need not exist, or what is in it."""
    if fault := find_strangers(folder.absolute() / "anything"):
        raise OSError(errno.EPERM, f"{folder} isn't used: {fault}; mend that, or take a folder of your own")


def _find_readers(path: Path) -> str:
    """Find how another user could have read or made this secret, which need not exist; "" where none could."""
    if (fault := find_strangers(path)) or not path.exists():
        return fault
    mode = stat.S_IMODE(path.stat().st_mode)
    is_open = mode & _OTHERS and all(parent.stat().st_mode & _OTHERS_ENTER for parent in path.resolve().parents)
    return f"other users can reach it (mode {mode:04o})" if is_open else ""


def refuse_read_token(environ: Mapping[str, str]) -> None:
    """Raise ConfigError where Ray asks for a token that another user could have read or made."""
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    asks = environ.get("RAY_AUTH_MODE", "").lower() == "token" and not environ.get("RAY_AUTH_TOKEN")
    if asks and (fault := _find_readers(path)):
        words = "whoever has read Ray's token can run code as you: delete it, and the server makes a new one"
        raise ConfigError(f"{path}: {fault}, and {words}")


def find_strangers(path: Path, links: int = 0) -> str:
    """Find a folder on the way in which a stranger could have made or renamed what is on the way; "": none."""
    trusted = list_trusted()
    for name in (path, *path.parents)[:-1]:
        try:
            above = name.parent.stat()
            state = name.lstat() if os.path.lexists(name) else None
        except FileNotFoundError:
            continue
        shared = bool(above.st_mode & _ALL_WRITE)
        if shared and not above.st_mode & stat.S_ISVTX:
            return f"everybody can write into {name.parent} (mode {stat.S_IMODE(above.st_mode):04o})"
        if shared and state is not None and state.st_uid not in trusted:
            return f"user {state.st_uid} has made {name}, where anybody could"
        if state is not None and stat.S_ISLNK(state.st_mode):
            if links >= _LINKS_MAX:
                return f"{name} is a link that leads in a circle"
            if fault := find_strangers(name.parent / name.readlink(), links + 1):
                return fault
    return ""


def list_trusted() -> set[int]:
    """List the users whose folders count as the system's own: this one, and root, also as a container maps it."""
    return {0, os.geteuid(), Path("/").stat().st_uid}


def _find_fault(state: os.stat_result) -> str:
    if not stat.S_ISDIR(state.st_mode):
        return "it is no folder" + (" but a symbolic link" if stat.S_ISLNK(state.st_mode) else "")
    if state.st_uid != os.geteuid():
        return f"it belongs to user {state.st_uid}, not to user {os.geteuid()}"
    if state.st_mode & _OTHERS:
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
            if links >= _LINKS_MAX:
                return f"{parent} above it is a link that leads in a circle"
            target = parent.parent / parent.readlink()
            if fault := _find_fault_above(target / folder.name, links + 1):
                return fault
        elif state.st_mode & _OTHERS_WRITE and not state.st_mode & stat.S_ISVTX:
            return f"other users can rename it in {parent} (mode {stat.S_IMODE(state.st_mode):04o})"
    return ""


def make_private_folder(folder: Path) -> None:
    """Make the folder where there is none, and close it to others where it holds nothing but the ledger. Raises
    ForeignStateError: it is another user's, or others could write into it. OSError: it can't be made."""
    folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER)
    _refuse_stranger(folder)
    if not (before := folder.stat().st_mode) & _OTHERS:
        return
    if not before & stat.S_ISVTX and all(_LEDGER_FILES.fullmatch(entry.name) for entry in folder.iterdir()):
        _close(folder, _FOLDER)
    state = folder.stat()
    if state.st_mode & (_OTHERS_WRITE if state.st_uid == os.geteuid() else _ALL_WRITE):
        mode = stat.S_IMODE(state.st_mode)
        words = f"others can write into {folder} (mode {mode:04o}): chmod go-w it, or name a folder of your own"
        raise ForeignStateError(errno.EPERM, words)
    if state.st_mode & _OTHERS:
        LOG.warning("the state folder %s is open to others and holds other things: chmod 700 closes it", folder)


def refuse_strangers_file(path: Path) -> None:
    """Raise OSError where the file, or a link in its place, is another user's."""
    with contextlib.suppress(FileNotFoundError):
        _refuse_stranger(path)


def make_private_file(path: Path) -> None:
    """Make the file where there is none, and close it to others. Raises OSError: as `refuse_strangers_file`."""
    refuse_strangers_file(path)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
    if path.stat().st_mode & _OTHERS:
        _close(path, _FILE)


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
