"""What the figures were measured on and with: machine, system, versions, and the energy that the platform tells of."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from deployments.memory.sensors.computing import find_computing

__all__ = ["Energy", "describe_machine", "list_versions"]

PACKAGES = ("mlx-stack-serve", "mlx", "mlx-lm", "ray", "llguidance", "transformers", "tokenizers", "gguf", "httpx")
RAPL = Path("/sys/class/powercap")


def describe_machine() -> dict[str, Any]:
    """Describe this machine."""
    return {
        "processor": _find_processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 2),
        "computing": find_computing().value,
    }


def _find_processor() -> str:
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        return asked.stdout.strip()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def list_versions() -> dict[str, str]:
    """List the versions of what computes, and of Python."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Energy:
    """The joules of the whole package since it was made, where Linux tells them (RAPL); else why not."""

    def __init__(self, folder: Path = RAPL) -> None:
        self._counters = sorted(folder.glob("intel-rapl:?/energy_uj"))
        self._first = self._read()

    def measure(self) -> dict[str, Any]:
        """Return the joules, or why there are none. A counter that has begun anew makes the figure useless."""
        now = self._read()
        if self._first is None or now is None:
            why = "its counter needs root" if self._counters else "this platform tells no energy to a user's process"
            return {"joules": None, "why": why}
        if now < self._first:
            return {"joules": None, "why": "the counter has begun anew"}
        return {"joules": round((now - self._first) / 1e6, 1), "why": ""}

    def _read(self) -> int | None:
        try:
            return (
                sum(int(counter.read_text(encoding="utf-8")) for counter in self._counters) if self._counters else None
            )
        except (OSError, ValueError):
            return None
