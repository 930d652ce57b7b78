"""The collector of a process that serves: what is there at its start is set aside, and garbage still goes."""

from __future__ import annotations

import subprocess
import sys

from deployments.work.gc_tuning import NEW_OBJECTS

PROGRAM = """
import gc, weakref
from deployments.work.gc_tuning import settle_collector

class Ring:
    def __init__(self):
        self.me = self

before = len(gc.get_objects())
settle_collector()
print(len(gc.get_objects()) < before / 10, gc.get_threshold()[0])

ring = Ring()
gone = weakref.ref(ring)
del ring
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
print(gone() is None)
"""


def test_what_is_there_is_set_aside_and_new_cycles_are_still_found():
    """A settled collector no longer walks through what the process has begun with, looks less often, and frees a cycle
    that was made later once as many objects as its bound have come."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout.split() == ["True", str(NEW_OBJECTS), "True"]
