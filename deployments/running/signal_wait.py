"""A wait that a signal ends. A selector continues its wait after a signal, so a socket of the signal module's is among
what it waits for. A child's end is such a signal.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Iterator

__all__ = ["drain", "wake_on_signals"]

BYTES = 4096


@contextlib.contextmanager
def wake_on_signals(waiting: selectors.BaseSelector) -> Iterator[socket.socket]:
    """Let each signal that has a handler, and each child's end, wake this selector; yield what to `drain` then. In the
    main thread only."""
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
        while woken.recv(BYTES):
            pass
