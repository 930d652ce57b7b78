"""The processes of a run: all of them are found and ended, and nobody else."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deployments.running.folder import RunFolder, clear_dead
from deployments.running.process_tree import GroupGuard, kill_all, members
from loadtests.running import short_folder
from tests.support.repository import ROOT
from tests.support.serving import until

# A leader of a session, which says the session's number and starts a process in a group of its own, whose parent dies.
LEADER = """
import os, subprocess, sys, time
code = "import subprocess, sys, os; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], {})"
subprocess.run([sys.executable, "-c", code.format("process_group=0")])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("there", flush=True)
time.sleep({stays})
"""


@contextlib.contextmanager
def leader(stays_s: int) -> Iterator[subprocess.Popen[bytes]]:
    """The leader, with two processes in its session, one of which has lost its parent; all end with the block."""
    code = LEADER.replace("{stays}", str(stays_s))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"there\n"
        yield process
    finally:
        kill_all(process.pid, time.monotonic() + 10, own=False)
        process.wait(10)


def test_a_session_is_ended_whole_and_no_other():
    """Those in other process groups too, and those whose parent is dead; a run that ends takes no other with it."""
    with leader(600) as process, leader(600) as other:
        found = members(process.pid, own=False)

        assert len(found) == 3
        assert kill_all(process.pid, time.monotonic() + 10, own=False) == []
        process.wait(10)
        _, alive = psutil.wait_procs(found, timeout=10)
        assert alive == []
        assert len(members(other.pid, own=False)) == 3


def made(base: Path, session: int) -> RunFolder:
    run = RunFolder.create(base, 8000)
    run.note(session=session)
    return run


def test_what_a_dead_run_has_left_is_cleared(tmp_path):
    """The leader is dead and nobody holds the lock: the next start ends the rest, says so, and removes the folder."""
    with leader(0) as process:
        process.wait(10)
        run = made(tmp_path, process.pid)
        found = members(process.pid, own=False)
        assert len(found) == 2
        told = clear_dead(tmp_path)
        _, alive = psutil.wait_procs(found, timeout=10)

    assert alive == []
    assert len(told) == 1
    assert told[0].startswith("cleared what an earlier run has left: 2 processes")
    assert not run.path.exists()


def test_a_run_that_lives_is_left_alone(tmp_path):
    """Whoever holds its lock lives, in this process or another one; when that is killed it is over."""
    run = RunFolder.create(tmp_path, 8000)
    code = f"""
from pathlib import Path
from deployments.running.folder import RunFolder
RunFolder(Path({str(run.path)!r})).hold()
print("there", flush=True)
input()
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout.readline() == b"there\n"
    run.note(session=holder.pid)
    assert clear_dead(tmp_path) == []
    assert run.path.exists()
    holder.kill()
    holder.wait(10)
    clear_dead(tmp_path)

    assert not run.path.exists()


def test_a_number_that_is_somebody_elses_by_now_is_no_reason_to_kill(tmp_path):
    """The session of the record has a living leader: it isn't ours, so its members are strangers."""
    with leader(600) as stranger:
        run = made(tmp_path, stranger.pid)
        assert clear_dead(tmp_path) == []
        assert not run.path.exists()
        assert len(members(stranger.pid, own=False)) == 3


HAPROXY = """
import socket, sys, time
peer = socket.socket(socket.AF_UNIX)
peer.bind(sys.argv[sys.argv.index("-f") + 1].replace("haproxy.cfg.loopback", "admin.sock"))
peer.listen()
print("there", flush=True)
time.sleep(600)
"""


def haproxy(base: Path, node: str, *starter: str) -> subprocess.Popen[bytes]:
    """Something that calls itself HAProxy, with a configuration under `base`, as the child of a process that dies, or
    of `starter`, a program that stays. The folder is short: a socket's path has at most 107 characters, and the name of
    a node takes 56 of them."""
    folder = base / node
    folder.mkdir()
    (folder / "haproxy.cfg").write_text("")
    program = base / "haproxy"
    program.symlink_to(sys.executable)
    command = [*starter, str(program), "-c", HAPROXY, "-db", "-f", str(folder / "haproxy.cfg.loopback")]
    env = os.environ | {"PYTHONHOME": sys.base_prefix}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, env=env)
    assert process.stdout.readline() == b"there\n"
    return process


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="HAProxy is in use on Linux only")
def test_a_haproxy_without_its_server_is_cleared():
    """It holds the port and answers 500: the next start ends it and removes its folder. One whose configuration is not
    Ray's, under this folder, is somebody else's."""
    with short_folder() as base, short_folder() as other:
        left, stranger = haproxy(base, "0" * 56), haproxy(other, "1" * 56)
        try:
            told = clear_dead(base)
            left.wait(10)
            assert told == [f"cleared a HAProxy that an earlier run has left (process {left.pid})"]
            assert stranger.poll() is None
            assert not (base / ("0" * 56)).exists()
            assert (other / ("1" * 56)).exists()
            assert clear_dead(other) != []
        finally:
            for process in (left, stranger):
                process.kill()
                process.wait(10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="HAProxy is in use on Linux only")
def test_a_haproxy_with_its_server_is_left_alone():
    """While somebody in its session may still be in charge of it, it isn't a corpse."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[2:]); input()"
    with short_folder() as base:
        raylet = haproxy(base, "2" * 56, sys.executable, "-c", code, "/raylet/raylet")
        try:
            assert clear_dead(base) == []
            assert len(members(raylet.pid, own=False)) == 2
        finally:
            kill_all(raylet.pid, time.monotonic() + 10, own=False)
            raylet.wait(10)


def test_nothing_is_waited_for_longer_than_told():
    """Where the moment has passed there is one round, and what it didn't see the end of is told."""
    with leader(600) as process:
        kill_all(process.pid, time.monotonic() - 1, own=False)
        until(lambda: not members(process.pid, own=False), "all are gone")


PARENT = """
import subprocess, sys
from deployments.running.process_tree import GroupGuard

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
