"""Asks the code of a folder, and does nothing else: a program of its own, `confined_tests.py FOLDER`.

What an agent has written runs here, behind an audit hook that can't be taken off again: it ends the process at the
first attempt to open a socket, start a process, load native code, look into the interpreter, or touch a file outside of
the folder (Python's own modules may be read, and no installed package). The hook uses nothing that can be replaced from
outside of it, follows no path with `..` in it, and what raises no audit event is taken out of the modules (`SILENT`).
Built-in modules are loaded beforehand: a second copy of `posix` would have all that was taken out. A hook is a fence
and not a wall: the kernel's bounds stand before it where there are any (`bounded_start.py`).

Standard input holds the questions as JSON, a list of (imports, expression); the answers go to standard output as a list
of JSON, and what the code prints to standard error. No right answer is in this process, and its exit code says nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

DENIED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "ctypes."),
    *("os.chroot", "os.kill", "os.symlink", "os.link", "urllib.", "ftplib.", "smtplib.", "http.", "webbrowser."),
    *("resource.", "sys.addaudithook", "signal.pthread_kill", "syslog.", "sqlite3.", "gc.get_", "os.setxattr"),
    *("os.removexattr", "os.listxattr", "os.getxattr", "fcntl.", "sys.setprofile", "sys.settrace", "cpython."),
    *("os.chflags", "os.lockf", "mmap.", "sys._current", "os.chmod", "os.chown"),
)
_MODULES_DENIED = (
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
_WRITES_MAX = 20
# Where packages are installed, this server among them.
PACKAGES = ("/site-packages/", "/dist-packages/")
# So deep may a value be.
DEPTH_MAX = 20


def _bind_paths(root: str) -> Callable[[object, str, bool], bool]:
    """Return what tells whether a path is allowed; all that it uses is bound here, to what nobody can replace."""
    libraries, inside = tuple(path + "/" for path in sys.path[1:] if path), root + "/"
    text, raw, whole, of, where, looks, packages = str, bytes, int, type, os.getcwd, LOOKS, PACKAGES
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
        if event != "import" and (found == root or starts(found, inside)):
            return True
        if not reads or not starts(found, libraries):
            return reads and found == "/dev/null"
        for part in packages:
            if part in found:
                return False
        return event in looks or ends(found, (".so",) if event == "import" else (".py", ".pyc"))

    return is_within


def _fence(root: str) -> None:
    """Set the hook. Everything that it uses is bound here, to what nobody can replace."""
    leave, write, starts, whole, of, is_within = os._exit, os.write, str.startswith, int, type, _bind_paths(root)
    denied, modules, paths, looks, refused, count = DENIED, _MODULES_DENIED, PATHS, LOOKS, EXIT_REFUSED, len
    cut, exact = str.split, str.__str__
    left = _WRITES_MAX
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
        if event == "import" and cut(exact(arguments[0]), ".")[-1] in modules:
            refuse("import of a module that isn't for tests")
        if event == "import" and not is_within(arguments[1], event, True):
            refuse("native code")
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


def _take_out() -> None:
    """Take out of the modules what reaches outside without telling, and what would make them anew."""
    for name in sys.builtin_module_names:
        if name not in _MODULES_DENIED:
            importlib.import_module(name)
    del sys.modules["_imp"].create_builtin
    for module in (os, sys.modules["posix"]):
        for name in SILENT:
            if hasattr(module, name):
                delattr(module, name)
    for name in _MODULES_DENIED[1:]:  # `posix` stays, without those: many a module begins with it
        sys.modules.pop(name, None)


def _encode(value: object, depth: int = 0) -> object:
    """Return a value of JSON as it is. A value of any other type is an object that says so."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth < DEPTH_MAX:
        if kind is list:
            return [_encode(one, depth + 1) for one in value]  # type: ignore[attr-defined]
        if kind is dict and all(type(key) is str for key in value):  # type: ignore[attr-defined]
            return {key: _encode(one, depth + 1) for key, one in value.items()}  # type: ignore[attr-defined]
    return {"other": f"an object of the type {kind.__name__}"}


def _ask(imports: str, asks: str) -> object:
    """Compute one answer. What goes wrong is an answer too, and printed."""
    names: dict[str, Any] = {}
    try:
        exec(compile(imports, "<imports>", "exec"), names)
        return _encode(eval(compile(asks, "<asked>", "eval"), names))
    except BaseException as error:
        # Without the frame of this program, whose file the fence lets nobody read.
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return {"raised": f"{type(error).__name__}: {error}"}


def _main(folder: str, answers: int) -> None:
    """Ask everything, and write the answers into the file of this number."""
    write, root = os.write, os.path.realpath(folder)
    asked = json.loads(sys.stdin.buffer.read())
    os.chdir(root)
    sys.path.insert(0, root)
    _fence(root)
    _take_out()
    left = json.dumps([_ask(imports, asks) for imports, asks in asked]).encode()
    while left:
        left = left[write(answers, left) :]


if __name__ == "__main__":
    # Not `sys.exit`: what was written may have left threads, or handlers of the interpreter's end.
    leave = os._exit
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        _main(sys.argv[1], answers)
    except BaseException as error:
        sys.stderr.write(f"the code was ended: {type(error).__name__}: {error}\n")
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            leave(0)
