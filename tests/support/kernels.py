"""Where the extension for the CPU runs."""

import platform
import sys

import pytest

only_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the extension is for Linux on x86_64 alone"
)
