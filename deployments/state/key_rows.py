"""Tables of the journal whose rows belong to API keys: over a bound the key that holds the most loses its oldest rows.

Several tables may share one bound. Each has an index by key and age that holds the weight, too, so that counting reads
no row. The rule: `reliability/key_shares.py`.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliability.key_shares import find_level


@dataclass(frozen=True, slots=True)
class KeyRows:
    """A table with a column `key`; the columns of a row that name it, say its age, and what it weighs."""

    table: str
    name: str
    age: str
    weight: str


def count_held(db: sqlite3.Connection, kinds: Sequence[KeyRows]) -> Counter[str]:
    """Count what each key holds."""
    held: Counter[str] = Counter()
    for kind in kinds:
        held.update(dict(db.execute(f"SELECT key, sum({kind.weight}) FROM {kind.table} GROUP BY key")))
    return held


def drop_oldest(db: sqlite3.Connection, kinds: Sequence[KeyRows], held: Counter[str], most: int) -> int:
    """Drop rows until all keys together hold at most `most`; return how many rows went. `held` is kept up."""
    level, dropped = find_level(held, most), 0
    for key, holds in held.most_common():
        excess = min(holds - level, held.total() - most)
        if holds <= level or excess <= 0:
            break
        for kind, names in _choose_oldest(db, kinds, key, excess, held):
            sql = f"DELETE FROM {kind.table} WHERE key IS ? AND {kind.name} = ?"
            db.executemany(sql, [(key, name) for name in names])
            dropped += len(names)
    return dropped


def _choose_oldest(
    db: sqlite3.Connection, kinds: Sequence[KeyRows], key: str, excess: int, held: Counter[str]
) -> list[tuple[KeyRows, list[Any]]]:
    """Choose a key's oldest rows that weigh so much together, by their table."""
    chosen: list[tuple[KeyRows, list[Any]]] = [(kind, []) for kind in kinds]
    tables = []
    for place, kind in enumerate(kinds):
        columns = f"{kind.age}, {place}, {kind.name}, {kind.weight}"
        tables.append(db.execute(f"SELECT {columns} FROM {kind.table} WHERE key IS ? ORDER BY {kind.age}", (key,)))
    for _, place, name, weight in heapq.merge(*tables):
        if excess <= 0:
            break
        chosen[place][1].append(name)
        held[key] -= weight
        excess -= weight
    return chosen
