"""Where the binaries of this package run."""

from __future__ import annotations

import platform
import sys

import pytest

__all__ = ["only_here"]

only_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the binary is for Linux on x86_64 alone"
)
