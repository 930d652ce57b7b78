"""The matrix library of MLX on Linux."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.models import blas
from deployments.tiers.mlx.cpu.binary import NotHere, find_features
from tests.support.repository import ROOT


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MLX has its own matrix library")
class TestMatrixLibrary:
    @pytest.mark.parametrize(
        ("setup", "words"),
        [
            ("os.environ['MLX_STACK_BLAS'] = 'stock'", "MLX_STACK_BLAS=stock asks for it"),
            ("import mlx.core", "MLX was imported before"),
        ],
    )
    def test_the_stock_path_works_and_says_why(self, setup: str, words: str) -> None:
        """Law: without the fast library MLX computes the same, and the reason is in words."""
        code = (
            f"import os\n{setup}\nfrom deployments.models import blas\nlibrary = blas.preload()\n"
            "import mlx.core as mx\nproduct = mx.array([[1.0, 2.0]]) @ mx.array([[3.0], [4.0]])\n"
            "print(library.fast, product.item(), library.words)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
        )
        assert done.stdout.startswith("False 11.0")
        assert words in done.stdout

    @pytest.mark.parametrize("binary", [None, b"\x7fELF, but another one"])
    def test_without_the_binary_openblas_is_used_alone(
        self, binary: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Law: a binary that is gone, or isn't ours, costs the speed of a lone sequence, not the library."""
        monkeypatch.setattr(blas, "__file__", str(tmp_path / "blas.py"))
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        if binary is not None:
            (tmp_path / "few_rows_x86_64.so").write_bytes(binary)

        why = blas._load_few_rows()

        assert ("No such file" if binary is None else "not the pinned") in why

    def test_other_machines_need_no_binary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """OpenBLAS on aarch64 sends products of one row to gemv itself: nothing is missing there."""
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")

        assert blas.find_few_rows() is None
        assert blas._load_few_rows() == ""


@functools.cache
def load_products() -> tuple[Any, Any]:
    """OpenBLAS, and what stands before it: whatever the process computes with stays as it is."""
    openblas = ctypes.CDLL(str(blas.prepare(progress=False)))
    return ctypes.CDLL(str(blas.find_few_rows())), openblas


def few_rows_max(openblas: Any) -> int:
    """Up to how many rows a product by a transposed matrix is computed without OpenBLAS, with the kernels that it has
    chosen here: as `find_width` and `find_rows_max` of few_rows.c say."""
    openblas.scipy_openblas_get_corename.restype = ctypes.c_char_p
    core = openblas.scipy_openblas_get_corename().decode()
    if core in ("SkylakeX", "Cooperlake", "SapphireRapids"):
        return 32
    return 12 if core in ("Haswell", "Zen") else 0


def list_cores() -> list[str]:
    """List a processor of each kind whose instructions this one has."""
    try:
        has = find_features()
    except NotHere:
        return []
    needed = {
        "SkylakeX": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"},
        "Haswell": {"avx2", "fma"},
        "Sandybridge": {"avx"},
    }
    return [core for core, needs in needed.items() if needs <= has]


def pointer(matrix: np.ndarray) -> Any:
    return matrix.ctypes.data_as(ctypes.c_void_p)


def multiply(
    library: Any, a: np.ndarray, b: np.ndarray, c: np.ndarray, factors: tuple[float, float], kind: str
) -> None:
    """`cblas_sgemm` on views of row-major matrices; `kind` says which of the two are given transposed."""
    alpha, beta = (ctypes.c_float(factor) for factor in factors)
    rows, columns = c.shape
    depth = a.shape[0] if kind[0] == "T" else a.shape[1]
    flags = [112 if letter == "T" else 111 for letter in kind]
    left, right, made = ((pointer(matrix), matrix.strides[0] // 4) for matrix in (a, b, c))
    library.cblas_sgemm(101, *flags, rows, columns, depth, alpha, *left, *right, beta, *made)


# One row, then the rows around the largest number that each kind of processor takes without OpenBLAS.
ROWS_THAT_DIFFER = [1, 2, 3, 9, 12, 13, 32, 33]

# A process that has had help, then one that it forked off; at last it waits until its threads do.
HELPERS = """
import os, threading
import numpy as np
from tests.support.serving import until
from tests.unit.deployments.models.test_blas import load_products, multiply

library, openblas = load_products()
openblas.scipy_openblas_set_num_threads(3)
task, weights, made = np.ones((2, 800), np.float32), np.ones((900, 800), np.float32), np.zeros((2, 900), np.float32)

def work():
    for _ in range(20):
        made[...] = 0
        multiply(library, task, weights, made, (1.0, 0.0), "NT")
        assert (made == 800).all()

def state(thread):
    return open(f"/proc/self/task/{thread}/stat").read().rpartition(")")[2].split()[0]

work()
assert len(os.listdir("/proc/self/task")) >= 3
child = os.fork()
if child == 0:
    work()
    print("forked", flush=True)
    os._exit(0)
print("ok" if os.waitpid(child, 0)[1] == 0 else "bad")
others = [one for one in os.listdir("/proc/self/task") if int(one) != threading.get_native_id()]
until(lambda: all(state(one) == "S" for one in others), "sleep of the helpers")
print("asleep")
"""


@st.composite
def products(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, float], str, int]:
    """Few rows or some, small and large matrices, gaps between their rows, NaN where the result goes."""
    rows = draw(st.integers(0, 36))
    # The large ones are shared out in several pieces, and summed up in several.
    columns, depth = draw(
        st.one_of(
            st.tuples(st.integers(0, 40), st.integers(0, 40)),
            st.sampled_from([(1031, 1000), (1000, 1029), (17, 70001), (70001, 17), (1, 1_000_003), (1_000_003, 1)]),
        )
    )
    kind = draw(st.sampled_from(["NN", "NT", "TN", "TT"]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))

    def make(shape: tuple[int, int]) -> np.ndarray:
        gap = draw(st.integers(1 if 0 in shape else 0, 3))
        whole = random.standard_normal((max(1, shape[0]), shape[1] + gap), dtype=np.float32)
        return whole[: shape[0], : shape[1]]

    a = make((depth, rows) if kind[0] == "T" else (rows, depth))
    b = make((columns, depth) if kind[1] == "T" else (depth, columns))
    c = make((rows, columns))
    beta = draw(st.sampled_from([0.0, 1.0, -0.5]))
    if beta == 0:
        c[...] = np.nan
    return a, b, c, (draw(st.sampled_from([1.0, 0.0, 2.5])), beta), kind, draw(st.sampled_from([1, 2, 5]))


@pytest.mark.model
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the binary is for Linux on x86_64 alone"
)
class TestProductsOfFewRows:
    @given(product=products())
    @settings(max_examples=100, deadline=None)
    def test_they_are_those_of_numpy(self, product: Any) -> None:
        """Law: whatever the shape, the strides, the factors and the threads, the product is right, what was in the
        result doesn't matter without a factor, and nothing beside the result is written."""
        a, b, c, (alpha, beta), kind, threads = product
        library, openblas = load_products()
        before, around = c.copy(), c.base.copy()
        left = a.T if kind[0] == "T" else a
        right = b.T if kind[1] == "T" else b
        exact = left.astype(float) @ right.astype(float)
        size = np.abs(left).astype(float) @ np.abs(right).astype(float)
        expected = alpha * exact if beta == 0 else alpha * exact + beta * before
        openblas_threads = openblas.scipy_openblas_get_num_threads()
        openblas.scipy_openblas_set_num_threads(threads)
        try:
            multiply(library, a, b, c, (alpha, beta), kind)
        finally:
            openblas.scipy_openblas_set_num_threads(openblas_threads)

        assert np.all(np.abs(c - expected) <= 1e-5 * (np.abs(alpha) * size + np.abs(before if beta else 0)) + 1e-30)
        around[: c.shape[0], : c.shape[1]] = c
        np.testing.assert_array_equal(c.base, around)

    @pytest.mark.parametrize("core", list_cores())
    def test_they_are_with_the_kernels_of_other_processors_too(self, core: str) -> None:
        """Law: the laws of products hold with the registers and the OpenBLAS kernels of each kind of processor whose
        instructions this one has: with AVX-512, with AVX2, and with neither."""
        own = f"{Path(__file__).relative_to(ROOT)}::TestProductsOfFewRows::"
        laws = [own + "test_they_are_those_of_numpy", own + "test_threads_change_no_bit_of_a_product_of_few_rows"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *laws],
            env={**os.environ, "OPENBLAS_CORETYPE": core},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

        assert f"{1 + len(ROWS_THAT_DIFFER)} passed" in done.stdout, done.stdout + done.stderr

    def test_callers_at_once_get_each_their_own(self) -> None:
        """Law: however many threads multiply at once, one of them with helpers, each gets its own product."""
        library, openblas = load_products()
        random = np.random.default_rng(1)
        weights = random.standard_normal((900, 700), dtype=np.float32)
        tasks = [random.standard_normal((rows, 700), dtype=np.float32) for rows in (1, 2, 7, 20)]
        before = openblas.scipy_openblas_get_num_threads()
        openblas.scipy_openblas_set_num_threads(3)

        def work(task: np.ndarray) -> bool:
            made = np.empty((len(task), 900), np.float32)
            right = task @ weights.T
            for _ in range(200):
                made[...] = np.nan
                multiply(library, task, weights, made, (1.0, 0.0), "NT")
                if not np.allclose(made, right, atol=1e-3):
                    return False
            return True

        try:
            with ThreadPoolExecutor(len(tasks)) as callers:
                assert list(callers.map(work, tasks)) == [True] * len(tasks)
        finally:
            openblas.scipy_openblas_set_num_threads(before)

    @pytest.mark.parametrize("rows", ROWS_THAT_DIFFER)
    def test_threads_change_no_bit_of_a_product_of_few_rows(self, rows: int) -> None:
        """Law: up to `few_rows_max` rows, no bit of a product depends on the number of threads. OpenBLAS computes the
        products of more rows, and there the threads may change the last bits: such products agree within rounding."""
        library, openblas = load_products()
        random = np.random.default_rng(2)
        weights = random.standard_normal((1003, 1030), dtype=np.float32)
        task, made = random.standard_normal((rows, 1030), dtype=np.float32), []
        before = openblas.scipy_openblas_get_num_threads()
        try:
            for threads in (1, 2, 4):
                openblas.scipy_openblas_set_num_threads(threads)
                made.append(np.empty((rows, 1003), np.float32))
                multiply(library, task, weights, made[-1], (1.0, 0.0), "NT")
        finally:
            openblas.scipy_openblas_set_num_threads(before)

        for other in made[1:]:
            if rows <= few_rows_max(openblas):
                np.testing.assert_array_equal(made[0], other)
            else:
                assert np.all(np.abs(made[0] - other) <= 1e-5 * (np.abs(task) @ np.abs(weights.T)))

    @pytest.mark.parametrize(("count", "step"), [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999)])
    def test_other_work_is_shared_out_whole(self, count: int, step: int) -> None:
        """Law: whoever comes, each piece is done once, and all is done when the call returns."""
        library, openblas = load_products()
        done: list[int] = []
        work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long, ctypes.c_long)(
            lambda _, first, last: done.extend(range(first, last))
        )
        before = openblas.scipy_openblas_get_num_threads()
        try:
            for threads in (1, 3):
                openblas.scipy_openblas_set_num_threads(threads)
                done.clear()
                library.share_few_rows(work, None, ctypes.c_long(count), ctypes.c_long(step))
                assert sorted(done) == list(range(count))
        finally:
            openblas.scipy_openblas_set_num_threads(before)

    def test_a_fork_and_an_idle_process_are_at_ease(self) -> None:
        """Law: a process that was forked off, which has none of the helping threads, multiplies as before; and the
        helpers sleep where nothing is multiplied."""
        done = subprocess.run(
            [sys.executable, "-c", HELPERS], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )

        assert done.stdout.split() == ["forked", "ok", "asleep"], done.stdout + done.stderr

    @pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9, 16, 32])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_what_isnt_a_number_goes_where_it_goes_in_gemm(self, rows: int, bad: float) -> None:
        """Law: NaN and infinities reach the same results as in OpenBLAS's own gemm."""
        random = np.random.default_rng(rows)
        a, b = (random.standard_normal(shape, dtype=np.float32) for shape in ((rows, 1100), (1000, 1100)))
        a[0, 3], b[5, 7], b[6, 3] = bad, bad, 0.0
        mine, theirs = np.zeros((rows, 1000), np.float32), np.zeros((rows, 1000), np.float32)
        library, openblas = load_products()
        multiply(library, a, b, mine, (1.0, 0.0), "NT")
        multiply(openblas, a, b, theirs, (1.0, 0.0), "NT")

        np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
        np.testing.assert_array_equal(np.isinf(mine), np.isinf(theirs))
