"""Several Ray nodes: each has its monitor, pressure counts where it is, and a dead node stops nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def run(program: str) -> str:
    """What a program with a cluster of its own prints."""
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", f"tests.support.{program}", folder]
        # Ray's class for several nodes writes an address there, and doesn't make the folder.
        (Path(folder) / "ray").mkdir()
        env = os.environ | {"RAY_TMPDIR": folder}
        out = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr[-4000:]
    return out.stdout


def test_two_nodes():
    """Pressure on one of two nodes is felt by its tiers only; killing that node leaves the other known, at once."""
    assert "nobody starts its monitor elsewhere" in run("two_nodes")


def test_three_nodes():
    """The whole graph over three nodes: pressure on one moves work to another, and a node that dies with its monitor
    stops nobody."""
    assert "doesn't stop the graph" in run("three_nodes")
