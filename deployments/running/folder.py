"""What a run leaves on disk while it lasts, and how the next start clears what a dead run has left.

    BASE/runs/PORT-XXXXXXXX/   lock, held by supervisor and session leader; run.json; TMPDIR; the state actor's socket
    BASE/logs/serve-PORT.log   what Ray and Serve print, bounded; it outlives the run
    BASE/ray/session_*/        Ray's sockets and logs, one folder for each start; the last ended ones stay
    BASE/XXXX.../              HAProxy's files and sockets, one folder for each node of Ray

BASE is `ms-UID` in RAY_TMPDIR or /tmp, and this user's alone (`own_folder.py`), since Ray gives its folders mode 0777.
Invariant: nothing is killed or removed of a run whose lock is held (the kernel drops it), nor outside of BASE.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from deployments.config.config_errors import ConfigError
from deployments.config.whole_file import lock_folder, write_whole
from deployments.running.own_folder import make_own
from deployments.running.process_tree import kill_all, members

_LOCK = "lock"
_RECORD = "run.json"
_CLEAR_S = 5.0
_ENTRIES_MAX = 20_000
_SESSIONS_KEPT = 3  # ended ones, for their logs
# A socket's path has 103 bytes on macOS: BASE/ray/session_2026-11-25_20-21-54_123456_4194304/sockets/plasma_store.
_RAY_CHARS_MAX = 103 - 68
# HAProxy takes 97, since it makes a socket under a longer name first: BASE/56 characters/metrics.sock.
_HAPROXY_CHARS_MAX = 97 - 70
_WORD = re.compile(r"""[^\s"'#$\\]+""")
# HAProxy's folder: Ray names it after the node.
_NODE = re.compile(r"[0-9a-f]{56}")
_CONFIG = "haproxy.cfg"
_IN_CHARGE = ("/raylet/raylet", "deployments.running.session_leader", "deployments.running.driver")


def base_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of all runs, made where it is missing. Raises ConfigError: as `make_own`."""
    name = f"ms-{os.geteuid()}"
    given = Path(environ.get("RAY_TMPDIR") or "/tmp")
    # A process of the server has the folder itself in its RAY_TMPDIR: Ray gets it there.
    return make_own(given if given.name == name else given / name)


def refuse_unfit(base: Path, haproxy: bool) -> None:
    """Raise ConfigError where the paths of sockets under `base` would be too long, or no word in HAProxy's file."""
    if haproxy and not _WORD.fullmatch(str(base)):
        raise ConfigError(f"{base}: HAProxy takes no path with a blank, a quote, #, $ or \\: set RAY_TMPDIR to another")
    longest, size = _HAPROXY_CHARS_MAX if haproxy else _RAY_CHARS_MAX, len(os.fsencode(base))
    if size > longest:
        need = f"{base} has {size} characters, and sockets below it need a path of at most {longest}"
        raise ConfigError(f"{need}: set RAY_TMPDIR to a shorter folder")


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def create(cls, base: Path, port: int) -> RunFolder:
        path = base / "runs" / f"{port}-{secrets.token_hex(4)}"
        path.mkdir(mode=0o700, parents=True)
        return cls(path)

    def hold(self) -> int:
        """Hold the lock that says that the run lives, for as long as this process does; return the open file."""
        file = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        return file

    def note(self, **known: Any) -> None:
        write_whole(self.path / _RECORD, json.dumps(self.record() | known))

    def record(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self.path / _RECORD).read_text(encoding="utf-8"))
            return known if isinstance(known, dict) else {}
        return {}

    @contextlib.contextmanager
    def dead(self) -> Iterator[bool]:
        """Yield whether nobody holds it; while the block lasts nobody else can clear it."""
        try:
            file = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(file)

    def refresh(self) -> None:
        """Touch all that lies there (`_ENTRIES_MAX` at most), for systems that remove what is old."""
        base = self.path.parent.parent
        for path in itertools.chain([base], itertools.islice(base.rglob("*"), _ENTRIES_MAX)):
            with contextlib.suppress(OSError):
                os.utime(path, follow_symlinks=False)

    def remove(self) -> None:
        """Remove what the run had on disk: this folder and Ray's sockets. Its logs stay (`remove_ended_sessions`)."""
        shutil.rmtree(self.path, ignore_errors=True)
        base = self.path.parent.parent
        _remove_quiet_nodes(base)
        _remove_ended_sessions(base)


def find_other_server(base: Path, runs: str = "*-*", **known: str) -> str | None:
    """Describe a server that runs, of which this is known."""
    for path in (base / "runs").glob(runs):
        run = RunFolder(path)
        record = run.record()
        with run.dead() as dead:
            if not dead and "supervisor" in record and known.items() <= record.items():
                return f"another server of this kind, process {record['supervisor']} ({record.get('config', '')})"
    return None


def clear_dead(base: Path) -> list[str]:
    """Kill and remove what dead runs have left under `base`; return what was done, a line each."""
    done = []
    with lock_folder(base):  # a run that begins isn't held at first
        for run in map(RunFolder, sorted((base / "runs").glob("*-*"))):
            with run.dead() as dead:
                if dead:
                    done += _clear(run)
                    run.remove()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().real == os.getuid() and _is_haproxy_of(base, process.cmdline()) and _is_orphan(process):
                done.append(f"cleared a HAProxy that an earlier run has left (process {process.pid})")
                process.kill()
                process.wait(_CLEAR_S)
    _remove_quiet_nodes(base)
    _remove_ended_sessions(base)
    return done


def _remove_ended_sessions(base: Path) -> None:
    """Remove the folders of Ray's sessions in which no process listens; of the newest `_SESSIONS_KEPT` the sockets."""
    sessions = [path for path in (base / "ray").glob("session_*") if path.is_dir() and not path.is_symlink()]
    # A session's name begins with its time.
    ended = [path for path in sorted(sessions) if not any(map(_has_listener, (path / "sockets").glob("*")))]
    for path in ended[:-_SESSIONS_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    for path in ended[-_SESSIONS_KEPT:]:
        for left in (path / "sockets").glob("*"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(left.lstat().st_mode):
                    left.unlink()


def _clear(run: RunFolder) -> list[str]:
    session = run.record().get("session")
    # A leader with that number is somebody else: ours, the session leader, is dead.
    if not isinstance(session, int) or psutil.pid_exists(session):
        return []
    found = members(session, own=False)
    kill_all(session, time.monotonic() + _CLEAR_S, own=False)
    names = ", ".join(sorted({_name(process) for process in found}))
    return [f"cleared what an earlier run has left: {len(found)} processes ({names})"] if found else []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return "ended"


def _is_haproxy_of(base: Path, command: list[str]) -> bool:
    """Return whether this is a HAProxy with a configuration that Ray has written under `base`."""
    if not command or Path(command[0]).name != "haproxy" or "-f" not in command[:-1]:
        return False
    given = Path(command[command.index("-f") + 1])
    return given.name.startswith(_CONFIG) and given.parent.parent == base and bool(_NODE.fullmatch(given.parent.name))


def _is_orphan(process: psutil.Process) -> bool:
    """Return whether the server that it belonged to is gone: neither its parent nor its session is in charge of it."""
    known = [process.parent(), *members(os.getsid(process.pid), own=False)]
    return not any(_in_charge(each) for each in known if each is not None)


def _in_charge(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return command.startswith("ray::") or any(mark in command for mark in _IN_CHARGE)
    return False


def _remove_quiet_nodes(base: Path) -> None:
    """Remove HAProxy's folders in which nobody listens any more."""
    for folder in base.glob("*"):
        if _NODE.fullmatch(folder.name) and not folder.is_symlink() and (folder / _CONFIG).is_file():
            admin = folder / "admin.sock"
            if admin.is_socket() and not _has_listener(admin):
                shutil.rmtree(folder, ignore_errors=True)


def _has_listener(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(1.0)
        try:
            peer.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # not known: leave it
    return True
