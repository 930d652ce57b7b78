"""Ports of this machine: who listens on one, and one on which nobody does."""

from __future__ import annotations

import contextlib
import random
import socket

import psutil

__all__ = ["find_listener", "free_port"]

CONNECT_S = 1.0
# Below those that systems give out by themselves, and those of Ray Serve's replicas (30000 and up).
PORTS = range(20_000, 30_000)


def find_listener(host: str, port: int) -> str | None:
    """Name the process that listens, in words; None where nobody does. Where the process may not be
    seen, "another process"."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            pass
    except OSError:
        return None
    return _find_process(port) or "another process"


def _find_process(port: int) -> str | None:
    # macOS lists only the own processes' connections without root.
    for process in psutil.process_iter(["pid", "name"]):
        try:
            ports = {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
        if port in ports:
            return f"process {process.info['pid']} ({process.info['name']})"
    return None


def free_port() -> int:
    """Find a port of loopback that nobody listens on. Not one that the system may give to the next
    who asks for any: Ray's many processes ask for dozens while they start.

    Raises:
        OSError: none of them is free.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port between {PORTS[0]} and {PORTS[-1]} is free")
