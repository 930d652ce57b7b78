"""What the figures were measured on: the machine, the versions, and the peak of memory."""

import os
import subprocess
import sys

from deployments.evaluate.asking.machine_facts import TITLE, Footprint, describe_machine
from tests.support.serving import until


def test_the_machine_is_named():
    """Processor, cores, memory and system are known everywhere; a replica by its title, as Ray writes it."""
    machine, found = describe_machine(), TITLE.search("ray::ServeReplica:mlx-stack:long_ctx-2")

    assert all(machine[name] for name in ("processor", "cores", "system"))
    assert machine["memory_bytes"] > 1e8
    assert found is not None
    assert found.group(1) == "long_ctx-2"


def test_the_peak_of_a_family_is_seen():
    """What a child holds is counted, whatever else there is; a family that has gone is no error."""
    footprint = Footprint(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(80_000_000); input()"], stdin=subprocess.PIPE)
    try:
        until(lambda: footprint._peaks.get("all", 0) > 80_000_000, "the child's memory is seen")
    finally:
        child.kill()
        child.wait()

    assert footprint.close()["all"] > 80_000_000
    assert Footprint(child.pid).close().get("all", 0) == 0
