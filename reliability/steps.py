"""Work, counted: what bounds every computation that grows with what a client or a model sends.

A step is about a microsecond of Python on a slow core. Whoever loops spends; when the steps are used up, the work
ends in `OutOfSteps`, and whoever gave them decides: on the event loop it is then done again elsewhere, with more of
them. Counting replaces a clock, which the core doesn't have, so the same input always ends at the same place.
"""

from __future__ import annotations


class OutOfSteps(Exception):
    """The work is larger than the steps that were given for it."""


class Steps:
    """So many steps; mutable, for one piece of work. `final`: nobody will do it again with more, so what can't be
    judged within them is answered as such, where there is such an answer. `owner`: the name of the API key that it is
    done for; what another key's work has left in a cache saves it no time, which would tell what the other sent."""

    __slots__ = ("final", "left", "owner")

    def __init__(self, left: int, *, final: bool = False, owner: str = "") -> None:
        self.left = left
        self.final = final
        self.owner = owner

    def spend(self, steps: int = 1) -> None:
        """Use up `steps`. Raises `OutOfSteps` where there are fewer left."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps
