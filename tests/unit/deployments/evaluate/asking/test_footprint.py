"""The peak of memory: of a family of processes, by tier."""

from __future__ import annotations

import os
import subprocess
import sys

from deployments.evaluate.asking.footprint import TITLE, Footprint
from tests.support.serving import until


def test_the_peak_of_a_family_is_seen():
    """What a child holds is counted, whatever else there is."""
    footprint = Footprint(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(80_000_000); input()"], stdin=subprocess.PIPE)
    try:
        until(lambda: footprint._peaks.get("all", 0) > 80_000_000, "the child's memory is seen")
    finally:
        child.kill()
        child.wait()

    assert footprint.close()["all"] > 80_000_000


def test_a_family_that_has_gone_is_no_error():
    """Who looks at a process that ended sees nothing."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert Footprint(child.pid).close().get("all", 0) == 0


def test_a_replica_is_known_by_its_title():
    """As Ray writes it."""
    found = TITLE.search("ray::ServeReplica:mlx-stack:long_ctx-2")

    assert found is not None
    assert found.group(1) == "long_ctx-2"
