"""How long a comparison may go on: a number of rounds, and a number of seconds after which no new round begins.

A busy machine then gives fewer rounds and not a later end. Each round is announced on standard error as it begins, so
that whoever waits sees it move.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Turns:
    """At most `most` rounds in about `seconds`; `made` of the last comparison."""

    most: int
    seconds: float
    made: int = 0

    def rounds(self, what: str) -> Iterator[int]:
        """Yield the numbers of the rounds; at least one."""
        began_s, self.made = time.monotonic(), 0
        while self.made < self.most:
            spent_s = time.monotonic() - began_s
            # The next one takes as long as one did so far.
            if self.made and spent_s * (self.made + 1) / self.made > self.seconds:
                break
            print(
                f"  {what}: round {self.made + 1} of {self.most}, {spent_s:.0f} s so far", file=sys.stderr, flush=True
            )
            yield self.made
            self.made += 1
