"""What an evaluation measures on: machine, system, versions, and the peak memory of the server's processes.

A replica is known by the title that Ray gives its process; `deployments/memory/sensors` reads its memory. What MLX says
of itself stands in `/v1/models` (`mlx_peak_bytes`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from deployments.memory.sensors.computing import find_computing
from deployments.memory.sensors.macos import read_footprint
from deployments.models.weights import versions

PACKAGES = ("mlx-stack-serve", "mlx", "mlx-lm", "ray", "llguidance", "transformers", "tokenizers", "gguf", "httpx")


def describe_machine() -> dict[str, Any]:
    """Describe this machine."""
    return {
        "processor": _find_processor() or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 2),
        "computing": find_computing().value,
    }


def _find_processor() -> str | None:
    """Find the processor's name; None where the system doesn't say."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            return asked.stdout.strip() or None
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return None


def list_versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """List the versions of Python and of those packages that are installed."""
    return {"python": platform.python_version()} | versions(packages)


EVERY_S = 0.5
TITLE = re.compile(r"ServeReplica:[^:]+:([a-z][a-z0-9_-]*)")


class Footprint:
    """Looks at the family of one process until it is closed. Between looks it does nothing."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: Counter[str] = Counter()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="footprint", daemon=True)
        self._thread.start()

    def close(self) -> dict[str, int]:
        """Stop looking; return the peak bytes of each tier, and of all processes together (`all`)."""
        self._closed.set()
        self._thread.join()
        return dict(self._peaks)

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            with contextlib.suppress(psutil.Error):
                self._look()

    def _look(self) -> None:
        total = 0
        for process in psutil.Process(self._pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                size_bytes = read_footprint(process.pid) or 0
                total += size_bytes
                if title := TITLE.search(" ".join(process.cmdline())):
                    self._peaks |= {title.group(1): size_bytes}
        self._peaks |= {"all": total}
