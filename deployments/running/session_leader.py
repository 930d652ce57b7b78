"""The session leader: it starts the driver, and ends everything that the driver has started.

    python -m deployments.running.session_leader RUN_FOLDER CONTROL NEWS LOG CONFIG APP    # two open files, by number

    running ──"stop", or CONTROL is closed──▶ draining ──driver has ended, or _ORDERLY_S──▶ killing ──▶ gone
       │                                         └──"now"───────────────────────────────────▲
       └──the driver has ended by itself────────────────────────────────────────────────────┘

CONTROL is a pipe that closes with the supervisor. This process leads its own session, so no signal to the terminal
reaches it. Invariant: it never ends while anything of the run lives, and does nothing that can fail or wait before it
kills; one clock, from the moment of the stop, bounds all of it.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from deployments.running.folder import RunFolder
from deployments.running.process_tree import adopt_orphans, kill_all, reap
from deployments.running.terminal_text import clean_text

_PART_BYTES_MAX = 16 * 1024 * 1024
_READ_BYTES = 65_536
_TAIL_BYTES = 16_384


class _BoundedLog:
    """Appends to `path`; with `shown`, to the terminal too. Never raises: a full disk ends no server."""

    def __init__(self, path: Path, shown: bool = False) -> None:
        self._path = path
        self._shown = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._file: int | None = None
        self._bytes = 0
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()

    def pump(self, source: int) -> bool:
        """Write what can be read there; return False at its end, and where nothing comes."""
        try:
            data = os.read(source, _READ_BYTES)
        except OSError:
            return False
        self.write(data)
        return bool(data)

    def write(self, data: bytes) -> None:
        if self._shown:
            with contextlib.suppress(OSError):
                text = self._decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
                os.write(1, clean_text(text).encode())
        with contextlib.suppress(OSError):
            if self._bytes + len(data) > _PART_BYTES_MAX:
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
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@contextlib.contextmanager
def wake_on_signals(waiting: selectors.BaseSelector) -> Iterator[socket.socket]:
    """Let each signal that has a handler, and each child's end, wake this selector; yield what to `drain` then."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        before = signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler it wakes nobody
        woken = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        waiting.register(here, selectors.EVENT_READ)
        try:
            yield here
        finally:
            waiting.unregister(here)
            signal.set_wakeup_fd(woken)
            signal.signal(signal.SIGCHLD, before)


def drain(woken: socket.socket) -> None:
    """Forget the signals that came."""
    with contextlib.suppress(BlockingIOError):
        while woken.recv(4096):
            pass


# From the moment of the stop: requests may end by themselves in DRAIN_S, the driver in _ORDERLY_S; then all is killed.
DRAIN_S = 4.0
_ORDERLY_S = 5.5
STOP_S = 10.0
# Systems remove what lies untouched in /tmp: macOS after three days, systemd after ten.
_REFRESH_S = 6 * 3600.0
_LOOK_S = 600.0


class _SessionLeader:
    def __init__(self, folder: RunFolder, control: int, news: int, log: _BoundedLog) -> None:
        self._folder = folder
        self._control = control
        self._news = news
        self._log = log
        self._driver: subprocess.Popen[bytes] | None = None
        self._stop_at_s: float | None = None  # the driver's last moment
        self._ends_by_s: float | None = None  # everybody's
        self._ended: int | None = None
        self._refreshed_s = time.time()

    def run(self, config: str, app: str) -> None:
        with selectors.DefaultSelector() as waiting, wake_on_signals(waiting) as woken:
            self._start(config, app)
            waiting.register(self._control, selectors.EVENT_READ)
            waiting.register(self._output, selectors.EVENT_READ)
            while self._ended is None and (self._stop_at_s is None or time.monotonic() < self._stop_at_s):
                stop_in_s = _LOOK_S if self._stop_at_s is None else self._stop_at_s - time.monotonic()
                for key, _ in waiting.select(max(0.0, stop_in_s)):
                    if key.fileobj is woken:
                        drain(woken)
                    elif key.fd == self._control:
                        order = os.read(self._control, 4096)
                        if not order:
                            waiting.unregister(self._control)
                        self.stop(now=b"now" in order)
                    elif not self._log.pump(self._output):
                        waiting.unregister(self._output)
                ended = reap()  # orphans, too, which are nobody else's
                if self._driver is not None:
                    self._ended = ended.get(self._driver.pid)
                self._refresh()
        self._end()

    def _refresh(self) -> None:
        """Let the run's files look used, now and then. By wall time, which goes on while the machine sleeps."""
        if abs(time.time() - self._refreshed_s) >= _REFRESH_S:
            self._refreshed_s = time.time()
            self._folder.refresh()

    def _start(self, config: str, app: str) -> None:
        command = [sys.executable, "-P", "-m", "deployments.running.driver", str(self._news), config, app]
        folder = self._folder.path
        # What the processes forget in the run's own TMPDIR goes with the run. Ray's folder lies beside the runs.
        env = os.environ | {"TMPDIR": str(folder), "RAY_TMPDIR": str(folder.parent.parent)}
        self._driver = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
            pass_fds=(self._news,),
        )  # fmt: skip

    @property
    def _output(self) -> int:
        if self._driver is None or self._driver.stdout is None:
            raise AssertionError("the driver is started first")
        return self._driver.stdout.fileno()

    def stop(self, *, now: bool = False) -> None:
        """Begin to end, by closing the driver's pipe, or, with `now`, stop waiting for it."""
        at_s = time.monotonic()
        if self._stop_at_s is None:
            self._stop_at_s, self._ends_by_s = at_s + _ORDERLY_S, at_s + STOP_S
            if self._driver is not None and self._driver.stdin is not None:
                with contextlib.suppress(OSError):
                    self._driver.stdin.close()
        if now:
            self._stop_at_s = at_s

    def _end(self) -> None:
        asked = self._stop_at_s is not None
        ends_by_s = self._ends_by_s or time.monotonic() + STOP_S
        left = kill_all(os.getpid(), ends_by_s)
        # What the driver printed last may explain its end.
        with contextlib.suppress(OSError):
            os.set_blocking(self._output, False)
            while self._log.pump(self._output):
                pass
        news = {"ended": {"asked": asked, "code": self._ended, "left": [process.pid for process in left]}}
        with contextlib.suppress(OSError):
            os.write(self._news, (json.dumps(news) + "\n").encode())
        self._folder.remove()


def _run(folder: str, control: str, news: str, log: str, config: str, app: str) -> None:
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the driver would inherit
    for file in (int(control), int(news)):
        os.set_inheritable(file, False)
    run = RunFolder(Path(folder))
    run.hold()
    run.note(session=os.getsid(0))
    leader = _SessionLeader(
        run, int(control), int(news), _BoundedLog(Path(log), os.environ.get("MLX_STACK_VERBOSE") == "1")
    )
    signal.signal(signal.SIGTERM, lambda *_: leader.stop())
    leader.run(config, app)


if __name__ == "__main__":
    _run(*sys.argv[1:])
