"""What waits for the state actor, in the order in which it came; at most `ITEMS_MAX` items.

    put(item)    -> what had to give way, or None
    take(count)  -> the oldest, at most so many

Where too much waits, kept answers go first, then reports and what sessions were answered, then settlements (a grant
that nobody settles expires at what it was last known to have used), and only then charges and incidents; of each kind
the oldest. An item is known by the number under which it came, and each kind has a queue of numbers beside the items,
so what gives way is found without a look at the rest: an actor that is away for a night makes no request dearer. (With
a search through 20,000 items, three or four to a request, a Router answered 80 requests a second instead of 300.)

What must never happen: an item that overtakes another.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from deployments.state.idempotent_answers import KeptItem
from deployments.state.records import AnswerItem, Item, ReportItem, SettlementItem, TurnItem

__all__ = ["ITEMS_MAX", "WaitingItems"]

ITEMS_MAX = 20_000
# Who gives way, first to last; what is in no group gives way last.
GROUPS: tuple[tuple[type, ...], ...] = ((KeptItem,), (ReportItem, TurnItem, AnswerItem), (SettlementItem,))
GROUP_OF = {kind: at for at, kinds in enumerate(GROUPS) for kind in kinds}


class WaitingItems:
    """See the module."""

    def __init__(self, most: int = ITEMS_MAX) -> None:
        self._most = most
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._groups: tuple[deque[int], ...] = tuple(deque() for _ in range(len(GROUPS) + 1))
        self._number = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> Item | None:
        """Put an item behind all others; return what gave way to it, which may be itself."""
        self._number += 1
        self._items[self._number] = item
        self._groups[GROUP_OF.get(type(item), -1)].append(self._number)
        if len(self._items) <= self._most:
            return None
        return self._items.pop(next(group for group in self._groups if group).popleft())

    def take(self, count: int) -> tuple[Item, ...]:
        """Take out the `count` oldest, or all where there are fewer."""
        return tuple(self._take_oldest() for _ in range(min(count, len(self._items))))

    def _take_oldest(self) -> Item:
        _, item = self._items.popitem(last=False)
        self._groups[GROUP_OF.get(type(item), -1)].popleft()  # the oldest of all is the oldest of its group
        return item
