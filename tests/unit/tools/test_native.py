"""The binaries in the repository are what their sources say."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from deployments.models import blas
from deployments.tiers.mlx.cpu import binary as kernels
from tools import native
from tools.native import FEW_ROWS, KERNELS, Binary

BINARIES = pytest.mark.parametrize("binary", [FEW_ROWS, KERNELS], ids=["few_rows", "kernels"])


def installed_compiler() -> str | None:
    """The version of the compiler that is installed here, if one is."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return importlib.metadata.version("ziglang")


@BINARIES
@pytest.mark.skipif(
    installed_compiler() != native.COMPILER, reason=f"the compiler, ziglang=={native.COMPILER}, isn't installed"
)
def test_a_binary_is_built_from_its_source(binary: Binary, tmp_path: Path) -> None:
    """Law: whoever builds it again gets the bytes that are in the repository."""
    native.build(binary, tmp_path / "again.so")

    assert (tmp_path / "again.so").read_bytes() == binary.target.read_bytes()


def test_the_pinned_sums_are_those_of_the_binaries() -> None:
    """What is loaded is what is in the repository, on the machine that it is for."""
    few_rows, other = (hashlib.sha256(one.target.read_bytes()).hexdigest() for one in (FEW_ROWS, KERNELS))

    assert (FEW_ROWS.target.name, few_rows) == blas._FEW_ROWS["x86_64"]
    assert (KERNELS.target, other) == (kernels.BINARY, kernels.SHA256)


@BINARIES
def test_a_binary_depends_on_openblas_at_most(binary: Binary) -> None:
    """No version of libc, no loader, no other library stands between it and any Linux."""
    names = {name.decode() for name in re.findall(rb"[\w.]{4,}", binary.target.read_bytes())}
    openblas = {native.OPENBLAS} if binary is FEW_ROWS else set()

    assert {name for name in names if name.startswith(("lib", "ld-"))} == {binary.soname, *openblas}
    assert {name for name in names if name.startswith("scipy_")} == set(binary.from_openblas)
    assert not names & {"memset", "memcpy", "malloc"}
    assert not {name for name in names if name.startswith("GLIBC")}
