"""The keys and values of prompts that were computed before, for the next request that begins the same way.

Theory of operation. An entry is some tokens and the cache that holds exactly them. Entries are
never changed: `take` gives a copy, `put` takes what nobody else writes to. Agents send the same
beginning again and again, in three ways, and all three reuse: the next turn of a session (all of
the last answer is the beginning), a new session under the same system prompt, and the identical
request.

Whether a cache can be cut back to fewer tokens decides what is worth keeping. Where it can be
(plain attention), one long entry serves every prompt that begins like it, so the shorter ones are
dropped. Where it can't be (a sliding window that has moved on, a recurrent state), an entry serves
only prompts that go on behind its end: that is why the batch makes checkpoints, after the system
prompt and before the answer begins.

What must never happen: a cache that covers the whole prompt, since the model then has nothing to compute the first
token from (`take` leaves at least one token); a cache that holds other tokens than it says; more bytes than
`bytes_max`. The entry used longest ago goes first. One owner: the engine thread.

The search compares with every entry, of which there are `entries_max` at most. Comparing is cheap (one memcmp for most
entries), and a tree of tokens would have to be pruned, which is where mlx-lm's own one has had its bugs.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["CacheOps", "PromptCache"]

ENTRIES_MAX = 128
_WIDTH = array("I").itemsize


class CacheOps(Protocol):
    """What can be done with a cache whose inside only the model's library knows."""

    def nbytes(self, cache: Any) -> int:
        """Return the memory that it holds."""
        ...

    def is_trimmable(self, cache: Any) -> bool:
        """Return whether `copy_shortened` can cut it back by any number of tokens."""
        ...

    def copy_shortened(self, cache: Any, tokens: int) -> Any:
        """Copy it without its last `tokens` tokens (0: a plain copy)."""
        ...


class PromptCache:
    """The entries, the one used longest ago first."""

    def __init__(self, ops: CacheOps, *, bytes_max: int, entries_max: int = ENTRIES_MAX) -> None:
        self._ops = ops
        self._bytes_max, self._entries_max = bytes_max, entries_max
        self._entries: OrderedDict[bytes, Any] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, tokens: Sequence[int]) -> tuple[Any, int]:
        """Return a cache for the beginning of `tokens` and how many of them it holds.

        (None, 0) where nothing fits.
        """
        wanted = _pack(tokens)
        best, best_tokens = None, 0
        for key, cache in self._entries.items():
            fits = self._count_usable(key, cache, wanted, best_tokens)
            if fits > best_tokens:
                best, best_tokens = key, fits
        if best is None:
            return None, 0
        self._entries.move_to_end(best)
        return self._ops.copy_shortened(self._entries[best], len(best) // _WIDTH - best_tokens), best_tokens

    def holds(self, tokens: Sequence[int]) -> bool:
        """Return whether prompts that begin with `tokens` are served with all of them already."""
        key = _pack(tokens)
        return any(self._covers(old, cache, key) for old, cache in self._entries.items())

    def put(self, tokens: Sequence[int], cache: Any) -> None:
        """Keep `cache`, which holds exactly `tokens`; or don't, where it is too large or serves nothing new."""
        key = _pack(tokens)
        size_bytes = self._ops.nbytes(cache)
        if not key or size_bytes > self._bytes_max:
            return
        known = next((old for old, held in self._entries.items() if self._covers(old, held, key)), None)
        if known is not None:
            self._entries.move_to_end(known)
            return
        if self._ops.is_trimmable(cache):
            for old in [old for old in self._entries if key.startswith(old)]:
                self._drop(old)
        self._entries[key] = cache
        self.nbytes += size_bytes
        self.shrink(self._bytes_max)

    def shrink(self, bytes_max: int) -> None:
        """Drop what was used longest ago, until at most `bytes_max` are held. The memory is needed elsewhere."""
        while self._entries and (self.nbytes > bytes_max or len(self) > self._entries_max):
            self._drop(next(iter(self._entries)))

    def _covers(self, old: bytes, held: Any, key: bytes) -> bool:
        return old == key or (old.startswith(key) and self._ops.is_trimmable(held))

    def _count_usable(self, key: bytes, cache: Any, wanted: bytes, more_than: int) -> int:
        """Count the tokens of `wanted` that the entry serves; 0 unless more than `more_than`."""
        if not key.startswith(wanted[: (more_than + 1) * _WIDTH]):
            return 0
        fits = min(_count_common(key, wanted), len(wanted) // _WIDTH - 1)
        all_of_it = fits == len(key) // _WIDTH
        return fits if all_of_it or self._ops.is_trimmable(cache) else 0

    def _drop(self, key: bytes) -> None:
        self.nbytes -= self._ops.nbytes(self._entries.pop(key))


def _pack(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def _count_common(one: bytes, other: bytes) -> int:
    """Count the complete tokens that both begin with: a binary search over memcmp."""
    low, high = 0, min(len(one), len(other)) // _WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * _WIDTH : middle * _WIDTH] == other[low * _WIDTH : middle * _WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low
