"""Set limits and Landlock, then become the program that runs an agent's tests.

Landlock (Linux): only ROOT can be written, only Python's files and ROOT be read, no TCP, no signal to outside. It can't
be removed again. This is a program of its own, so that no ctypes is left in the process in which the tests run.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

CPU_S = 10
MEMORY_BYTES = 1 << 30
FILE_BYTES = 2_000_000
_FILES_OPEN = 64
_TASKS_MAX = 64

CREATE, ADD, RESTRICT = 444, 445, 446  # the same on every architecture
_NO_NEW_PRIVILEGES = 38
_BENEATH = 1
EXECUTE, WRITE, READ, LIST, REFER, TRUNCATE, IOCTL = 1, 2, 4, 8, 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
FILES = {1: _FIRST, 2: _FIRST | REFER, 3: _FIRST | REFER | TRUNCATE, 4: _FIRST | REFER | TRUNCATE}
TCP_FROM, SCOPE_FROM = 4, 6
TCP, SCOPE = 3, 3
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


def _set_limits(*, counts_tasks: bool) -> None:
    """Set the limits; they can't be raised again."""
    limits = {resource.RLIMIT_CPU: CPU_S, resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_NOFILE: _FILES_OPEN}
    limits[resource.RLIMIT_CORE] = 0
    if sys.platform.startswith("linux"):
        limits[resource.RLIMIT_AS] = MEMORY_BYTES
    if counts_tasks:
        limits[resource.RLIMIT_NPROC] = _TASKS_MAX
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)


def _lock_files(root: str, program: str) -> bool:
    """Let this process and its children touch nothing but `root`, and read the program; False: the kernel can't."""
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    version = call(CREATE, None, 0, 1)
    if version < 1:
        return False
    files = FILES.get(version, FILES[4] | IOCTL)
    rules = struct.pack("QQQ", files, TCP if version >= TCP_FROM else 0, SCOPE if version >= SCOPE_FROM else 0)
    size_bytes = 24 if version >= SCOPE_FROM else 16 if version >= TCP_FROM else 8
    handle = call(CREATE, rules, size_bytes, 0)
    if handle < 0:
        return False
    python = os.path.realpath(sys.executable)
    allowed = {root: files & ~EXECUTE, os.path.realpath(sys.base_prefix): READ | LIST, python: READ | EXECUTE}
    allowed |= {path: READ | EXECUTE | (LIST if os.path.isdir(path) else 0) for path in SYSTEM if os.path.exists(path)}
    allowed |= {"/dev/null": READ | WRITE} | ({program: READ} if program else {})
    for path, access in allowed.items():
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        failed = call(ADD, handle, _BENEATH, struct.pack("=Qi", access & files, place), 0)
        os.close(place)
        if failed:
            return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and call(RESTRICT, handle, 0) == 0)


def _main(root: str, counts_tasks: str, program: str = "") -> None:
    """Take it all away, and become the program; without one, print whether the kernel holds the files."""
    real = os.path.realpath(root)
    _set_limits(counts_tasks=counts_tasks == "counted")
    locked = _lock_files(real, program)
    if not program:
        print("locked" if locked else "open")  # noqa: T201
        return
    python = os.path.realpath(sys.executable)
    os.execv(python, [python, "-I", "-S", "-B", program, real])


if __name__ == "__main__":
    _main(*sys.argv[1:])
