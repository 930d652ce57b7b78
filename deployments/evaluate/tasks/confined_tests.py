"""Runs the tests of a folder and nothing else: a program of its own, `confined_tests.py FOLDER CODE`.

What an agent has written runs here. Before any of it does, an audit hook is set that can't be taken off again: it ends
the process at the first attempt to open a socket, start a process, load native code, look into the interpreter, or
touch a file outside of the folder (Python's own modules may be read). The hook uses nothing that can be replaced from
outside of it, follows no path with `..` in it, and what raises no audit event is taken out of the modules (`SILENT`).

    passed  the tests of the folder ran, all of them passed, and unittest is what it was before; then the process ends
            with CODE, which is another one each time: an early end of the process is no pass, nor a changed framework

An audit hook is a fence and not a wall, as Python's own documents say: so it stands behind the bounds of the kernel
where there are any (`bounded_start.py`, `bounded_tests.py`), and the fixtures' tests are all that is meant to run.
"""

from __future__ import annotations

import builtins
import os
import sys
import unittest
from collections.abc import Callable
from typing import Any

DENIED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "ctypes."),
    *("os.chroot", "os.kill", "os.symlink", "os.link", "urllib.", "ftplib.", "smtplib.", "http.", "webbrowser."),
    *("resource.", "sys.addaudithook", "signal.pthread_kill", "syslog.", "sqlite3.", "gc.get_", "os.setxattr"),
    *("os.removexattr", "os.listxattr", "os.getxattr", "fcntl.", "sys.setprofile", "sys.settrace", "cpython."),
    *("os.chflags", "os.lockf", "mmap.", "sys._current"),
)
MODULES_DENIED = (
    *("posix", "_posixsubprocess", "_posixshmem", "_multiprocessing", "_ctypes", "ctypes", "_cffi_backend", "_sqlite3"),
    *("sqlite3", "_dbm", "_gdbm", "dbm", "_xxsubinterpreters", "_interpreters", "_xxinterpchannels", "_testcapi"),
    *("_testinternalcapi", "readline", "_curses", "fcntl", "mmap", "resource", "_socket", "socket", "_ssl"),
)
PATHS = (
    *("open", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.utime"),
)
LOOKS = ("os.listdir", "os.scandir")
# What reaches outside, or ends the process, without an audit event.
SILENT = (
    *("_exit", "abort", "mkfifo", "mknod", "setsid", "setpgid", "setuid", "setgid", "setns", "unshare", "pidfd_open"),
    *("memfd_create", "eventfd", "lchown", "splice", "sendfile", "copy_file_range", "nice", "sched_setaffinity"),
    *("fchdir", "access", "readlink", "statvfs", "pathconf"),
)
EXIT_REFUSED = 99
FAILED_BY_TESTS = 1


def bind_paths(root: str) -> Callable[[object, str, bool], bool]:
    """Return what tells whether a path is allowed; all that it uses is bound here, to what nobody can replace."""
    libraries, inside = tuple(path + "/" for path in sys.path[1:] if path), root + "/"
    text, raw, whole, of, where, looks = str, bytes, int, type, os.getcwd, LOOKS
    starts, ends, cut, decode, exact = str.startswith, str.endswith, str.split, bytes.decode, str.__str__

    def resolve(path: object) -> str | None:
        """Return the whole path; None for one that leads back, or that isn't a plain one."""
        kind = of(path)
        if kind is raw:
            path = decode(path, "utf-8", "surrogateescape")  # type: ignore[arg-type]
        elif kind is not text:
            return None
        name = exact(path)
        if ".." in cut(name, "/"):
            return None
        return name if starts(name, "/") else where() + "/" + name

    def is_within(path: object, event: str, reads: bool) -> bool:
        if path is None or of(path) is whole:
            return True
        found = resolve(path)
        if found is None:
            return False
        if found == root or starts(found, inside):
            return True
        if not reads or not starts(found, libraries):
            return reads and found == "/dev/null"
        return event in looks or ends(found, (".py", ".pyc"))

    return is_within


def fence(root: str) -> None:
    """Set the hook. Everything that it uses is bound here, to what nobody can replace."""
    leave, write, starts, whole, of, is_within = os._exit, os.write, str.startswith, int, type, bind_paths(root)
    denied, modules, paths, looks, refused, count = DENIED, MODULES_DENIED, PATHS, LOOKS, EXIT_REFUSED, len
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def refuse(event: str) -> None:
        try:
            write(2, b"refused: " + event.encode("ascii", "replace") + b"\n")
        finally:
            leave(refused)

    def only_reads(arguments: tuple[object, ...]) -> bool:
        flags = arguments[2] if count(arguments) > 2 else 0
        return of(flags) is whole and not flags & writes  # type: ignore[operator]

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if starts(event, denied):
            refuse(event)
        if event == "import" and arguments[0] in modules:
            refuse("import of a module that isn't for tests")
        if event == "os.chdir" and not is_within(arguments[0], event, False):
            refuse(event + " outside of the folder")
        if event in looks and not is_within(arguments[0] or ".", event, True):
            refuse(event + " outside of the folder")
        if event in paths:
            for path in arguments[:2] if event == "os.rename" else arguments[:1]:
                if not is_within(path, event, event == "open" and only_reads(arguments)):
                    refuse(event + " outside of the folder")

    sys.addaudithook(watch)


def take_out() -> None:
    """Take out of the modules what reaches outside without telling."""
    for module in (os, sys.modules["posix"]):
        for name in SILENT:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES_DENIED[1:]:  # `posix` stays, without those: many a module begins with it
        sys.modules.pop(name, None)


def copy_framework() -> list[dict[str, Any]]:
    """Copy what decides whether a test has passed."""
    parts = (unittest.TestCase, unittest.TestSuite, unittest.TestResult, unittest.TextTestResult, unittest.TestLoader)
    return [dict(vars(part)) for part in (*parts, unittest.TextTestRunner, unittest.BaseTestSuite, builtins)]


def main(folder: str, passed: int) -> int:
    """Run every test of the folder; return `passed` if all is well."""
    root = os.path.realpath(folder)
    os.chdir(root)
    sys.path.insert(0, root)
    fence(root)
    take_out()
    before = copy_framework()
    loader, runner = unittest.defaultTestLoader, unittest.TextTestRunner(stream=sys.stderr, verbosity=1)
    result = runner.run(loader.discover(root, pattern="test_*.py", top_level_dir=root))
    # Not `wasSuccessful`: what says it could have been replaced for this one object.
    bad = result.failures or result.errors or result.unexpectedSuccesses
    same = all(one == other for one, other in zip(before, copy_framework(), strict=True))
    return passed if not bad and result.testsRun > len(result.skipped) and same else FAILED_BY_TESTS


if __name__ == "__main__":
    # Not `sys.exit`: what was written may have left threads, or handlers of the interpreter's end.
    leave, code, (place, told) = os._exit, FAILED_BY_TESTS, sys.argv[1:3]
    sys.argv[:], sys.orig_argv[:] = [place], []
    try:
        code = main(place, int(told))
    except BaseException as error:
        sys.stderr.write(f"the tests were ended: {type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        leave(code)
