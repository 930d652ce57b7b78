"""Keep the keys and values of computed prompts for the next request that begins the same way.

An entry is some tokens and the cache that holds exactly them; `take` gives a copy. Where a cache can be cut, one long
entry serves every prompt that begins like it; where it can't (a window, a recurrent state), an entry serves prompts
that continue behind its end, and the scheduler makes checkpoints for them. Invariants:
- An entry serves its owner (an API key) alone: timing would tell one key what another has sent. Where the operator lets
  keys share, all are one owner, and reuse counts in blocks of `_BLOCK_TOKENS`.
- `take` never covers the whole prompt: the model computes the first token from at least one.
- All entries hold at most `bytes_max`; the least recently used goes first. Engine thread only.
- A session waits for its helpers: each entry that a helper puts counts as a use of the entry that serves its parent's
  last prompt, where that leaves it half of `bytes_max` (docs/decisions/057-prompts-of-helpers.md).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.packed_tokens import WIDTH, count_common, pack

_ENTRIES_MAX = 128
_BLOCK_TOKENS = 256  # between API keys that share
_LEVELS_MAX = 4  # of sessions that wait for one another
_WAITING_SHARE = 2

# An API key, and the name of one of its sessions.
Session = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReuse:
    """What may be kept of a prompt: for whom (`owner`, an API key), on disk too (`keep`), and at which places of it.
    `session` sends it, and helps `parent`."""

    owner: str = ""
    keep: bool = True
    checkpoints: Sequence[int] = ()
    session: Session | None = None
    parent: Session | None = None


KEYLESS = PromptReuse()  # of a server without API keys


class PromptKey(NamedTuple):
    """Names an entry: whose it is, and its packed tokens."""

    owner: str
    tokens: bytes

    @property
    def length(self) -> int:
        return len(self.tokens) // WIDTH

    def begins(self, other: PromptKey) -> bool:
        """Return whether `other` is the same owner's, and begins with all of this one's tokens."""
        return self.owner == other.owner and other.tokens.startswith(self.tokens)


class _LastPrompt(NamedTuple):
    """Names the entry that serves a session's last prompt, and the session that it helps."""

    key: PromptKey
    parent: Session | None


class MlxCaches:
    """What can be done with mlx-lm's caches, lists of a layer each. One that is taken out of a batch keeps all of the
    batch's arrays alive until `detach` computes it."""

    def nbytes(self, cache: Any) -> int:
        return sum(int(layer.nbytes) for layer in cache)

    def is_trimmable(self, cache: Any) -> bool:
        """Return mlx-lm's own answer; a window that has moved on can't go back, nor can a chunk (Llama 4's)."""
        return all(layer.is_trimmable() and not getattr(layer, "start_position", 0) for layer in cache)

    def copy_shortened(self, cache: Any, tokens: int) -> Any:
        """Copy and cut; the copy shares the original's arrays until one of them is written to."""
        shorter = copy.deepcopy(cache)
        for layer in shorter if tokens else ():
            layer.trim(tokens)
        return shorter

    def cut(self, cache: Any, tokens: int) -> Any:
        """Copy the first tokens of plain caches; others hold more than tokens."""
        if any(type(one) is not mlx_caches.KVCache for one in flatten(cache)):
            return None
        return detach([_cut_layer(layer, tokens) for layer in cache])


def detach(cache: Any) -> Any:
    """Compute the cache, and return it."""
    mx.eval([layer.state for layer in cache])
    return cache


def flatten(caches: Iterable[Any]) -> Iterator[Any]:
    """Yield the caches, and in place of one that is made of several its parts."""
    for one in caches:
        yield from flatten(one.caches) if hasattr(one, "caches") else (one,)


def _cut_layer(layer: Any, tokens: int) -> Any:
    if hasattr(layer, "caches"):
        return mlx_caches.CacheList(*(_cut_layer(one, tokens) for one in layer.caches))
    keys, values = (mx.contiguous(one[..., :tokens, :]) for one in (layer.keys, layer.values))
    return mlx_caches.KVCache.from_state((keys, values, tokens))


# Is told of each dropped entry: its key, its cache, and the key of the entry that serves all that it served, if any.
_OnDrop = Callable[[PromptKey, Any, PromptKey | None], None]


class PromptCache:
    """The entries by their packed tokens, the one used longest ago first."""

    def __init__(
        self,
        ops: MlxCaches,
        *,
        bytes_max: int,
        entries_max: int = _ENTRIES_MAX,
        shared: bool = False,
        on_drop: _OnDrop = lambda *_: None,
    ) -> None:
        self._ops, self._shared, self.block_tokens = ops, shared, _BLOCK_TOKENS if shared else 1
        self._bytes_max, self._entries_max, self._on_drop = bytes_max, entries_max, on_drop
        self._entries: OrderedDict[PromptKey, Any] = OrderedDict()
        self._last: dict[Session, _LastPrompt] = {}  # the session used longest ago first; live entries only
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def name_owner(self, owner: str) -> str:
        """Return whose a prompt of this API key counts as."""
        return "" if self._shared else owner

    def take(self, tokens: Sequence[int], owner: str = "") -> tuple[Any, int]:
        """Return a cache for the beginning of `tokens` and how many of them it holds. (None, 0) where nothing fits."""
        best, count = self._find_best(tokens, owner)
        if best is None:
            return None, 0
        self._entries.move_to_end(best)
        return self._ops.copy_shortened(self._entries[best], best.length - count), count

    def holds(self, tokens: Sequence[int], owner: str = "") -> bool:
        """Return whether prompts that begin with `tokens` are served with all of them already."""
        key = PromptKey(self.name_owner(owner), pack(tokens))
        return any(self._covers(old, cache, key) for old, cache in self._entries.items())

    def count_usable(self, tokens: Sequence[int], owner: str = "") -> int:
        """Count the tokens that `take` would give."""
        return self._find_best(tokens, owner)[1]

    def put(self, tokens: Sequence[int], cache: Any, reuse: PromptReuse = KEYLESS) -> PromptKey | None:
        """Keep `cache`, which holds exactly `tokens`, or what fits of it; return the key that serves them now."""
        key = PromptKey(self.name_owner(reuse.owner), pack(tokens))
        size_bytes, bytes_max = self._ops.nbytes(cache), self._bytes_max - self.use_waiting(reuse.parent)
        if size_bytes > bytes_max:
            count = len(tokens) * bytes_max // size_bytes
            cut = self._ops.cut(cache, count) if count and self._ops.is_trimmable(cache) else None
            fits = cut is not None and self._ops.nbytes(cut) <= bytes_max
            return self.put(tokens[:count], cut, reuse) if fits else None
        if not key.tokens:
            return None
        known = next((old for old, held in self._entries.items() if self._covers(old, held, key)), None)
        if known is None:
            self._add(key, cache, size_bytes)
        else:
            key = known
        self._entries.move_to_end(key)
        if reuse.session is not None:
            self._note_last(reuse.session, _LastPrompt(key, reuse.parent))
        self.use_waiting(reuse.parent)  # once more, so that what was put goes before it
        self.shrink(self._bytes_max)
        return key

    def use_waiting(self, session: Session | None) -> int:
        """Count the entries as used that serve the last prompt of `session`, and of those that it helps itself; return
        their bytes. Together they are at most a share of all: one beyond that isn't counted, nor those above it."""
        sizes: dict[PromptKey, int] = {}
        for _ in range(_LEVELS_MAX):
            if session not in self._last:
                break
            last = self._note_last(session, self._last[session])
            size = self._ops.nbytes(self._entries[last.key])
            if sum(sizes.values()) + size > self._bytes_max // _WAITING_SHARE:
                break
            sizes[last.key], session = size, last.parent
        for key in sizes:
            self._entries.move_to_end(key)
        return sum(sizes.values())

    def get(self, key: PromptKey) -> Any:
        """Return the cache of an entry; None where it is gone. Nobody may write to it."""
        return self._entries.get(key)

    def shrink(self, bytes_max: int) -> None:
        """Drop what was used longest ago, until at most `bytes_max` are held. The memory is needed elsewhere."""
        while self._entries and (self.nbytes > bytes_max or len(self) > self._entries_max):
            self._drop(next(iter(self._entries)))

    def _add(self, key: PromptKey, cache: Any, size_bytes: int) -> None:
        if self._ops.is_trimmable(cache):
            for old in [old for old in self._entries if old.begins(key)]:
                self._drop(old, heir=key)
        self._entries[key] = cache
        self.nbytes += size_bytes

    def _note_last(self, session: Session, last: _LastPrompt) -> _LastPrompt:
        self._last.pop(session, None)
        self._last[session] = last
        if len(self._last) > self._entries_max:
            del self._last[next(iter(self._last))]
        return last

    def _find_best(self, tokens: Sequence[int], owner: str) -> tuple[PromptKey | None, int]:
        """Find the entry that serves most of `tokens`, and count how many of them."""
        wanted = PromptKey(self.name_owner(owner), pack(tokens))
        best, count = None, 0
        for key, cache in self._entries.items():
            fits = self._count_usable(key, cache, wanted, count)
            if fits > count:
                best, count = key, fits
        return best, count

    def _covers(self, old: PromptKey, held: Any, key: PromptKey) -> bool:
        return old == key or (key.begins(old) and self._ops.is_trimmable(held))

    def _count_usable(self, key: PromptKey, cache: Any, wanted: PromptKey, more_than: int) -> int:
        """Count the tokens of `wanted` that the entry serves; 0 unless more than `more_than`."""
        if key.owner != wanted.owner or not key.tokens.startswith(wanted.tokens[: (more_than + 1) * WIDTH]):
            return 0
        fits = min(count_common(key.tokens, wanted.tokens), wanted.length - 1)
        fits -= fits % self.block_tokens
        all_of_it = fits == key.length
        return fits if all_of_it or self._ops.is_trimmable(cache) else 0

    def _drop(self, key: PromptKey, *, heir: PromptKey | None = None) -> None:
        cache = self._entries.pop(key)
        self.nbytes -= self._ops.nbytes(cache)
        for session in [one for one, last in self._last.items() if last.key == key]:
            last = self._last.pop(session)
            if heir is not None:
                self._last[session] = last._replace(key=heir)
        self._on_drop(key, cache, heir)
