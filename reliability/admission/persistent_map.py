"""A persistent mapping: many small dicts instead of one big one.

`put` and `drop` return a new mapping and copy one shard of `SHARDS`, so a change costs about the same with ten keys and
with ten thousand, and every older version stays valid: that lets the reducers be pure. CRC-32 places the keys, since it
is the same in every process and a replay places them as the first run did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar
from zlib import crc32

# 10,000 keys make shards of about 80: copying one, and the tuple of all, costs about a microsecond each.
SHARDS = 128

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Shards(Generic[V]):
    """An immutable mapping from names to values. `count` is the number of names."""

    shards: tuple[Mapping[str, V], ...] = ({},) * SHARDS
    count: int = 0

    def get(self, key: str) -> V | None:
        return self.shards[self.place(key)].get(key)

    def put(self, key: str, value: V) -> Shards[V]:
        at = self.place(key)
        old = self.shards[at]
        return self._with(at, {**old, key: value}, self.count + (key not in old))

    def drop(self, key: str) -> Shards[V]:
        at = self.place(key)
        old = self.shards[at]
        if key not in old:
            return self
        rest = dict(old)
        del rest[key]
        return self._with(at, rest, self.count - 1)

    def without(self, keys: Iterable[str]) -> Shards[V]:
        return reduce(Shards[V].drop, keys, self)

    def items(self) -> Iterator[tuple[str, V]]:
        for shard in self.shards:
            yield from shard.items()

    def place(self, key: str) -> int:
        """Return the number of the shard that holds `key`."""
        return crc32(key.encode("utf-8", "surrogatepass")) % len(self.shards)

    def _with(self, at: int, shard: Mapping[str, V], count: int) -> Shards[V]:
        return Shards((*self.shards[:at], shard, *self.shards[at + 1 :]), count)
