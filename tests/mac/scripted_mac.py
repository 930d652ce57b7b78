"""A Mac that a test scripts: what the kernel, psutil and MLX say of its memory, and what it is told to wire."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import psutil
import pytest

from deployments.memory.sensors import computing, macos
from tests.mac.assumptions import GIB, MIB, PRESSURE, guess_working_set


@dataclass
class ScriptedMac:
    """`available_gb` is what psutil says; `wired_limit_mb` 0: nothing is set. `wired` is what each process of the test
    has told MLX to wire, in order. `has_wide_kernels`: attention is fused for heads of 192 and 256, where that is asked
    for; `attended`: the shapes of the queries, and whether it was."""

    memory_gib: int
    available_gb: float = 4.0
    pressure: str = "normal"
    wired_limit_mb: int = 0
    wired: list[int] = field(default_factory=list)
    has_wide_kernels: bool = True
    attended: list[tuple[tuple[int, ...], bool]] = field(default_factory=list)

    @property
    def working_set(self) -> int:
        return self.wired_limit_mb * MIB if self.wired_limit_mb else guess_working_set(self.memory_gib)

    # The calls of `deployments.memory.sensors.macos.SystemKernel`.

    def sysctl_u32(self, name: str) -> int | None:
        return {macos.LEVEL: PRESSURE[self.pressure], "iogpu.wired_limit_mb": self.wired_limit_mb}.get(name)

    def read_swap_out_bytes(self) -> int | None:
        return 0

    def memory_bytes(self) -> tuple[int, int]:
        return self.memory_gib * GIB, int(self.available_gb * 1e9)

    # What MLX says and does there.

    def device_info(self) -> dict[str, Any]:
        return {"device_name": "Apple M4", "max_recommended_working_set_size": self.working_set}

    def set_wired_limit(self, size_bytes: int) -> int:
        if size_bytes > self.working_set:
            raise ValueError("Setting a wired limit larger than the maximum working set size is not allowed.")
        self.wired.append(size_bytes)
        return 0

    def attend(self, q: Any, k: Any, v: Any, *, force_fused: bool = False, **more: Any) -> Any:
        if force_fused and (not self.has_wide_kernels or q.shape[3] not in (192, 256)):
            raise ValueError("[scaled_dot_product_attention] no fused kernel")
        self.attended.append((q.shape, force_fused))
        return self._plain(q, k, v, **more)

    _plain = staticmethod(mx.fast.scaled_dot_product_attention)

    def start(self, monkeypatch: pytest.MonkeyPatch) -> ScriptedMac:
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(platform, "machine", lambda: "arm64")
        total, _ = self.memory_bytes()
        there = lambda: SimpleNamespace(total=total, available=self.memory_bytes()[1])  # noqa: E731
        monkeypatch.setattr(psutil, "virtual_memory", there)
        monkeypatch.setattr(computing, "SystemKernel", lambda: self)
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(mx, "device_info", self.device_info)
        monkeypatch.setattr(mx, "set_wired_limit", self.set_wired_limit)
        monkeypatch.setattr(mx, "set_cache_limit", lambda _: 0)
        monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", self.attend)
        return self
