"""`python -m tools.native`: build the binaries of this package anew from their C, beside it.

    deployments/models/few_rows_x86_64.so              products of few rows, before OpenBLAS
    deployments/tiers/mlx/cpu/kernels_x86_64.so        attention and the gate of a layer on the CPU

They are in the repository, since nobody who runs the server should need a compiler. The compiler is the one in the
wheel `ziglang`, a clang that builds the same bytes from the same source; its version is pinned for that. Neither
depends on a version of libc: the first takes `pthread_create` from the one that the process has. It is linked against
an empty library with OpenBLAS's soname and the names which it takes from it. The sha256 that are
printed belong into blas.py and binary.py beside them; a test holds source, binary and sum together
(tests/unit/tools/test_native.py).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMPILER", "FEW_ROWS", "KERNELS", "OPENBLAS", "Binary", "build"]

ROOT = Path(__file__).resolve().parents[1]
COMPILER = "0.17.0"
OPENBLAS = "libscipy_openblas.so"
_FLAGS = (
    *("-target", "x86_64-linux-gnu.2.17", "-mcpu=baseline", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror"),
    *("-shared", "-fPIC", "-nostdlib", "-fvisibility=hidden", "-fno-sanitize=all", "-fno-stack-protector", "-g0"),
    # A product and a sum may be one step, and no loop becomes a call of libc.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-builtin"),
    *("-Wl,--strip-all", "-Wl,--build-id=none", "-Wl,--hash-style=gnu"),
)


@dataclass(frozen=True, slots=True)
class Binary:
    """One of them: `sources`, the first of which is compiled, and the soname."""

    target: Path
    sources: tuple[str, ...]
    soname: str

    @property
    def from_openblas(self) -> list[str]:
        """The names that it takes from OpenBLAS."""
        text = (self.target.parent / self.sources[0]).read_text(encoding="utf-8")
        return re.findall(r"^extern .*?(scipy_\w+)\(", text, re.MULTILINE)


FEW_ROWS = Binary(
    ROOT / "deployments/models/few_rows_x86_64.so",
    ("few_rows.c", "sums_lanes.h", "few_rows_lanes.h", "few_rows_threads.h"),
    "libfewrows.so",
)
KERNELS = Binary(
    ROOT / "deployments/tiers/mlx/cpu/kernels_x86_64.so",
    (
        *("kernels.c", "../../../models/sums_lanes.h", "lanes.h", "attention.h", "attention_lanes.h", "gate_lanes.h"),
        *("step.h", "step_lanes.h"),
    ),
    "libkernels.so",
)


def build(binary: Binary, target: Path) -> None:
    """Build one of them at `target`."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for source in binary.sources:
            (work / Path(source).name).write_bytes((binary.target.parent / source).read_bytes())
        libraries: tuple[str, ...] = ()
        if names := binary.from_openblas:
            (work / "empty.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names), encoding="utf-8")
            _compile(work, "empty.c", OPENBLAS, "-fvisibility=default", f"-Wl,-soname,{OPENBLAS}")
            libraries = (OPENBLAS,)
        options = (*libraries, f"-Wl,-soname,{binary.soname}", "-Wl,-z,now")
        _compile(work, binary.sources[0], binary.target.name, *options)
        target.write_bytes((work / binary.target.name).read_bytes())


def _compile(folder: Path, source: str, target: str, *options: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS, source, "-o", target, *options]
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    for one in (FEW_ROWS, KERNELS):
        build(one, one.target)
        print(f"{one.target.relative_to(ROOT)}: {hashlib.sha256(one.target.read_bytes()).hexdigest()}")
