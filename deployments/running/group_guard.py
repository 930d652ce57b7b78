"""Kills a group of processes when the process that started it is gone, however that died.

A shell in its own session waits for the end of a pipe that only this process holds, then sends SIGKILL to the group: no
process can ignore it. Invariant: close the guard before waiting for the group's leader, whose number may be reused.
"""

from __future__ import annotations

import subprocess

__all__ = ["GroupGuard"]

WATCH = 'read -r _; kill -s KILL -- "-$1"'


class GroupGuard:
    """The guard of one group. `leader` is the process id of the group's first process."""

    def __init__(self, leader: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "sh", str(leader)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the guard, and leave the group alone."""
        self._shell.kill()
        self._shell.communicate()
