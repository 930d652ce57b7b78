"""Runs the tests of a folder and nothing else: a program of its own, `python -I -S -B confined_tests.py FOLDER`.

What an agent has written runs here. Before any of it does, an audit hook is set that can't be taken off again: it ends
the process at the first attempt to open a socket, start a process, load native code, or touch a file outside of the
folder (Python's own files may be read). The bounds of time and memory, and the network that isn't there, come from
whoever starts this (`bounded_tests.py`).

An audit hook is a fence and not a wall, as Python's own documents say: so it stands behind the bounds of the kernel
where there are any, and the fixtures' tests are all that is meant to run.
"""

from __future__ import annotations

import os
import sys
import unittest

DENIED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "ctypes."),
    *("os.chroot", "os.kill", "os.symlink", "os.link", "urllib.", "ftplib.", "smtplib.", "http.", "webbrowser."),
    *("resource.setrlimit", "sys.addaudithook", "_posixsubprocess", "signal.pthread_kill", "syslog."),
)
PATHS = ("open", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.utime")
READ_ONLY = ("os.listdir", "os.scandir", "os.chdir")
EXIT_REFUSED = 99
FAILED_BY_TESTS = 1


def fence(root: str) -> None:
    """Set the hook."""
    allowed = tuple(os.path.realpath(path) for path in {sys.prefix, sys.base_prefix, *sys.path} if path)
    ended = [False]

    def is_within(path: object, roots: tuple[str, ...]) -> bool:
        if isinstance(path, int) or path is None:
            return True
        real = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
        return any(real == one or real.startswith(one.rstrip("/") + "/") for one in roots)

    def refuse(words: str) -> None:
        ended[0] = True
        os.write(2, f"refused: {words}\n".encode())
        os._exit(EXIT_REFUSED)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if ended[0]:
            return
        if event.startswith(DENIED):
            refuse(event)
        if event in READ_ONLY and arguments and not is_within(arguments[0], (root, *allowed)):
            refuse(f"{event} outside of the folder")
        if event in PATHS:
            wanted = arguments[:2] if event == "os.rename" else arguments[:1]
            mode = arguments[1] if event == "open" and len(arguments) > 1 else "w"
            flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
            reads = event == "open" and _only_reads(mode, flags)
            roots = (root, *allowed, "/dev/null") if reads else (root,)
            for path in wanted:
                if not is_within(path, roots):
                    refuse(f"{event} outside of the folder")

    sys.addaudithook(watch)


def _only_reads(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return not set(mode) & set("wax+")
    return isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)


def main(folder: str) -> int:
    """Run every test of the folder."""
    root = os.path.realpath(folder)
    os.chdir(root)
    sys.path.insert(0, root)
    fence(root)
    suite = unittest.defaultTestLoader.discover(root, pattern="test_*.py", top_level_dir=root)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else FAILED_BY_TESTS


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    # Not `sys.exit`: what was written may have left threads, or handlers of the interpreter's end.
    os._exit(code)
