"""`python -m tools.few_rows`: build `few_rows_x86_64.so` anew from `few_rows.c` (both in deployments/models).

The binary is in the repository, since nobody who runs the server should need a compiler. The compiler is the one in the
wheel `ziglang`, a clang that builds the same bytes from the same source; its version is pinned for that. The library is
linked against an empty one with OpenBLAS's soname and the names which it takes from it, and depends on nothing else, on
libc neither. The sha256 that is printed belongs into deployments/models/blas.py; a test holds source, binary and sum
together (tests/unit/tools/test_few_rows.py).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["COMPILER", "FROM_OPENBLAS", "OPENBLAS", "SOURCE", "TARGET", "build"]

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "deployments/models/few_rows.c"
TARGET = ROOT / "deployments/models/few_rows_x86_64.so"
COMPILER = "0.17.0"
OPENBLAS = "libscipy_openblas.so"
FROM_OPENBLAS = re.findall(r"^extern .*?(scipy_\w+)\(", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
_FLAGS = (
    *("-target", "x86_64-linux-gnu.2.17", "-mcpu=baseline", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror"),
    *("-shared", "-fPIC", "-nostdlib", "-fvisibility=hidden", "-fno-sanitize=all", "-fno-stack-protector", "-g0"),
    *("-Wl,--strip-all", "-Wl,--build-id=none", "-Wl,--hash-style=gnu"),
)


def build(target: Path) -> None:
    """Build the library at `target`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "empty.c").write_text("".join(f"void {name}(void) {{}}\n" for name in FROM_OPENBLAS), encoding="utf-8")
        (work / SOURCE.name).write_bytes(SOURCE.read_bytes())
        _compile(work, "empty.c", OPENBLAS, "-fvisibility=default", f"-Wl,-soname,{OPENBLAS}")
        _compile(work, SOURCE.name, TARGET.name, OPENBLAS, "-Wl,-soname,libfewrows.so", "-Wl,-z,now")
        target.write_bytes((work / TARGET.name).read_bytes())


def _compile(folder: Path, source: str, target: str, *options: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS, source, "-o", target, *options]
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    build(TARGET)
    print(f"{TARGET.relative_to(ROOT)}: {hashlib.sha256(TARGET.read_bytes()).hexdigest()}")
