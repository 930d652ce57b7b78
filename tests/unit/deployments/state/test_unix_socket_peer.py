"""The kernel's word for who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
import struct
import sys

import pytest

from deployments.state import unix_socket
from deployments.state.unix_socket import Foreigner, find_user, refuse_foreigner


def test_ones_own_process_is_let_in():
    """Both ends of a pair are this process's."""
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        refuse_foreigner(here)
        assert find_user(there) == os.geteuid()


def test_another_users_process_is_not(monkeypatch):
    """The error names both."""
    mine = os.geteuid()
    monkeypatch.setattr(unix_socket.os, "geteuid", lambda: mine + 1)
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there, pytest.raises(Foreigner, match=f"belongs to user {mine}, not to user {mine + 1}"):
        refuse_foreigner(here)


class Mac:
    """A socket of macOS, as its headers describe it: `xucred` is a version, the user, a count, 16 groups."""

    def __init__(self, version: int, user: int) -> None:
        self.answer = struct.pack("=IIh2x16I", version, user, 1, *range(16))

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert (level, option) == (0, 1)
        assert size == len(self.answer)
        return self.answer


def test_macos_says_it_in_its_own_way(monkeypatch):
    """The same answers; another version of the struct is no answer."""
    monkeypatch.setattr(sys, "platform", "darwin")
    refuse_foreigner(Mac(0, os.geteuid()))
    with pytest.raises(Foreigner, match="belongs to user"):
        refuse_foreigner(Mac(0, os.geteuid() + 1))
    with pytest.raises(Foreigner, match="version 1"):
        refuse_foreigner(Mac(1, os.geteuid()))
