"""The process at the other end of `deployments.work.worker_pool`: reads a call, does it, sends what came of it.

    python -m deployments.work.worker FD [MODULE...]    # the modules that its jobs need

A job that runs beyond its seconds ends the process: the alarm's default action is the kernel's, so no loop in C code
can hold it off. An answer is (True, result) or (False, exception). The end of the socket is the end of the process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
from typing import Any

from deployments.work.worker_pool import HEAD

__all__ = ["main"]

NICENESS = 5


def main(number: int) -> None:
    """Serve one socket to its end."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.nice(NICENESS)
    gc.freeze()
    with socket.socket(fileno=number) as peer, contextlib.suppress(ConnectionError):
        peer.sendall(b"+")
        while head := _read(peer, HEAD.size):
            seconds, size = HEAD.unpack(head)
            message = _read(peer, size)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            answer = _do(message)
            signal.setitimer(signal.ITIMER_REAL, 0)
            peer.sendall(HEAD.pack(0, len(answer)))
            peer.sendall(answer)


def _read(peer: socket.socket, size: int) -> bytes:
    """Read exactly so many bytes; none at the end of the socket."""
    found = bytearray()
    while len(found) < size:
        part = peer.recv(min(size - len(found), 1 << 20))
        if not part:
            return b""
        found += part
    return bytes(found)


def _do(message: bytes) -> bytes:
    """Do a pickled call; return its pickled outcome."""
    outcome: tuple[bool, Any]
    try:
        function, args, named = pickle.loads(message)
        outcome = True, function(*args, **named)
    except Exception as error:  # whatever it is, it is the caller's to see
        outcome = False, error.with_traceback(None)
    try:
        return pickle.dumps(outcome, protocol=5)
    except Exception as error:
        return pickle.dumps((False, RuntimeError(f"the outcome can't be carried: {error}")), protocol=5)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    main(int(sys.argv[1]))
