"""The binary of the kernels is loaded where it is ours and where it runs."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from deployments.tiers.mlx.cpu import binary
from deployments.tiers.mlx.cpu.binary import NotHere, find_features, load_kernels
from tests.support.kernels import only_here


class TestWhatStandsInTheWay:
    @only_here
    def test_a_processor_without_the_registers(self) -> None:
        """Law: nothing runs that the processor doesn't have."""
        with pytest.raises(NotHere, match="neither AVX2 nor AVX-512"):
            load_kernels(frozenset({"sse2", "avx"}))

        assert [one.floats for one in load_kernels(frozenset({"avx2", "fma"}))] == [8]

    @pytest.mark.parametrize("content", [None, b"\x7fELF, but another one"])
    def test_a_binary_that_is_gone_or_isnt_ours(
        self, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Law: only the pinned bytes are loaded."""
        monkeypatch.setattr(binary, "BINARY", tmp_path / "kernels_x86_64.so")
        if content is not None:
            binary.BINARY.write_bytes(content)

        with pytest.raises(NotHere, match="No such file" if content is None else "not the pinned"):
            load_kernels(frozenset({"avx2", "fma"}))

    def test_another_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: on a machine that the binary isn't for, MLX's own stays, and the reason names the machine."""
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")

        with pytest.raises(NotHere, match="aarch64"):
            find_features()
