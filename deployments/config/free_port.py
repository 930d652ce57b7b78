"""Ports of this machine: who listens on one, and one on which nobody does."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"

_CONNECT_S = 1.0
# Ray's dashboard, as Ray's own programs look for it.
DASHBOARD_PORT = 8265
# Below those that systems give out by themselves, and those of Ray Serve's replicas (30000 and up).
_PORTS = range(20_000, 30_000)


def find_listener(host: str, port: int) -> str | None:
    """Name the process that listens, or "another process" where it may not be seen; None where nobody does."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
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


def find_owners(host: str, port: int) -> set[int]:
    """Find the users whose processes a connection to this address of loopback may reach. Linux alone tells."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for row in _list_sockets():
        address = row.local.address
        exact = address.is_loopback if host == "localhost" else str(address) == host.strip("[]")
        if row.state == _LISTEN and row.local.port == port and (exact or address.is_unspecified):
            found[exact].add(row.user)
    return found[True] or found[False]  # the kernel prefers the exact address


def find_peer_owners(own: tuple[Any, ...], peer: tuple[Any, ...]) -> set[int] | None:
    """Find the users who hold, or may accept, the other end of a connection of loopback; None: not known."""
    if not any(table.exists() for table in _TABLES):
        return None
    ends = tuple(_Endpoint(_unmap(ipaddress.ip_address(host)), port) for host, port, *_ in (peer, own))
    while (users := _find_accepted(ends)) is None:
        # A connection that waits to be accepted ends with its listener: if it still waits, that is whose it is.
        listeners = find_owners(peer[0], peer[1])
        if _find_accepted(ends) is None:
            return listeners
    return users


def _find_accepted(ends: tuple[_Endpoint, ...]) -> set[int] | None:
    """Find the users who hold one end of a connection; none where it has ended, None while it waits to be accepted."""
    rows = [row for row in _list_sockets() if (row.local, row.remote) == ends]
    return None if any(row.inode == 0 for row in rows) else {row.user for row in rows}


class _Endpoint(NamedTuple):
    address: _Address
    port: int


class _SocketRow(NamedTuple):
    local: _Endpoint
    remote: _Endpoint
    state: str
    user: int
    inode: int


def _list_sockets() -> Iterator[_SocketRow]:
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text(encoding="ascii").splitlines()[1:]:
                _, local, remote, state, *rest = line.split()
                yield _SocketRow(_read_endpoint(local), _read_endpoint(remote), state, int(rest[3]), int(rest[5]))


def _read_endpoint(text: str) -> _Endpoint:
    address, _, port = text.partition(":")
    return _Endpoint(_read_address(address), int(port, 16))


def _read_address(digits: str) -> _Address:
    """Read an address as the kernel writes it: words of 32 bits, in the machine's own order."""
    words = (int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
    return _unmap(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))


def _unmap(address: _Address) -> _Address:
    """Return IPv4's address where IPv6 writes one."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def free_port() -> int:
    """Find a port of loopback that nobody listens on, and that the system gives to nobody else. Raises OSError: none of
    them is free."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port between {_PORTS[0]} and {_PORTS[-1]} is free")
