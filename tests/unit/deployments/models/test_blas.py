"""The matrix library of MLX on Linux."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
