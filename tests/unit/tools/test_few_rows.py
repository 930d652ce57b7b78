"""The binary in the repository is what its source says."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from deployments.models import blas
from tools import few_rows


def installed_compiler() -> str | None:
    """The version of the compiler that is installed here, if one is."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return importlib.metadata.version("ziglang")


@pytest.mark.skipif(
    installed_compiler() != few_rows.COMPILER, reason=f"the compiler, ziglang=={few_rows.COMPILER}, isn't installed"
)
def test_the_binary_is_built_from_its_source(tmp_path: Path) -> None:
    """Law: whoever builds it again gets the bytes that are in the repository."""
    few_rows.build(tmp_path / "again.so")

    assert (tmp_path / "again.so").read_bytes() == few_rows.TARGET.read_bytes()


def test_the_pinned_sum_is_that_of_the_binary() -> None:
    """What is loaded is what is in the repository, on the machine that it is for."""
    digest = hashlib.sha256(few_rows.TARGET.read_bytes()).hexdigest()

    assert (few_rows.TARGET.name, digest) == blas._FEW_ROWS["x86_64"]


def test_the_binary_depends_on_openblas_alone() -> None:
    """No version of libc, no loader, no other library stands between it and any Linux."""
    names = {name.decode() for name in re.findall(rb"[\w.]{4,}", few_rows.TARGET.read_bytes())}

    assert {name for name in names if name.startswith(("lib", "ld-"))} == {few_rows.OPENBLAS, "libfewrows.so"}
    assert {name for name in names if name.startswith("scipy_")} == set(few_rows.FROM_OPENBLAS)
    assert not {name for name in names if name.startswith("GLIBC")}
