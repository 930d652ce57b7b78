"""Prompts kept in memory and on disk: what one process has computed the next one finds, within memory, and nothing of
whoever is not to be kept.

The caches are mlx-lm's own, with keys that are made of the tokens up to them, so that any mix-up shows.
"""

import logging
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import KVCache

from deployments.tiers.mlx.prompt_cache import prompt_cache, prompt_store, segment_folder
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptReuse
from deployments.tiers.mlx.prompt_cache.prompt_store import PromptStore
from deployments.tiers.mlx.prompt_cache.segment_file import read_head
from deployments.tiers.mlx.prompt_cache.segment_folder import SegmentFolder
from deployments.tiers.packed_tokens import WIDTH, pack
from tests.unit.deployments.tiers.mlx.prompt_cache.test_segment_folder import common

ANY_BYTES = 1 << 40
WIDE = 1024
TOKEN_BYTES = 2 * 4 * WIDE  # keys and values of one layer; a file's header is small beside it
PATIENCE_S = 60.0
few = st.lists(st.integers(0, 1), max_size=7)
LONG = list(range(8))


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a few tokens are worth a file and a look."""
    monkeypatch.setattr(segment_folder, "TOKENS_MIN", 1)
    monkeypatch.setattr(segment_folder, "_FREE_MIN_BYTES", 0)
    monkeypatch.setattr(prompt_store, "TOKENS_MIN", 1)
    monkeypatch.setattr(prompt_store, "_GAIN_TOKENS_MIN", 1)
    monkeypatch.setattr(prompt_store, "_GAIN_SHARE", 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make(root: Path | None, **options: Any) -> PromptStore:
    folder = None if root is None else SegmentFolder(root, "a" * 64, bytes_max=ANY_BYTES)
    return PromptStore(folder=folder, **{"bytes_max": ANY_BYTES, "clock": Clock(), **options})


def compute(tokens: Sequence[int]) -> list[KVCache]:
    sums = [zlib.crc32(pack(tokens[: i + 1])) % 10_007 for i in range(len(tokens))]
    rows = np.add.outer(np.array(sums, np.float32), np.arange(WIDE, dtype=np.float32))[None, None]
    cache = KVCache()
    cache.keys, cache.values, cache.offset = mx.array(rows), mx.array(-rows), len(tokens)
    mx.eval(cache.state)
    return [cache]


def read(cache: list[KVCache]) -> list[Any]:
    return [np.array(one).tolist() for one in cache[0].keys_and_values()]


def put(store: PromptStore, tokens: Sequence[int], owner: str = "", *, keep: bool = True) -> None:
    store.put(tokens, compute(tokens), PromptReuse(owner=owner, keep=keep))


def take(store: PromptStore, tokens: Sequence[int], owner: str = "") -> int:
    """How many tokens there are, fetched if need be. They are checked to be the right ones."""
    while store.fetch(tokens, PromptReuse(owner=owner), alone=True):
        pass
    cache, count = store.take(tokens, owner)
    assert cache is None or read(cache) == read(compute(tokens[:count]))
    return count


def list_stored(root: Path) -> list[bytes]:
    return [read_head(path).tokens for path in root.glob("*/*.safetensors")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "prompts"


@pytest.fixture
def long_root(root: Path) -> Path:
    """Where another process has left `LONG`."""
    store = make(root)
    put(store, LONG)
    store.close(PATIENCE_S)
    return root


def test_a_helper_s_prompt_from_disk_leaves_its_parent_s_in_memory(long_root: Path) -> None:
    """Law: of a helper's prompt as much is read from disk as fits next to that of the session that waits for it."""
    store = make(long_root, bytes_max=8 * TOKEN_BYTES)
    store.put(range(20, 24), compute(range(20, 24)), PromptReuse(session=("", "agent")))
    while store.fetch([*LONG, 9], PromptReuse(parent=("", "agent")), alone=True):
        pass

    assert store.take(range(20, 25))[1] == 4
    assert store.take([*LONG, 9])[1] in (3, 4)  # a file's head takes some bytes


KEYS = st.sampled_from(["", "a", "b"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(few, KEYS, st.booleans()), max_size=6), few, KEYS)
def test_the_next_process_finds_what_may_be_kept(puts, wanted, asker):
    """Law: after the end of a process another finds of any prompt the longest beginning that it shares with one of the
    same key that may be kept, less its last token. What may not is in no file, also where it goes on behind one that
    may, or the other way round; no two keys have a file in one folder."""
    with tempfile.TemporaryDirectory() as parent:
        root = Path(parent) / "prompts"
        store = make(root)
        for tokens, owner, keep in puts:
            put(store, tokens, owner, keep=keep)
        store.close(PATIENCE_S)
        kept = [(tokens, owner) for tokens, owner, keep in puts if keep and tokens]
        most = max((common(tokens, wanted) for tokens, owner in kept if owner == asker), default=0)
        assert take(make(root), wanted, asker) == max(0, min(most, len(wanted) - 1))
        assert len(list(root.glob("*/"))) <= len({owner for _, owner in kept})
        for path in root.glob("*/*.safetensors"):
            head = read_head(path)
            assert any(
                pack(tokens)[head.start * WIDTH :].startswith(head.tokens)
                and segment_folder.hash_beginnings(pack(tokens), [head.start]) == {head.start: head.before}
                for tokens, _ in kept
            )


def test_without_a_folder_nothing_is_looked_for(root: Path) -> None:
    """Law: where nothing goes to disk the store is what memory holds."""
    store = make(None)
    put(store, LONG)
    assert store.save(idle=True) is None
    assert not store.fetch([1, 2, 3], alone=True)
    store.close(PATIENCE_S)
    assert take(store, [*LONG, 9]) == len(LONG)


def finish(store: PromptStore) -> None:
    if store._write is not None:
        assert store._write.done.wait(PATIENCE_S)
    store._collect()


def save(store: PromptStore, *, idle: bool) -> None:
    store.save(idle=idle)
    finish(store)


def test_an_idle_engine_writes_after_a_moment(root: Path) -> None:
    """Law: nothing is written while the last use is fresh; then one entry after the other, the latest first, and then
    there is nothing to wake up for."""
    clock = Clock()
    store = make(root, clock=clock)
    put(store, [1, 1])
    clock.now_s += 0.5
    put(store, [2, 2])
    wait_s = store.save(idle=True)
    assert list_stored(root) == []
    clock.now_s += wait_s
    seen = []
    while store.save(idle=True) is not None:
        finish(store)
        seen.append(sorted(list_stored(root)))
    assert seen[0] == [pack([2, 2])]
    assert seen[-1] == sorted([pack([1, 1]), pack([2, 2])])
    assert store.save(idle=True) is None


def test_a_busy_engine_writes_what_has_waited_long(root: Path) -> None:
    """Law: between two steps nothing is written that is young; what has waited is, once."""
    clock = Clock()
    store = make(root, clock=clock)
    put(store, [1, 1])
    save(store, idle=False)
    assert list_stored(root) == []
    clock.now_s += 60.0
    put(store, [2, 2])
    for _ in range(2):
        save(store, idle=False)
    assert list_stored(root) == [pack([1, 1])]


def test_what_memory_evicts_is_found_on_disk(root: Path) -> None:
    """Law: an entry that goes because another needs its place is written, and found again by the same process."""
    bytes_max = 7 * TOKEN_BYTES // 2
    store = make(root, bytes_max=bytes_max)
    put(store, [1, 1, 1])
    put(store, [2, 2, 2])
    finish(store)
    assert list_stored(root) == [pack([1, 1, 1])]
    assert take(store, [1, 1, 1, 5]) == 3
    assert store.memory.nbytes <= bytes_max


class Slow(SegmentFolder):
    """A folder whose writer and reader stand still until they are let go."""

    def __init__(self, *inputs: Any, **options: Any) -> None:
        super().__init__(*inputs, **options)
        self.go, self.reached, self.outcome = threading.Event(), threading.Event(), ""

    def save(self, *inputs: Any, cancelled: Any, **options: Any) -> int:
        self.reached.set()
        assert self.go.wait(PATIENCE_S)
        self.outcome = "cancelled" if cancelled() else "written"
        return super().save(*inputs, cancelled=cancelled, **options)

    def find(self, tokens: bytes) -> Any:
        self.reached.set()
        assert self.go.wait(PATIENCE_S)
        return super().find(tokens)


@pytest.fixture
def slow(root: Path) -> Iterator[Slow]:
    made = Slow(root, "a" * 64, bytes_max=ANY_BYTES)
    yield made
    made.go.set()


def test_memory_that_is_needed_is_not_held_by_a_write(slow: Slow, root: Path) -> None:
    """Law: an entry that is being written when its memory is needed elsewhere is given up and nothing of it stays; one
    that fits beside what is needed is written."""
    for spare_bytes, outcome in ((3 * TOKEN_BYTES - 1, "cancelled"), (3 * TOKEN_BYTES, "written")):
        slow.go.clear()
        slow.reached.clear()
        clock = Clock()
        store = PromptStore(bytes_max=ANY_BYTES, folder=slow, clock=clock)
        put(store, [1, 1, 1])
        clock.now_s += 60.0
        store.save(idle=True)
        assert slow.reached.wait(PATIENCE_S)
        store.put([7], compute([7]))
        store.shrink(spare_bytes)
        assert store.memory.nbytes == 0
        slow.go.set()
        finish(store)
        assert slow.outcome == outcome
        assert list_stored(root) == ([] if outcome == "cancelled" else [pack([1, 1, 1])])


def test_decoding_does_not_wait_for_the_disk(slow: Slow, root: Path) -> None:
    """Law: while a prompt is looked for whoever else runs goes on; where it takes too long, it is computed."""
    clock = Clock()
    store = PromptStore(bytes_max=ANY_BYTES, folder=slow, clock=clock)
    assert store.fetch(LONG, alone=False)
    assert slow.reached.wait(PATIENCE_S)
    assert store.fetch(LONG, alone=False)
    clock.now_s += 60.0
    assert not store.fetch(LONG, alone=False)
    assert store.take(LONG) == (None, 0)


def test_a_prompt_that_nobody_waits_for_is_dropped(long_root: Path) -> None:
    """Law: an idle engine holds nothing of a prompt whose client has left, and whoever asks again finds it."""
    store = make(long_root)
    assert store.fetch([*LONG, 9], alone=False) in (True, False)
    store.save(idle=True)
    assert store._fetch is None
    assert take(store, [*LONG, 9]) == len(LONG)


def test_what_is_read_fits_into_memory(long_root: Path) -> None:
    """Law: of a prompt on disk so much is read as memory may hold, and what is there gives way to it."""
    limit_bytes = 5 * TOKEN_BYTES
    for store in (make(long_root, bytes_max=limit_bytes), make(long_root)):
        store.shrink(limit_bytes)
        put(store, [9, 9])
        count = take(store, [*LONG, 9])
        assert 3 <= count <= 5
        assert store.memory.nbytes <= limit_bytes


def test_memory_is_asked_first(long_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: the disk isn't asked where memory holds nearly all, nor read where it has little more."""
    monkeypatch.setattr(prompt_store, "_GAIN_TOKENS_MIN", 3)
    store, other = make(long_root), make(long_root)
    put(store, LONG[:6])
    assert not store.fetch([*LONG, 9], alone=True)
    put(other, LONG[:4])
    assert take(other, [*LONG, 9]) == len(LONG)


def test_a_disk_that_refuses_harms_nobody(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Law: where nothing can be written, that is said once, and memory serves as before."""
    root.write_text("a file where the folder should be")
    clock = Clock()
    store = make(root, clock=clock)
    with caplog.at_level(logging.WARNING):
        for row in ([1, 1], [2, 2]):
            put(store, row)
            clock.now_s += 60.0
            save(store, idle=True)
    assert take(store, [1, 1, 5]) == 2
    assert len(caplog.records) == 1


def test_the_end_waits_so_long_and_no_longer(slow: Slow, root: Path) -> None:
    """Law: a disk that stands still keeps nobody from ending."""
    store = PromptStore(bytes_max=ANY_BYTES, folder=slow)
    put(store, LONG)
    store.close(0.0)
    assert list_stored(root) == []


def test_shared_prompts_come_from_disk_in_blocks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: where keys share, one finds another's prompt behind a restart, by whole blocks."""
    monkeypatch.setattr(prompt_cache, "_BLOCK_TOKENS", 3)
    store = make(root, shared=True)
    put(store, LONG, "a")
    store.close(PATIENCE_S)

    assert take(make(root, shared=True), LONG, "b") == len(LONG) - len(LONG) % 3
