"""The process at the other end of `worker_pool`: reads a call, does it, sends its outcome.

    python -m deployments.work.worker FD [MODULE...]    # the modules that its jobs need

A job that computes beyond its seconds ends the process by the kernel's SIGPROF; the end of the socket is its end, too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys

from deployments.work.worker_pool import HEAD, do_job

_NICENESS = 5


def main(number: int) -> None:
    """Serve one socket to its end."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.nice(_NICENESS)
    gc.freeze()
    with socket.socket(fileno=number) as peer, peer.makefile("rb") as calls, contextlib.suppress(ConnectionError):
        peer.sendall(b"+")
        while len(head := calls.read(HEAD.size)) == HEAD.size:
            seconds, size = HEAD.unpack(head)
            message = calls.read(size)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answer = do_job(message)
            signal.setitimer(signal.ITIMER_PROF, 0)
            peer.sendall(HEAD.pack(0, len(answer)))
            peer.sendall(answer)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    main(int(sys.argv[1]))
