"""Fetch models in the background of a server that can answer already: `mlx-stack-serve prepare --behind CONFIG`.

The driver starts it once, and it ends with the run. With HF_HUB_OFFLINE set it isn't started.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence


def is_offline(environ: Mapping[str, str]) -> bool:
    """Tell whether nothing may be fetched unasked, by the variable of the hub's client and as that reads it."""
    return environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


class BackgroundFetch:
    """One fetch, begun at most once."""

    def __init__(self, config: str, environ: Mapping[str, str], command: Sequence[str] | None = None) -> None:
        self._command = command or [sys.executable, "-P", "-m", "deployments", "prepare", "--behind", config]
        self._wanted = not is_offline(environ)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._wanted:
            self._wanted = False
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None
