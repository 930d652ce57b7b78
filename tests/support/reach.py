"""What of a running server another user of the machine can reach: its files, its sockets and its ports."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

NOBODY = 65534
WRITES = os.O_WRONLY | os.O_RDWR


def list_files(processes: Iterable[psutil.Process], folders: Iterable[Path]) -> set[Path]:
    """Every file, folder and named socket that these processes hold open to write, or that lies in these folders."""
    found = {path for folder in folders for path in (folder, *folder.rglob("*")) if not path.is_symlink()}
    inodes: set[str] = set()
    for process in processes:
        for number, target in _list_open(process.pid):
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
            elif target.startswith("/") and _is_written(process.pid, number):
                found.add(Path(target))
    found |= {Path(name) for inode, name in _list_unix_sockets() if inode in inodes}
    return {path for path in found if path.exists() and not stat.S_ISCHR(path.stat().st_mode)}


def list_abstract(processes: Iterable[psutil.Process]) -> list[str]:
    """The names of their sockets that have no path: no mode guards those."""
    inodes = {t[8:-1] for p in processes for _, t in _list_open(p.pid) if t.startswith("socket:[")}
    return [name for inode, name in _list_unix_sockets() if inode in inodes and name.startswith("@")]


def is_reachable(path: Path) -> bool:
    """Whether another user gets there: no folder above it, and not it itself, is its owner's alone."""
    guards = (stat.S_IXGRP | stat.S_IXOTH, stat.S_IRWXG | stat.S_IRWXO)
    above = (parent.stat().st_mode & guards[0] for parent in path.parents)
    return all(above) and bool(path.lstat().st_mode & guards[1])


def list_ports(processes: Iterable[psutil.Process]) -> list[tuple[str, int, str]]:
    """The address, the port and the command of every listening TCP socket."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline()).strip()
            sockets = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
            found += [(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port, command) for c in sockets]
    return found


def as_nobody(code: str, *arguments: str) -> str:
    """What a program prints that another user runs. It reads Python's own library only."""
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    base = Path(sys.base_prefix)
    if is_reachable(base / "bin"):
        done = subprocess.run(
            command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr
    return _fork_as_nobody(code, arguments)


@contextlib.contextmanager
def listening_as_nobody(*, accepts: bool = False) -> Iterator[tuple[int, int]]:
    """A port of loopback on which another user listens. With `accepts` it takes one connection and is then free again;
    what came over that connection is written to the pipe, the second value."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            server = socket.create_server(("127.0.0.1", port))
            os.write(write, b"listens")
            if accepts:
                peer, _ = server.accept()
                server.close()
                os.write(write, peer.recv(65_536) or b"nothing")
            signal.pause()
            server.close()
        os._exit(0)
    try:
        assert os.read(read, 7) == b"listens"
        yield port, read
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def _fork_as_nobody(code: str, arguments: tuple[str, ...]) -> str:
    """The same in a fork of this process, where another user can't start this Python."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.dup2(write, 1)
            os.dup2(write, 2)
            sys.argv = ["-", *arguments]
            sys.stdout = os.fdopen(1, "w", closefd=False)
            exec(compile(code, "nobody", "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def _list_open(pid: int) -> Iterator[tuple[str, str]]:
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield number, os.readlink(f"/proc/{pid}/fd/{number}")


def _is_written(pid: int, number: str) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/fdinfo/{number}").read_text().splitlines():
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & WRITES)
    return False


def _list_unix_sockets() -> list[tuple[str, str]]:
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return [(words[6], words[7]) for words in map(str.split, lines) if len(words) > 7]
