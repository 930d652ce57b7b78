"""The supervisor: the process that was started in the terminal, and that signals are sent to.

    starting ──a tier can answer, and the port is open──▶ serving ──TERM, INT, HUP──▶ stopping ──▶ exit code 0
       └──the start has failed──▶ 2, or 1                    └──the server ended by itself──▶ 1

The first signal begins an orderly stop, the next ends everything (exit code 128 + its number); one within `_SAME_S`
counts as the first, since Ctrl-C reaches `make` too, which sends a TERM. Under `nohup` HUP stays ignored.
Invariants: no exit while anything of the run lives; no line on the terminal raises.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import selectors
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from deployments.running.folder import RunFolder
from deployments.running.process_tree import adopt_orphans, kill_all
from deployments.running.session_leader import DRAIN_S, STOP_S, drain, tail, wake_on_signals
from deployments.running.status_messages import RunStatus, ServerPlace, failure, read_news, ready_lines
from deployments.running.terminal_text import LINE_START

_ASK_S = 1.0
# No proxy of the environment: the server is on this machine.
_OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    # Its certificate is for its clients to judge.
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
)


def is_open(url: str) -> bool:
    """Return whether `/health` below `url` is answered with 200."""
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        _OPENER.open(f"{url}/health", timeout=_ASK_S) as response,
    ):
        return bool(response.status == 200)
    return False


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SAME_S = 0.7
_POLL_S = 0.2
_REPORT_AFTER_S = 2.0
_KILL_S = 3.0
_NEWS_BYTES_MAX = 1 << 20
_FAILED, _WRONG = 1, 2


class _Supervisor:
    def __init__(self, place: ServerPlace) -> None:
        self._place = place
        self._status = RunStatus()
        self._began_s = time.monotonic()
        self._ready = False
        self._stop_orders: list[tuple[int, float]] = []  # each signal, or 0 for a start that failed; and when it came
        self._forced = 0
        self._reported_stopping = False
        self._shown = False  # a line that is written over stands there
        self._news = b""

    # -- lines -------------------------------------------------------------------------------------------------

    def say(self, *lines: str) -> None:
        text = (LINE_START if self._shown else "") + "".join(f"{line}\n" for line in lines)
        self._shown = False
        self._write(text)

    def _progress(self) -> None:
        if self._ready or self._stop_orders or not sys.stdout.isatty():
            return
        columns = shutil.get_terminal_size().columns
        self._shown = True
        self._write(LINE_START + self._status.progress(time.monotonic() - self._began_s, columns))

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()

    # -- the run -----------------------------------------------------------------------------------------------

    def add_signal(self, number: int) -> None:
        self._stop_orders.append((number, time.monotonic()))

    def run(self, leader: subprocess.Popen[bytes], control: int, news: int) -> int:
        """Watch until the session leader is gone; return the exit code."""
        handled = 0
        os.set_blocking(news, False)  # whoever writes there may outlive the session leader
        with selectors.DefaultSelector() as waiting, wake_on_signals(waiting) as woken:
            waiting.register(news, selectors.EVENT_READ)
            while leader.poll() is None and self._status.ended is None:
                for key, _ in waiting.select(self._wait_s(handled)):
                    if key.fileobj is woken:
                        drain(woken)
                    elif not self._hear(news):
                        waiting.unregister(news)
                if len(self._stop_orders) > handled:
                    handled = len(self._stop_orders)
                    self._stop(control)
                if self._stop_orders and time.monotonic() > self._stop_orders[0][1] + STOP_S:
                    break
                if self._status.failed is not None and not self._stop_orders:
                    self._stop_failed_start(control)
                self._look()
        self._hear(news)
        return self._end(leader)

    def _wait_s(self, handled: int) -> float | None:
        """Return for how long to wait for news; without end once the server runs."""
        if len(self._stop_orders) > handled:
            return 0.0
        return None if self._ready and not self._stop_orders else _POLL_S

    def _hear(self, news: int) -> bool:
        try:
            got = os.read(news, _NEWS_BYTES_MAX)
        except OSError:
            return False
        *lines, self._news = (self._news + got).split(b"\n")
        for line in lines:
            shown = read_news(self._status, line)
            if shown and not self._stop_orders:
                self.say(*shown)
        return bool(got)

    def _look(self) -> None:
        """Report once that the server can answer, and once what a stop waits for."""
        if self._stop_orders:
            self._report_stopping()
        elif self._ready:
            return
        elif self._status.answers and is_open(self._place.url):
            self._ready = True
            self.say(*ready_lines(self._place, self._status, time.monotonic() - self._began_s))
        else:
            self._progress()

    def _stop(self, control: int) -> None:
        number, at_s = self._stop_orders[-1]
        first_s = self._stop_orders[0][1]
        now = len(self._stop_orders) > 1 and at_s - first_s > _SAME_S
        if now and not self._forced:
            self._forced = number
            self.say("stopping at once")
        with contextlib.suppress(OSError):
            os.write(control, b"now\n" if now else b"stop\n")

    def _stop_failed_start(self, control: int) -> None:
        """End a start that has failed; a server that can answer all the same stays."""
        if self._ready:
            self.say(f"warning: {self._status.failed} (log: {self._place.log})")
            self._status.failed = None
            return
        self._stop_orders.append((0, time.monotonic()))
        with contextlib.suppress(OSError):
            os.write(control, b"stop\n")

    def _report_stopping(self) -> None:
        """Report once, when it is known how many requests run, or when nobody reports so."""
        running = self._status.draining
        if self._reported_stopping or self._status.failed is not None:
            return
        if not self._ready:
            words = "before the start is done"
        elif running is not None:
            many = f"{running} request{'s' if running != 1 else ''}"
            words = f"finishing {many}, at most {DRAIN_S:g} s" if running else "no request is running"
        elif time.monotonic() > self._stop_orders[0][1] + _REPORT_AFTER_S:
            words = f"at most {STOP_S:g} s"
        else:
            return
        self._reported_stopping = True
        self.say(f"stopping: {words}; again to stop now")

    def _end(self, leader: subprocess.Popen[bytes]) -> int:
        """Make sure that all is gone, and report how it ended."""
        ended = self._status.ended
        if ended is None or ended.get("left"):
            with contextlib.suppress(OSError):
                leader.kill()
            left = kill_all(leader.pid, time.monotonic() + _KILL_S)
        else:
            left = []
            with contextlib.suppress(subprocess.TimeoutExpired):
                leader.wait(_KILL_S)
        if left:
            self.say(f"not gone: {', '.join(str(process.pid) for process in left)}")
        return self._report_end(ended is None or not ended.get("asked"), left=bool(left))

    def _report_end(self, by_itself: bool, *, left: bool) -> int:
        if self._status.failed is not None:
            self.say(f"not started: {self._status.failed} (log: {self._place.log})")
            return _WRONG
        if by_itself and not self._stop_orders:
            what = "the server has ended by itself" if self._ready else "not started"
            self.say(f"{what}: {self._why()} (log: {self._place.log})")
            return _FAILED
        cut = self._status.cut
        self.say("stopped" + (f": {cut} request{'s' if cut != 1 else ''} cut off" if cut else ""))
        if self._forced:
            return 128 + self._forced
        return _FAILED if left else 0

    def _why(self) -> str:
        code = (self._status.ended or {}).get("code")
        if self._status.ended is None:
            return "its session leader was killed"
        if isinstance(code, int) and code < 0:
            return f"its driver was ended by signal {-code}"
        return failure([f"exit code {code}", tail(Path(self._place.log))])


def supervise(place: ServerPlace, app: str, folder: RunFolder, environ: Mapping[str, str], *, verbose: bool) -> int:
    """Serve in the foreground until a signal comes, or the server ends; return the exit code."""
    adopt_orphans()
    supervisor = _Supervisor(place)
    with _signals(supervisor):
        supervisor.say(f"starting {place.config} on {place.url} (log: {place.log})")
        control, to_leader = os.pipe()
        news, from_leader = os.pipe()
        command = [sys.executable, "-P", "-m", "deployments.running.session_leader", str(folder.path)]
        command += [str(control), str(from_leader), place.log, place.config, app]
        try:
            leader = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**environ, "MLX_STACK_RUN": str(folder.path), "MLX_STACK_VERBOSE": "1" if verbose else "0"},
                pass_fds=(control, from_leader),
                start_new_session=True,
            )
            os.close(control)
            os.close(from_leader)
            return supervisor.run(leader, to_leader, news)
        finally:
            folder.remove()


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Let signals wait, across an `exec` too, until a supervisor has its handlers: Python may still be importing."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextlib.contextmanager
def _signals(supervisor: _Supervisor) -> Iterator[None]:
    before = {}
    for number in _SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        before[number] = signal.signal(number, lambda number, _: supervisor.add_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
