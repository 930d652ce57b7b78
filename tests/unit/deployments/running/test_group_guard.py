"""A group of processes is killed with the process that started it, and left alone by a guard that is closed."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from deployments.running.group_guard import GroupGuard
from tests.support.repository import ROOT

PARENT = """
import subprocess, sys
from deployments.running.group_guard import GroupGuard

child = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & sleep 600"], start_new_session=True)
guard = GroupGuard(child.pid)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ignored", ["", "INT", "INT HUP TERM"])
def test_a_group_ends_with_the_process_that_started_it(ignored: str) -> None:
    """Law: when the starting process is killed, every process of the group ends, whichever signals are ignored."""
    shell = ["/bin/sh", "-c", f'trap "" {ignored}; exec "$@"' if ignored else 'exec "$@"', "sh"]
    command = [*shell, sys.executable, "-c", PARENT]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        leader = psutil.Process(int(parent.stdout.readline()))
        group = [leader]
        while len(group) < 3:  # the shell and both of its sleeps
            group = [leader, *leader.children(recursive=True)]
        parent.kill()

    _, alive = psutil.wait_procs(group, timeout=30)
    assert not alive


def test_a_closed_guard_leaves_the_group_alone() -> None:
    """Law: after `close` no process of the guard is left, and the group runs on."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        guard = GroupGuard(child.pid)
        guard.close()
        assert guard._shell.returncode is not None
        out, _ = child.communicate(b"still here")

    assert (out, child.returncode) == (b"still here", 0)
