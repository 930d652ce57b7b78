"""Find the processes of one run, whoever is their parent by now, and end them.

The session leader leads a session (`setsid`) that everything is born into. On Linux orphans go to it too
(`adopt_orphans`), so a process that left the session is found as a descendant; macOS has no adoption (not run there).
psutil compares start times before it sends a signal. Invariant: no signal to a process that isn't of the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.02


def adopt_orphans() -> None:
    """Become the parent of what is born beneath this process and loses its parent. On Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def members(session: int, *, own: bool = True) -> list[psutil.Process]:
    """Find the other processes of the session, and all that descend from them, or from this process (`own`)."""
    everybody: dict[int, psutil.Process] = {}
    children: dict[int, list[int]] = {}
    found = [os.getpid()] if own else []
    # One look at each process: what is to be ended is many, on a machine that is busy with their end.
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            everybody[process.pid] = process
            children.setdefault(process.ppid(), []).append(process.pid)
            if os.getsid(process.pid) == session:
                found.append(process.pid)
    ours: set[int] = set()
    while found:
        if (pid := found.pop()) not in ours:
            ours.add(pid)
            found += children.get(pid, [])
    ours.discard(os.getpid())
    return [everybody[pid] for pid in ours if pid in everybody and _lives(everybody[pid])]


def kill_all(session: int, until_s: float, *, own: bool = True) -> list[psutil.Process]:
    """Kill them, again and again until none is left, or until that moment (`time.monotonic`); return what is left."""
    while left := members(session, own=own):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        reap()
        if time.monotonic() > until_s:
            return left
        time.sleep(_PAUSE_S)
    while own and _has_children() and time.monotonic() < until_s:
        reap()  # process 1 takes its time
        time.sleep(_PAUSE_S)
    return []


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap() -> dict[int, int]:
    """Take note of the children that have ended; return their exit codes (negative: a signal) by process id."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (got := os.waitpid(-1, os.WNOHANG))[0]:
            ended[got[0]] = os.waitstatus_to_exitcode(got[1])
    return ended


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


_WATCH = 'read -r _; kill -s KILL -- "-$1"'


class GroupGuard:
    """The guard of one group. `leader` is the process id of the group's first process."""

    def __init__(self, leader: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", str(leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()
