"""Who is at the other end of a Unix socket: the kernel knows, and no peer can claim otherwise.

Linux has SO_PEERCRED (unix(7): `struct ucred`, three ints: process, user, group), macOS LOCAL_PEERCRED (unix(4) and
<sys/ucred.h>: `struct xucred`, an unsigned version, which is 0, and the user first). Both say who the peer was when it
connected, or, of a listener, when it began to listen.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Protocol

__all__ = ["Foreigner", "refuse_foreigner"]

UCRED = struct.Struct("3i")
XUCRED = struct.Struct("II")
XUCRED_BYTES = 76  # with its 16 groups
SOL_LOCAL, LOCAL_PEERCRED = 0, 1  # <sys/un.h> of macOS


class Foreigner(PermissionError):
    """The process at the other end belongs to another user."""


class Peered(Protocol):
    """A socket, or what asyncio gives out of one."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Read an option."""
        ...


def refuse_foreigner(peer: Peered) -> None:
    """Return where the process at the other end belongs to this process's user.

    Raises:
        Foreigner: it belongs to another one, or the kernel doesn't say.
        OSError: the peer is gone.
    """
    user = find_user(peer)
    if user != os.geteuid():
        raise Foreigner(f"the process at the other end belongs to user {user}, not to user {os.geteuid()}")


def find_user(peer: Peered) -> int:
    """Return the user of the process at the other end."""
    if sys.platform == "darwin":
        version, user = XUCRED.unpack_from(peer.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES))
        if version != 0:
            raise Foreigner(f"the kernel's struct xucred has version {version}, not 0")
        return int(user)
    _, user, _ = UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    return int(user)
