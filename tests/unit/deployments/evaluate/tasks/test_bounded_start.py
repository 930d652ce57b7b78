"""What takes away what tests don't need: proven by the kernel alone, without the fence that stands before it."""

import subprocess
import sys
from pathlib import Path

import pytest

from deployments.evaluate.tasks import bounded_start
from deployments.evaluate.tasks.bounded_tests import _is_locked

START = Path(bounded_start.__file__)
NEEDS_LANDLOCK = pytest.mark.skipif(not _is_locked(), reason="no Landlock on this machine")


def run_program(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program behind it, without any audit hook."""
    program = folder / "program.py"
    program.write_text(code)
    command = [sys.executable, "-I", "-S", "-B", str(START), str(folder), "", str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@NEEDS_LANDLOCK
@pytest.mark.parametrize("code", [
    "open('/etc/passwd').read()", "open('/proc/self/root/etc/passwd').read()", "open('/tmp/evaluate-out', 'w')",
    "import os; os.mkfifo('/tmp/evaluate-pipe')", "import os; os.listdir('/')",
    "import os; os.execv('/usr/bin/env', ['env'])",
    "import os; os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=os.open(os.path.dirname(os.__file__), os.O_RDONLY))",
    "import socket; socket.create_connection(('127.0.0.1', 9), 1)",
    "import ctypes; open('/etc/hostname', 'r')",
])  # fmt: skip
def test_the_kernel_refuses_what_is_outside(tmp_path, code):
    """Reading, writing, making, starting, connecting: whatever way it is asked for."""
    found = run_program(tmp_path, code)

    assert found.returncode != 0
    assert "PermissionError" in found.stderr


def test_what_is_inside_is_free_within_its_limits(tmp_path):
    """And Python's own modules can be loaded; memory and the size of a file are bounded."""
    found = run_program(tmp_path, f"import json, unittest, decimal; open({str(tmp_path)!r} + '/x', 'w').write('1')")

    assert (found.returncode, found.stderr) == (0, "")
    assert (tmp_path / "x").read_text() == "1"
    assert run_program(tmp_path, "x = bytearray(1 << 34)").returncode != 0
    assert run_program(tmp_path, f"open({str(tmp_path)!r} + '/x', 'wb').truncate(1 << 34)").returncode != 0
