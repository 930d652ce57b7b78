"""Folders of prepared things, each made once: in a sibling temporary folder that is renamed at the end, under a lock
that the kernel drops with its process.

Invariants: two builders never write into one folder; a reader never opens a half-written one, or one that another user
has made: native code is loaded from here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from deployments.config.whole_file import make_whole, write_whole
from deployments.running.own_folder import refuse_strangers

_LOG = logging.getLogger(__name__)

Say = Callable[[str], None]
_Figure = TypeVar("_Figure", int, int | None)


def quiet(_: str) -> None:
    """Ignore the text."""


def default_cache_dir() -> Path:
    """Return where prepared things live by default: the platform's folder for caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mlx-stack-serve"
    # An empty XDG_CACHE_HOME counts as unset, as the XDG base directory specification asks.
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlx-stack-serve"


def make_once(parent: Path, name: str, build: Callable[[Path], None], *, say: Say = quiet) -> Path:
    """Return the folder `parent/name`, built by `build(empty folder)` if it isn't there yet. Raises OSError: it can't
    be made, or another user could have made or changed it."""
    final = parent / name
    refuse_strangers(final)
    if final.is_dir():
        return final
    with hold(parent, name, say=say):
        if not final.is_dir():
            with make_whole(final, f".{name}.part-") as unfinished:
                build(unfinished)
                _settle(unfinished)
    return final


@contextmanager
def hold(parent: Path, name: str, *, say: Say = quiet) -> Iterator[None]:
    """Hold the lock of `parent/name` for what is made elsewhere: `is_being_made` is true meanwhile. Raises as
    `make_once`."""
    refuse_strangers(parent / name)
    parent.mkdir(parents=True, exist_ok=True)
    refuse_strangers(parent / name)  # who was there first?
    with (parent / f".{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is preparing the same thing")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_being_made(parent: Path, name: str) -> bool:
    """Tell whether a process is building `parent/name` now. Waits for none, and holds none up."""
    try:
        with (parent / f".{name}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has ever built it
        return False
    return False


def measure_once(folder: Path, facts: Any, measure: Callable[[], _Figure]) -> int | _Figure:
    """Return a number that is measured once for `facts` (JSON), and kept in `folder` for all processes; None isn't."""
    file = folder / hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    with suppress(OSError, ValueError):
        return int(file.read_text(encoding="ascii"))
    figure = measure()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if figure is not None:
            write_whole(file, str(figure))
    except OSError as error:
        _LOG.info("%s: %s", file, error.strerror or error)
    return figure


def _settle(folder: Path) -> None:
    """Make the contents durable and readable: temporary folders and weight files are born private."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
        if path.is_file():  # without this a power cut after the rename can leave final names with empty contents
            with path.open("rb") as file:
                os.fsync(file.fileno())
