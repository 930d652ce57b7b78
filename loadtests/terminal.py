"""A program in a terminal of its own (a pty), and all that belongs to it: to stop a server, and to see what is left.

The processes are found in three ways: by the sessions that they were in, by a mark in their environment, and as
children; so one that lost its parent is found too.

What must never happen: that a process is ended that the program didn't start.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import psutil

from loadtests.running import ROOT

MARK = "MLX_STACK_STOPS"
SCREEN_BYTES_MAX = 1 << 20


@dataclass
class Terminal:
    """A program in a pty of its own. `screen` is what it has shown."""

    pid: int
    master: int
    mark: str
    screen: bytes = b""
    code: int | None = None
    sessions: set[int] = field(default_factory=set)
    seen: dict[int, float] = field(default_factory=dict)

    def read(self) -> None:
        """Take in what is on the screen by now, without waiting."""
        with contextlib.suppress(OSError):
            while self.master >= 0 and select.select([self.master], [], [], 0)[0]:
                got = os.read(self.master, 65_536)
                if not got:
                    return
                self.screen = (self.screen + got)[-SCREEN_BYTES_MAX:]

    @property
    def text(self) -> str:
        """The screen as text."""
        self.read()
        return self.screen.decode("utf-8", "replace").replace("\r\n", "\n")

    def has_ended(self) -> bool:
        """Tell whether the program that was started is gone; `code` is its exit code then (negative: a signal)."""
        self.read()
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def close(self) -> None:
        """Close the terminal: the kernel sends HUP."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def look(self) -> None:
        """Take note of who belongs to it by now."""
        for process in self.find_living():
            with contextlib.suppress(psutil.Error, OSError):
                self.seen[process.pid] = process.create_time()
                self.sessions.add(os.getsid(process.pid))

    def find_living(self) -> list[psutil.Process]:
        """Find whatever lives of it, whoever its parent is."""
        found = {}
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            found = {child.pid: child for child in (root, *root.children(recursive=True))}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if self._is_ours(process):
                    found[process.pid] = process
        return [process for process in found.values() if _lives(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.pid in self.seen:
            return bool(self.seen[process.pid] == process.create_time())
        if os.getsid(process.pid) in self.sessions:
            return True
        return process.uids().real == os.getuid() and process.environ().get(MARK) == self.mark


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


@contextlib.contextmanager
def terminal(command: Sequence[str], env: dict[str, str]) -> Iterator[Terminal]:
    """Run a program in a terminal; at the end whatever is left of it is killed, by process id."""
    mark = uuid.uuid4().hex
    pid, master = pty.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            for number in (signal.SIGINT, signal.SIGHUP):  # ignored where the caller is in the background
                signal.signal(number, signal.SIG_DFL)
            os.chdir(ROOT)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # what this process holds is no part of a terminal
            os.execve(command[0], list(command), env | {MARK: mark})
        os._exit(127)
    started = Terminal(pid, master, mark, sessions={pid})
    try:
        yield started
    finally:
        deadline = time.monotonic() + 5
        while (left := started.find_living()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.05)
        with contextlib.suppress(ChildProcessError):
            started.has_ended()
        started.close()
