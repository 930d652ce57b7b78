"""How many equal calls of one answer a person has ordered, and how many are a loop.

"Press Tab 3 times" orders as many equal calls of any tool. "Buy 4 tickets" orders as many of a tool that does
something; to read or to look three times within one answer gives the same three times.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliability.loops.comparison.findings import SeenCall
from reliability.loops.content import PersonsOrder
from reliability.loops.repeatable_calls import acts
from reliability.loops.written import REPEATS, Copies

NO_ORDER = PersonsOrder()


def count_ordered(order: PersonsOrder, name: str, arguments: str = "") -> int:
    """Return how many equal calls of a tool the order asks for; 0: it doesn't say."""
    return max(order.times, order.number) if acts(SeenCall(name, arguments)) else order.times


def limit_copies(order: PersonsOrder, tools: Iterable[str]) -> Copies:
    """Return how many equal calls of each of the tools are a loop under this order."""
    most = max(REPEATS, order.times + 1)
    more = max(most, order.number + 1)
    ordered = tuple(name for name in tools if acts(SeenCall(name))) if more > most else ()
    return Copies(most, more, ordered)
