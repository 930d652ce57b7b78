"""Keep computed prompts for reuse: in memory, and on disk for the next process and others on this machine.

    memory  prompt_cache.py            put ──▶ dirty ──▶ being written (writer thread) ──▶ clean
    disk    segment_folder.py          found ──▶ checked (reader thread) ──▶ being restored (engine) ──▶ put, clean

A dirty entry is written once the engine has been idle for `_QUIET_S`, after `_LATE_S` at the latest, when memory evicts
it, and at the end. A request waits at the head of the queue for what the disk has, `_PATIENCE_S` at most. Invariants:
- A prompt serves no other API key, unless they share. No token of a request that isn't to be kept is in a file.
- Memory stays within `shrink`'s bound, including what is being written and restored.
- An error of the disk is a line in the log: the prompt is computed.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.tiers.mlx.prompt_cache.host_cache import HostCache, Restoring, to_host
from deployments.tiers.mlx.prompt_cache.prompt_cache import (
    KEYLESS,
    MlxCaches,
    PromptCache,
    PromptKey,
    PromptReuse,
    Session,
)
from deployments.tiers.mlx.prompt_cache.segment_file import Cancelled, Damaged, Segment
from deployments.tiers.mlx.prompt_cache.segment_folder import TOKENS_MIN, FoundSegments, SegmentFolder
from deployments.tiers.packed_tokens import WIDTH, pack

_LOG = logging.getLogger(__name__)

_QUIET_S, _LATE_S = 1.0, 15.0
_POLL_S = 0.05  # how often an idle engine looks whether a write has ended
# A prompt is read from disk where that saves so many tokens, and so large a part of what has to be read: reading a
# token is some forty times cheaper than computing it, on the weakest machine and model (CPU, 135M).
_GAIN_TOKENS_MIN, _GAIN_SHARE = 64, 1 / 16
# For the first look, on the engine thread: it takes a millisecond, unless it finds something or the disk is slow.
_LOOK_S = 0.02
_PATIENCE_S = 10.0
_PIECE_BYTES = 64 << 20  # restored between two steps


@dataclass(slots=True)
class _Mark:
    """What of an entry may go to disk: its first `tokens`, in files that begin at `cuts`. `since_s`: when something was
    added that the disk doesn't know; None where it knows all."""

    tokens: int = 0
    cuts: set[int] = field(default_factory=set)
    since_s: float | None = None


@dataclass(slots=True, eq=False)
class _Write:
    """An entry on its way to disk. `host` is taken off it on the engine thread."""

    key: PromptKey
    cache: Any
    host: HostCache
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, eq=False)
class _Fetch:
    """A prompt on its way from disk. `segments`: its checked files; None where they aren't worth it."""

    key: PromptKey
    held: int
    bytes_max: int
    began_s: float
    parent: Session | None
    found: FoundSegments = field(default_factory=FoundSegments)
    segments: list[Segment] | None = None
    restoring: Restoring | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class PromptStore:
    """The prompts kept for reuse, each by the API key `owner` that sent it, or by all if they are `shared`. Without a
    `folder` they live as long as the process; `memory` has those in memory. Engine thread only."""

    def __init__(
        self,
        *,
        bytes_max: int,
        folder: SegmentFolder | None = None,
        shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ops = MlxCaches()
        self.memory = PromptCache(self._ops, bytes_max=bytes_max, shared=shared, on_drop=self._note_drop)
        self._bytes_max = self._spare_bytes = bytes_max
        self._folder_of = None if folder is None else functools.lru_cache(maxsize=64)(folder.of)
        self._clock = clock
        self._marks: dict[PromptKey, _Mark] = {}
        self._write: _Write | None = None
        self._fetch: _Fetch | None = None
        self._fetched: PromptKey | None = None  # the last prompt that was looked for on disk
        self._used_s = clock()
        self._failing = False

    def take(self, tokens: Sequence[int], owner: str = "") -> tuple[Any, int]:
        """Return a cache for the beginning of `tokens`, from memory, and how many of them it holds."""
        self._used_s, self._fetched = self._clock(), None
        return self.memory.take(tokens, owner)

    def put(self, tokens: Sequence[int], cache: Any, reuse: PromptReuse = KEYLESS) -> None:
        """Keep `cache`, which holds exactly `tokens`."""
        self._used_s = self._clock()
        key = self.memory.put(tokens, cache, reuse)
        if key is None:
            return
        mark, count = self._marks.setdefault(key, _Mark()), min(len(tokens), key.length)
        if reuse.keep and count > mark.tokens:
            mark.tokens, mark.since_s = count, self._used_s

    def shrink(self, bytes_max: int) -> None:
        """Hold no more than `bytes_max`, with what is being written and restored: the memory is needed elsewhere."""
        self._spare_bytes = bytes_max
        for _ in range(2):  # an entry that the first evicts may be with the writer, and takes as much as before
            aside_bytes = self._count_written() + self._count_restored()
            self.memory.shrink(max(0, min(self._bytes_max, bytes_max - aside_bytes)))
        if self._write is not None and self._count_written() > bytes_max:
            self._write.cancelled.set()
        if self._count_restored() > bytes_max:
            self._end_fetch()
        self._collect()

    def fetch(self, tokens: Sequence[int], reuse: PromptReuse = KEYLESS, *, alone: bool) -> bool:
        """Bring what the disk holds of `tokens`, where that is more than memory does, a bit on its way; return whether
        it is still on it. `alone`: the engine has nothing else to do meanwhile."""
        key = PromptKey(self.memory.name_owner(reuse.owner), pack(tokens)[:-WIDTH])  # `take` leaves the last one
        fetch = self._fetch
        if fetch is None or fetch.key != key:
            fetch = self._begin_fetch(key, tokens, reuse.parent)
            if fetch is None:
                return False
            fetch.done.wait(_LOOK_S)
        if not fetch.done.wait(_POLL_S if alone else 0):
            if self._clock() - fetch.began_s < _PATIENCE_S:
                return True
            _LOG.warning("a prompt took too long to read from disk and is computed")
            self._end_fetch()
            return False
        return self._restore(fetch)

    def save(self, *, idle: bool) -> float | None:
        """Write an entry if it is time for one. Return after how many seconds of idleness to call again, if at all."""
        self._collect()
        if self._folder_of is None:
            return None
        if idle:
            self._end_fetch()  # nobody waits for it
            self._fetched = None
        if self._write is not None:
            return _POLL_S
        dirty = [(mark.since_s, key) for key, mark in self._marks.items() if mark.since_s is not None]
        if not dirty:
            return None
        now_s = self._clock()
        quiet_s = _QUIET_S - (now_s - self._used_s)
        if idle and quiet_s > 0:
            return quiet_s
        since_s, key = max(dirty) if idle else min(dirty)
        if idle or now_s - since_s >= _LATE_S:
            self._begin_write(key, self.memory.get(key), self._marks[key])
        return _POLL_S if idle else None

    def close(self, seconds: float) -> None:
        """Write what isn't on disk yet, the latest first, for so long at most."""
        ends_s = time.monotonic() + seconds
        self._used_s = float("-inf")
        while self.save(idle=True) is not None and time.monotonic() < ends_s:
            if self._write is not None:
                self._write.done.wait(max(0.0, ends_s - time.monotonic()))
        if self._write is not None:
            self._write.cancelled.set()
            self._write.done.wait(_QUIET_S)
        self._collect()

    def _count_written(self) -> int:
        """Count the bytes that only the writer still holds."""
        write = self._write
        if write is None or self.memory.get(write.key) is write.cache:
            return 0
        return self._ops.nbytes(write.cache)

    def _count_restored(self) -> int:
        restoring = None if self._fetch is None else self._fetch.restoring
        return 0 if restoring is None else restoring.nbytes

    def _note_drop(self, key: PromptKey, cache: Any, heir: PromptKey | None) -> None:
        """Hand what is known of an entry over to its heir; without one it is evicted, and goes to disk if it can."""
        mark = self._marks.pop(key, None)
        if mark is None:
            return
        if heir is None:
            if mark.since_s is not None:
                self._begin_write(key, cache, mark)
            return
        to = self._marks.setdefault(heir, _Mark())
        to.cuts |= mark.cuts | {key.length}
        if mark.tokens > to.tokens:
            to.tokens, to.since_s = mark.tokens, mark.since_s

    def _begin_write(self, key: PromptKey, cache: Any, mark: _Mark) -> None:
        """Hand an entry to the writer, unless that has one."""
        if self._folder_of is None or self._write is not None:
            return
        mark.since_s = None
        try:
            host = to_host(cache, key.length)
        except Exception as error:  # a cache of a kind that can't be written: the engine goes on without
            self._complain(error)
            return
        if mark.tokens < TOKENS_MIN or not (host.sliced or mark.tokens == host.tokens):
            return
        self._write = write = _Write(key, cache, host)
        cuts = sorted(mark.cuts) if host.sliced else None
        packed = key.tokens[: mark.tokens * WIDTH]
        _start("prompts-writer", lambda: self._save(write, packed, cuts), write.done)

    def _save(self, write: _Write, packed: bytes, cuts: list[int] | None) -> None:
        host = write.host
        assert self._folder_of is not None
        try:
            self._folder_of(write.key.owner).save(
                packed,
                host.form,
                host.stretch,
                token_bytes=-(-host.nbytes // host.tokens),
                cuts=cuts,
                cancelled=write.cancelled.is_set,
            )
            self._failing = False
        except Cancelled:
            pass
        except OSError as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._failing:
            bug = None if isinstance(error, OSError | ValueError) else error  # no disk, or a cache of another kind
            _LOG.warning("prompts can't be kept on disk, or read from it: %s", error, exc_info=bug)
        self._failing = True

    def _collect(self) -> None:
        if self._write is not None and self._write.done.is_set():
            self._write = None

    def _begin_fetch(self, key: PromptKey, tokens: Sequence[int], parent: Session | None) -> _Fetch | None:
        """Have the prompt looked up, unless that was done last, or memory holds nearly all of it."""
        if self._folder_of is None or key == self._fetched:
            return None
        held = self.memory.count_usable(tokens, key.owner)
        if key.length - held < _GAIN_TOKENS_MIN:
            return None
        self._end_fetch()
        room_bytes = min(self._bytes_max, self._spare_bytes) - self.memory.use_waiting(parent)
        self._fetch = fetch = _Fetch(key, held, max(0, room_bytes), self._clock(), parent)
        _start("prompts-reader", lambda: self._look_up(fetch), fetch.done)
        return fetch

    def _look_up(self, fetch: _Fetch) -> None:
        """Find the prompt's files and check them. Runs on the reader thread."""
        assert self._folder_of is not None
        folder = self._folder_of(fetch.key.owner)
        try:
            while fetch.segments is None and not fetch.cancelled.is_set():
                found = folder.find(fetch.key.tokens)
                found = found.shorten(found.tokens - found.tokens % self.memory.block_tokens)
                if found.nbytes > fetch.bytes_max:
                    found = found.shorten(found.tokens * fetch.bytes_max // found.nbytes)
                if found.tokens - fetch.held < max(_GAIN_TOKENS_MIN, _GAIN_SHARE * found.tokens):
                    return
                fetch.found = found
                # A file that can't be used is gone or passed by afterwards, so that the next look finds less.
                fetch.segments = folder.open(found, fetch.key.tokens, cancelled=fetch.cancelled.is_set)
        except Cancelled:
            return
        except OSError as error:
            self._complain(error)

    def _restore(self, fetch: _Fetch) -> bool:
        """Copy some of the prompt into MLX, and put it into memory once it is complete; return whether more is left."""
        if fetch.segments is not None:
            left_bytes = self._spare_bytes - self._count_written() - fetch.found.nbytes
            self.memory.shrink(max(0, min(self._bytes_max, left_bytes)))
            try:
                if fetch.restoring is None:
                    fetch.restoring = Restoring(fetch.segments, fetch.found.parts)
                if not fetch.restoring.advance(_PIECE_BYTES):
                    return True
            except Damaged as error:
                assert self._folder_of is not None
                self._folder_of(fetch.key.owner).discard(fetch.found, error)
            except Exception as error:  # no fault of the prompt, nor of the files: it is computed
                self._complain(error)
            else:
                self._keep_restored(fetch, fetch.restoring.cache)
        self._end_fetch()
        return False

    def _keep_restored(self, fetch: _Fetch, cache: Any) -> None:
        count = fetch.found.tokens
        tokens = memoryview(fetch.key.tokens).cast("I")[:count]
        key = self.memory.put(tokens, cache, PromptReuse(owner=fetch.key.owner, parent=fetch.parent))
        if key is not None:
            mark = self._marks.setdefault(key, _Mark())
            mark.tokens = max(mark.tokens, count)

    def _end_fetch(self) -> None:
        if self._fetch is not None:
            self._fetch.cancelled.set()
            self._fetched, self._fetch = self._fetch.key, None


def _start(name: str, do: Callable[[], None], done: threading.Event) -> None:
    """Do something on a thread that the process doesn't wait for; `done` is set behind it, however it ends."""

    def run() -> None:
        try:
            do()
        except Exception:  # a bug: the prompt is computed
            _LOG.exception("%s failed", name)
        finally:
            done.set()

    threading.Thread(target=run, name=name, daemon=True).start()
