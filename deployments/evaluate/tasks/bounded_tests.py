"""Runs a folder's tests in a process with bounds: seconds, memory, files, processes, output, and no network.

On Linux the process has a network namespace of its own with nothing in it, where the kernel lets it (`unshare`); on
macOS the same is asked of `sandbox-exec`. In both, and elsewhere, `confined_tests.py` fences what the tests may do.
`CONFINEMENT` says in the report which of them held.

What must never happen: a process that outlives its seconds, or one that has the evaluation's own environment (keys!).
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TestResult", "describe_confinement", "run_tests"]

PROGRAM = Path(__file__).with_name("confined_tests.py")
WALL_S = 20.0
CPU_S = 10
MEMORY_BYTES = 1 << 30
FILE_BYTES = 10_000_000
FILES_OPEN = 64
OUTPUT_CHARS = 4_000
# Apple's own language of sandboxes: whatever isn't denied is allowed, so that Python starts.
MAC_PROFILE = "(version 1)(allow default)(deny network*)(deny process-fork)"


@dataclass(frozen=True, slots=True)
class TestResult:
    """What the tests said. `refused`: what they ran was stopped at the fence."""

    passed: bool
    output: str
    refused: bool = False
    timed_out: bool = False

    __test__ = False  # it isn't a test of pytest's


def run_tests(folder: Path) -> TestResult:
    """Run the tests in `folder`."""
    command = [*_find_wrapper(), sys.executable, "-I", "-S", "-B", str(PROGRAM), str(folder)]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_limit,  # noqa: PLW1509
        )
        timed_out = False
        try:
            process.wait(WALL_S)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        text = out.read(FILE_BYTES).decode("utf-8", "replace").replace(str(folder) + "/", "")
    if timed_out:
        text += f"\nended after {WALL_S:.0f} s"
    return TestResult(
        passed=process.returncode == 0 and not timed_out,
        output=_shorten(text),
        refused=process.returncode == 99,
        timed_out=timed_out,
    )


def _limit() -> None:
    limits = [
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, FILES_OPEN),
        (resource.RLIMIT_CORE, 0),
    ]
    if sys.platform.startswith("linux"):
        limits.append((resource.RLIMIT_AS, MEMORY_BYTES))
    for kind, most in limits:
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard),) * 2)


@functools.cache
def _find_wrapper() -> tuple[str, ...]:
    """Find what takes the network away here; nothing where nothing does."""
    if sys.platform == "darwin" and (program := shutil.which("sandbox-exec")):
        return _prove((program, "-p", MAC_PROFILE))
    if sys.platform.startswith("linux") and (program := shutil.which("unshare")):
        return _prove((program, "--user", "--net", "--map-root-user")) or _prove((program, "--net"))
    return ()


def _prove(wrapper: Sequence[str]) -> tuple[str, ...]:
    """Return the wrapper if something runs under it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([*wrapper, "true"], check=True, capture_output=True, timeout=10)
        return tuple(wrapper)
    return ()


def describe_confinement() -> str:
    """Say by what the tests of an agent are held here."""
    wrapper = _find_wrapper()
    network = f"no network by {Path(wrapper[0]).name}" if wrapper else "no network by the audit hook alone"
    memory = f", {MEMORY_BYTES >> 20} MiB" if sys.platform.startswith("linux") else ""
    return f"{network}; files by the audit hook; {CPU_S} s of CPU, {WALL_S:.0f} s{memory}"


def _shorten(text: str) -> str:
    return text if len(text) <= OUTPUT_CHARS else text[:1_000] + "\n...\n" + text[-(OUTPUT_CHARS - 1_005) :]
