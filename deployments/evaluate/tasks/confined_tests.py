"""Runs the tests of a folder and nothing else: a program of its own, `confined_tests.py FOLDER CODE`.

What an agent has written runs here. Before any of it does, an audit hook is set that can't be taken off again: it ends
the process at the first attempt to open a socket, start a process, load native code, look into the interpreter, or
touch a file outside of the folder (Python's own modules may be read). The hook uses nothing that can be replaced from
outside of it, follows no path with `..` in it, and what raises no audit event is taken out of the modules (`SILENT`).

    passed  the tests of the folder ran, all of them passed, and unittest is what it was before; then the process ends
            with CODE, which is another one each time: an early end of the process is no pass, nor a changed framework

The tests are compiled before anything of the folder runs: what runs can write or remove their files, or put modules in
their place, and changes no test by it.

An audit hook is a fence and not a wall, as Python's own documents say: so it stands behind the bounds of the kernel
where there are any (`bounded_start.py`, `bounded_tests.py`), and the fixtures' tests are all that is meant to run.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import traceback
import types
import unittest
from collections.abc import Callable, Sequence
from typing import Any

DENIED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "ctypes."),
    *("os.chroot", "os.kill", "os.symlink", "os.link", "urllib.", "ftplib.", "smtplib.", "http.", "webbrowser."),
    *("resource.", "sys.addaudithook", "signal.pthread_kill", "syslog.", "sqlite3.", "gc.get_", "os.setxattr"),
    *("os.removexattr", "os.listxattr", "os.getxattr", "fcntl.", "sys.setprofile", "sys.settrace", "cpython."),
    *("os.chflags", "os.lockf", "mmap.", "sys._current", "os.chmod", "os.chown"),
)
MODULES_DENIED = (
    *("posix", "_posixsubprocess", "_posixshmem", "_multiprocessing", "_ctypes", "ctypes", "_cffi_backend", "_sqlite3"),
    *("sqlite3", "_dbm", "_gdbm", "dbm", "_xxsubinterpreters", "_interpreters", "_xxinterpchannels", "_testcapi"),
    *("_testinternalcapi", "readline", "_curses", "fcntl", "mmap", "resource", "_socket", "socket", "_ssl"),
)
PATHS = (*("open", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.utime"),)
LOOKS = ("os.listdir", "os.scandir")
# What reaches outside, or ends the process, without an audit event.
SILENT = (
    *("_exit", "abort", "mkfifo", "mknod", "setsid", "setpgid", "setuid", "setgid", "setns", "unshare", "pidfd_open"),
    *("memfd_create", "eventfd", "lchown", "splice", "sendfile", "copy_file_range", "nice", "sched_setaffinity"),
    *("fchdir", "access", "readlink", "statvfs", "pathconf"),
)
EXIT_REFUSED = 99
# How often something may be opened to be written, or a folder be made: so no disk is filled, and no folder is so deep
# that it can't be taken away again.
WRITES_MAX = 20
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
    left = WRITES_MAX
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
        nonlocal left
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
        if event == "os.mkdir" or (event == "open" and not only_reads(arguments)):
            left -= 1
            if left < 0:
                refuse("too many files")

    sys.addaudithook(watch)


def take_out() -> None:
    """Take out of the modules what reaches outside without telling."""
    for module in (os, sys.modules["posix"]):
        for name in SILENT:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES_DENIED[1:]:  # `posix` stays, without those: many a module begins with it
        sys.modules.pop(name, None)


def copy_framework(tests: Sequence[unittest.TestCase]) -> list[dict[str, Any]]:
    """Copy what decides whether a test has passed: unittest's functions and classes, and the functions that each
    test has of its own."""
    copied = [dict(vars(one)) for one in (builtins, contextlib._GeneratorContextManager)]
    for module in (unittest.case, unittest.suite, unittest.loader, unittest.result, unittest.runner):
        members = {name: one for name, one in vars(module).items() if callable(one)}
        copied += [members, *(dict(vars(one)) for one in members.values() if type(one) is type)]
    for one in (*tests, *{type(test): None for test in tests}):
        copied.append({name: value for name, value in vars(one).items() if callable(value)})
    return copied


def compile_tests(root: str) -> list[tuple[str, types.CodeType]]:
    """Compile every file of tests in the folder; one that can't be compiled says so when it is to run."""
    found = []
    for name in sorted(os.listdir(root)):
        if name.startswith("test_") and name.endswith(".py"):
            with open(os.path.join(root, name), "rb") as file:
                source = file.read()
            try:
                code = compile(source, os.path.join(root, name), "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                code = compile(f"raise SyntaxError({str(error)!r})", os.path.join(root, name), "exec")
            found.append((name.removesuffix(".py"), code))
    return found


def load_tests(compiled: Sequence[tuple[str, types.CodeType]]) -> list[unittest.TestCase] | None:
    """Load the tests in their order; None where a file of them can't be loaded, which is printed."""
    tests: list[unittest.TestCase] = []
    for name, code in compiled:
        module = types.ModuleType(name)
        module.__file__ = code.co_filename
        sys.modules[name] = module
        try:
            exec(code, module.__dict__)
        except Exception as error:
            # Without the frame of this program, whose file the fence lets nobody read.
            traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
            return None
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            tests += suite  # type: ignore[arg-type]
    return tests


def main(folder: str, passed: int) -> int:
    """Run every test of the folder; return `passed` if all is well."""
    root = os.path.realpath(folder)
    os.chdir(root)
    sys.path.insert(0, root)
    compiled = compile_tests(root)
    fence(root)
    take_out()
    before, runner = copy_framework(()), unittest.TextTestRunner(stream=sys.stderr, verbosity=1)
    tests = load_tests(compiled)
    if tests is None or before != copy_framework(()):
        return FAILED_BY_TESTS
    before = copy_framework(tests)
    result = runner.run(unittest.TestSuite(tests))
    # Not `wasSuccessful`: what says it could have been replaced for this one object.
    bad = result.failures or result.errors or result.unexpectedSuccesses
    same = before == copy_framework(tests)
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
