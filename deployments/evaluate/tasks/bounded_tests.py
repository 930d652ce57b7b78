"""Ask a folder's code in a process with bounds, and judge its answers here, as plain values.

    Check ── imports, asks ──▶ the sandbox (`confined_tests.py`) computes ── JSON ──▶ the same text as the answer's

Linux: own network, processes and shared memory (`unshare`), and Landlock (`bounded_start.py`); macOS: `sandbox-exec`.
Invariants: right answers never enter the sandbox, and nothing that it sends is run, unpickled or compared by a method
of its own; no process outlives its seconds or the evaluation, or has the evaluation's environment (keys).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from deployments.evaluate.tasks.bounded_start import CPU_S, FILE_BYTES, MEMORY_BYTES
from deployments.evaluate.tasks.confined_tests import EXIT_REFUSED
from deployments.running.process_tree import GroupGuard


@dataclass(frozen=True, slots=True)
class Check:
    """One question: imports, an expression, and the right answer: null, number, text, list, or mapping by texts."""

    imports: str
    asks: str
    answer: Any


START, PROGRAM = (Path(__file__).with_name(name) for name in ("bounded_start.py", "confined_tests.py"))
WALL_S = 20.0
OUTPUT_CHARS = 4_000
_ANSWER_CHARS = 200
# Apple's own language of sandboxes: whatever isn't denied is allowed, so that Python starts.
_MAC_PROFILE = "(version 1)(allow default)(deny network*)(deny process-fork)"


def run_tests(folder: Path, checks: Sequence[Check]) -> str:
    """Ask the code in `folder` in a process of its own; return its output and what is wrong, "" where all is right."""
    if not folder.is_dir():  # earlier tests may have taken it away
        return "the folder is gone"
    asked = json.dumps([(check.imports, check.asks) for check in checks]).encode()
    timed_out = False
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [*_start(folder), str(PROGRAM)],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=answers,
            stderr=out,
            start_new_session=True,
        )
        guard = GroupGuard(process.pid)
        try:
            process.communicate(asked, WALL_S)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            guard.close()
            process.wait()
        said, printed = (_read(file) for file in (answers, out))
    refused = process.returncode == EXIT_REFUSED  # what they ran was stopped at the fence
    wrong = _judge(checks, said)
    if not (wrong or timed_out or refused):
        return ""
    text = (printed.decode("utf-8", "replace") + wrong).replace(str(folder) + "/", "")
    if timed_out:
        text += f"\nended after {WALL_S:.0f} s"
    if len(text) > OUTPUT_CHARS:
        text = text[:1_000] + "\n...\n" + text[-(OUTPUT_CHARS - 1_005) :]
    return text or "refused"


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(FILE_BYTES)


def _judge(checks: Sequence[Check], said: bytes) -> str:
    """Say which answers are wrong; nothing where all are right. No question is as bad as a wrong answer."""
    try:
        found = json.loads(said)
        texts = [_write(one) for one in found] if type(found) is list else []
    except (ValueError, RecursionError):
        texts = []
    if not checks or len(texts) != len(checks):
        return f"FAILED: {len(texts)} of {len(checks)} questions were answered\n"
    wrong = [
        f"FAILED: {check.asks}\n    is {repr(one)[:_ANSWER_CHARS]}, not {check.answer!r}\n"
        for check, one, text in zip(checks, found, texts, strict=True)
        if text != _write(check.answer)
    ]
    return "".join(wrong) + (f"FAILED: {len(wrong)} of {len(checks)}\n" if wrong else "")


def _write(value: object) -> str:
    """Write a plain value as its one text: 1, 1.0 and True are three values, and the order of keys is none."""
    return json.dumps(value, sort_keys=True)


def _start(folder: Path) -> list[str]:
    wrapper = _find_wrapper()
    program = [sys.executable, "-I", "-S", "-B", str(START), str(folder)]
    return [*wrapper, *program, "counted" if "--user" in wrapper else ""]


@functools.cache
def _is_locked() -> bool:
    with tempfile.TemporaryDirectory(prefix="evaluate-") as place:
        asked = subprocess.run(_start(Path(place)), capture_output=True, check=False, timeout=WALL_S)
    return asked.stdout.strip() == b"locked"


@functools.cache
def _find_wrapper() -> tuple[str, ...]:
    """Find what takes the network away here; nothing where nothing does."""
    tried: tuple[tuple[str, ...], ...] = ()
    if sys.platform == "darwin":
        tried = (("sandbox-exec", "-p", _MAC_PROFILE),)
    elif sys.platform.startswith("linux"):
        user, apart = ("--user", "--map-root-user"), ("--net", "--ipc", "--pid", "--fork", "--kill-child")
        tried = tuple(("unshare", *options) for options in ((*user, *apart), (*user, "--net"), apart, ("--net",)))
    for program, *options in tried:
        wrapper = (shutil.which(program) or program, *options)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*wrapper, "true"], check=True, capture_output=True, timeout=10)
            return wrapper
    return ()


def describe_confinement() -> str:
    """Say by what the tests of an agent are held here."""
    wrapper = _find_wrapper()
    network = f"no network by {Path(wrapper[0]).name}" if wrapper else "no network by the audit hook alone"
    files = "files by Landlock and the audit hook" if _is_locked() else "files by the audit hook"
    memory = f", {MEMORY_BYTES >> 20} MiB" if sys.platform.startswith("linux") else ""
    return f"{network}; {files}; {CPU_S} s of CPU, {WALL_S:.0f} s{memory}"
