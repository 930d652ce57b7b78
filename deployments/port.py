"""Who listens on a port of this machine."""

from __future__ import annotations

import socket

import psutil

__all__ = ["find_listener"]

CONNECT_S = 1.0


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
