"""What the figures were measured on: the machine, the versions, and the peak of memory."""

import os
import subprocess
import sys

from deployments.evaluate.asking.machine_facts import TITLE, Footprint, describe_machine
from tests.support.serving import until


def test_the_machine_is_named():
    """Processor, cores, memory and system are known everywhere."""
    machine = describe_machine()

    assert machine["processor"]
    assert machine["cores"] >= 1
    assert machine["memory_bytes"] > 1e8
    assert machine["system"]


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
