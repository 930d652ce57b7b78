"""The folder of stored prompts: as much as can be found, never anything else, bounded, and shared by who is there.

A token's keys here are made of the tokens up to it, so that any mix-up shows.
"""

import itertools
import logging
import os
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deployments.tiers.mlx.prompt_cache import segment_folder
from deployments.tiers.mlx.prompt_cache.segment_file import PART, Tensor
from deployments.tiers.mlx.prompt_cache.segment_folder import FoundSegments, SegmentFolder, _count_bytes
from deployments.tiers.packed_tokens import pack

FORM, ANY_BYTES = '{"layers": ["KVCache"]}', 1 << 40
TOKEN_BYTES = 8
few = st.lists(st.integers(0, 1), max_size=7)  # few tokens, so that rows begin alike often


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_folder, "TOKENS_MIN", 1)
    monkeypatch.setattr(segment_folder, "_SPACING_TOKENS", 2)
    monkeypatch.setattr(segment_folder, "_FREE_MIN_BYTES", 0)


def never() -> bool:
    return False


def compute(tokens: Sequence[int]) -> Any:
    sums = [zlib.crc32(pack(tokens[: i + 1])) for i in range(len(tokens))]
    return np.array([[[s, s ^ 1] for s in sums]], np.uint32).reshape(1, 1, len(tokens), 2)


def save(folder: SegmentFolder, tokens: Sequence[int], cuts: Sequence[int] | None = (), key: str = "") -> int:
    keys = compute(tokens)

    def stretch(begin: int, end: int) -> list[Tensor]:
        return [Tensor("0.keys", "U32", keys[..., begin:end, :] if cuts is not None else keys)]

    return folder.save(pack(tokens), FORM, stretch, token_bytes=TOKEN_BYTES, cuts=cuts, cancelled=never)


def load(folder: SegmentFolder, tokens: Sequence[int], found: FoundSegments | None = None) -> list[Any] | None:
    found = folder.find(pack(tokens)) if found is None else found
    segments = folder.open(found, pack(tokens), cancelled=never)
    if segments is None:
        return None
    pieces = [
        segment.arrays["0.keys"][..., part.begin - segment.head.start : part.end - segment.head.start, :]
        for segment, part in zip(segments, found.parts, strict=True)
    ]
    return list(np.concatenate(pieces, axis=2).ravel()) if pieces else []


def common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return len(list(pairs))


def make(root: Path, key: str = "a" * 64, **options: Any) -> SegmentFolder:
    return SegmentFolder(root, key, **{"bytes_max": ANY_BYTES, **options})


@pytest.fixture
def folder(tmp_path: Path) -> SegmentFolder:
    return make(tmp_path)


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.safetensors"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(few, st.lists(st.integers(1, 6), max_size=2)), max_size=6), few)
def test_the_longest_beginning_is_found(tmp_path_factory, saved, wanted):
    """Law: what is found of a prompt is the longest beginning that it shares with anything saved, by whomever, and
    what is read is what those tokens' keys are."""
    root = tmp_path_factory.mktemp("root")
    for tokens, cuts in saved:
        save(make(root), tokens, cuts)
    found = make(root).find(pack(wanted))
    assert found.tokens == max((common(tokens, wanted) for tokens, _ in saved), default=0)
    assert load(make(root), wanted) == list(compute(wanted[: found.tokens]).ravel())
    for length in range(found.tokens + 1):
        assert load(make(root), wanted, found.shorten(length)) == list(compute(wanted[:length]).ravel())


@settings(max_examples=100, deadline=None)
@given(st.lists(few, max_size=6), few)
def test_what_cannot_be_cut_serves_what_goes_on(tmp_path_factory, saved, wanted):
    """Law: a cache that can't be cut is found where the prompt goes on behind all of it."""
    folder = make(tmp_path_factory.mktemp("root"))
    for tokens in saved:
        save(folder, tokens, None)
    most = max((len(tokens) for tokens in saved if tokens == wanted[: len(tokens)]), default=0)
    assert folder.find(pack(wanted)).tokens == most
    assert load(folder, wanted) == list(compute(wanted[:most]).ravel())


def test_a_turn_writes_its_own_tokens(folder: SegmentFolder, tmp_path: Path) -> None:
    """Law: of what goes on behind something stored only the new tokens are written; of what is stored, nothing."""
    save(folder, [1, 2, 3, 4])
    save(folder, [1, 2, 3, 4, 5, 6])
    save(folder, [1, 2, 3, 9])
    assert [path.name.split("-")[:2] for path in files(tmp_path)] == [["s0", "4"], ["s3", "4"], ["s4", "6"]]
    before = [path.stat().st_ino for path in files(tmp_path)]
    assert save(folder, [1, 2, 3, 4, 5]) == 0
    assert save(folder, [1, 2, 3, 4, 5, 6]) == 0
    assert [path.stat().st_ino for path in files(tmp_path)] == before


def test_a_prompt_is_cut_where_others_leave_it(tmp_path: Path) -> None:
    """Law: a new file begins at each cut, unless the files would be too short."""
    save(make(tmp_path), list(range(10)), [1, 4, 5, 9])
    assert {path.name.split("-")[0] for path in files(tmp_path)} == {"s0", "s4"} | {"s9"}


def disguise(path: Path, tokens: Sequence[int], start: int = 0) -> Path:
    names = segment_folder.hash_beginnings(pack(tokens), [start, len(tokens)])
    lies = path.with_name(f"s{start}-{len(tokens)}-{names[start]}-{names[len(tokens)]}.safetensors")
    return path.rename(lies)


def flip(path: Path) -> Path:
    raw = bytearray(path.read_bytes())
    raw[-8] ^= 1
    path.write_bytes(raw)
    return path


BAD = {
    "a changed byte": flip,
    "a cut": lambda path: (os.truncate(path, path.stat().st_size - 1), path)[1],
    "nothing in it": lambda path: (os.truncate(path, 0), path)[1],
    "another prompt's": lambda path: disguise(path, [1, 2, 4]),
    "a name of nobody's": lambda path: path.rename(path.with_name("notes.safetensors")),
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_file_is_noticed_and_removed(how, folder, tmp_path, caplog):
    """Law: a damaged or foreign file is never used; it goes, with one line in the log, and others stay."""
    save(folder, [1, 2, 3])
    (path,) = files(tmp_path)
    save(folder, [7, 7])
    bad = BAD[how](path)
    wanted = [1, 2, 4] if how == "another prompt's" else [1, 2, 3, 4]
    with caplog.at_level(logging.WARNING):
        assert not load(folder, wanted)
        assert not load(folder, wanted)
    assert not bad.exists()
    assert load(folder, [7, 7]) == list(compute([7, 7]).ravel())
    assert len(caplog.records) == 1
    assert bad.name in caplog.text


def test_another_models_file_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Law: a file that was put into another model's folder isn't used there."""
    save(make(tmp_path), [1, 2, 3])
    (path,) = files(tmp_path)
    other = make(tmp_path, "b" * 64)
    save(other, [9])
    path.rename(tmp_path / ("b" * 32) / path.name)
    with caplog.at_level(logging.WARNING):
        assert load(other, [1, 2, 3]) is None
    assert "another model's" in caplog.text
    assert load(other, [1, 2, 3]) == []


def test_files_that_go_meanwhile_are_a_miss(folder, tmp_path, caplog):
    """Law: what another process has removed since it was found is not there, which is nothing to speak of."""
    save(folder, [1, 2, 3])
    found = folder.find(pack([1, 2, 3]))
    files(tmp_path)[0].unlink()
    assert load(folder, [1, 2, 3], found) is None
    assert load(folder, [1, 2, 3]) == []
    assert not caplog.records


def test_the_folders_are_the_users_alone(tmp_path: Path) -> None:
    """Law: root and folder have mode 0700, also where they were there before."""
    root = tmp_path / "prompts"
    root.mkdir(mode=0o755)
    save(make(root), [1, 2])
    assert [folder.stat().st_mode & 0o777 for folder in (root, root / ("a" * 32))] == [0o700, 0o700]


def test_the_oldest_goes_first_and_use_counts(folder: SegmentFolder, tmp_path: Path) -> None:
    """Law: beyond `bytes_max` goes what was used longest ago; to be found and read is to be used."""
    for row in ([1, 1], [2, 2], [3, 3]):
        save(folder, row)
    for age, path in enumerate(files(tmp_path)):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100 - age))
    assert load(folder, [1, 1])
    size = max(path.stat().st_size for path in files(tmp_path))
    make(tmp_path, bytes_max=2 * size).sweep(room_bytes=size)
    assert [bool(load(folder, row)) for row in ([1, 1], [2, 2], [3, 3])] == [True, False, False]


def test_the_end_of_a_prompt_goes_before_its_beginning(folder: SegmentFolder, tmp_path: Path) -> None:
    """Law: of files that were used together the one that others need goes last."""
    save(folder, [1, 2, 3, 4])
    save(folder, [1, 2, 3, 4, 5, 6])
    assert load(folder, [1, 2, 3, 4, 5, 6, 7])
    make(tmp_path, bytes_max=_count_bytes(tmp_path) - 1).sweep()
    assert folder.find(pack([1, 2, 3, 4, 5, 6])).tokens == 4


def test_what_is_old_goes(folder, tmp_path, monkeypatch):
    """Law: what nobody has used for `_AGE_MAX_S` is removed; so is a model's folder that is empty then, and what a
    killed writer has left."""
    monkeypatch.setattr(segment_folder, "_AGE_MAX_S", 1000.0)
    save(folder, [1, 2])
    save(make(tmp_path, "b" * 64), [1, 2])
    (tmp_path / ("b" * 32) / f"{PART}x").write_bytes(b"half")
    for path in files(tmp_path):
        os.utime(path, (0, path.stat().st_mtime - 1001))
    assert load(folder, [1, 2])
    folder.sweep()
    assert [path.parent.name for path in files(tmp_path)] == ["a" * 32]
    assert not (tmp_path / ("b" * 32)).exists()


def test_what_is_larger_than_the_bound_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a prompt that could not stay isn't begun; neither where the disk would keep less than its reserve."""
    assert save(make(tmp_path, bytes_max=TOKEN_BYTES * 3), [1, 2, 3, 4]) == 0
    monkeypatch.setattr(segment_folder, "_FREE_MIN_BYTES", ANY_BYTES * 1000)
    assert save(make(tmp_path), [1, 2, 3]) == 0
    assert files(tmp_path) == []


def test_what_is_not_the_servers_is_left_alone(tmp_path: Path) -> None:
    """Law: below the root only the models' own folders are bounded: no other folder, and none that a link leads to."""
    root, models = tmp_path / "root", tmp_path / "models"
    save(make(root), [1, 2, 3])
    for folder in (root / "other", models):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")
        os.utime(folder / "model.safetensors", (0, 0))
    (root / "linked").symlink_to(models)
    (root / ("c" * 32)).symlink_to(models)
    make(root, bytes_max=1).sweep()
    assert [path.parent.name for path in files(root)] == ["c" * 32, "linked", "other"]
    assert _count_bytes(root) == 0


def test_a_folder_behind_a_link_is_not_written_to(tmp_path: Path) -> None:
    """Law: where a link stands in the place of a model's folder nothing is stored, for nobody would bound it."""
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    (root / ("a" * 32)).symlink_to(elsewhere)
    with pytest.raises(OSError, match="link"):
        save(make(root), [1, 2, 3])
    assert list(elsewhere.iterdir()) == []


def test_what_cannot_be_removed_is_said_once(folder, tmp_path, caplog):
    """Law: a file that is neither used nor removed is passed by from then on; what is good is still found."""
    save(folder, [1, 2, 3])
    save(folder, [1, 2, 3, 4, 5, 6])
    bad = next(path for path in files(tmp_path) if path.name.startswith("s3-"))
    bad.unlink()
    bad.mkdir()
    (bad.parent / "s0-9-ab-cd.safetensors").mkdir()
    with caplog.at_level(logging.WARNING):
        assert load(folder, [1, 2, 3, 4, 5, 6]) is None
        descriptors = len(os.listdir("/dev/fd"))
        for _ in range(3):
            assert load(folder, [1, 2, 3, 4, 5, 6]) == list(compute([1, 2, 3]).ravel())
    assert len(caplog.records) == 1
    assert len(os.listdir("/dev/fd")) == descriptors


def test_what_cannot_be_removed_keeps_nothing_else(folder: SegmentFolder, tmp_path: Path) -> None:
    """Law: the bounds hold for all files that can be removed, also where an older one can't."""
    save(folder, [1, 1])
    (path,) = files(tmp_path)
    (path.parent / "s0-9-ab-cd.safetensors").mkdir()
    os.utime(path.parent / "s0-9-ab-cd.safetensors", (0, 0))
    make(tmp_path, bytes_max=1).sweep()
    assert not path.exists()


def test_times_in_the_future_become_the_present(folder: SegmentFolder, tmp_path: Path) -> None:
    """Law: behind a clock that went back, what was used before is no younger than what is used now: it goes first, the
    oldest of it before the rest, and it grows old."""
    for row in ([1, 1], [2, 2]):
        save(folder, row)
    for number, row in enumerate(([1, 1], [2, 2])):
        ahead_s = time.time() + 1e6 + number
        os.utime(tmp_path / ("a" * 32) / folder.find(pack(row)).parts[0].file, (ahead_s, ahead_s))
    narrow = make(tmp_path, bytes_max=2 * max(path.stat().st_size for path in files(tmp_path)) + TOKEN_BYTES)
    for row, kept in (([3, 3], [False, True, True]), ([4, 4], [False, False, True])):
        save(narrow, row)
        assert [folder.find(pack(one)).tokens > 0 for one in ([1, 1], [2, 2], [3, 3])] == kept
    assert all(path.stat().st_mtime <= time.time() for path in files(tmp_path))


class Machine(RuleBasedStateMachine):
    """Two replicas of one model and one of another on one folder, in any order, while files vanish."""

    BYTES_MAX = 4_000  # some six files

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.root = Path(self.temporary.name) / "root"
        self.replicas = [make(self.root, key, bytes_max=self.BYTES_MAX) for key in ("a" * 64, "a" * 64, "b" * 64)]
        self.saved: list[set[tuple[int, ...]]] = [set(), set(), set()]

    def teardown(self) -> None:
        self.temporary.cleanup()

    @rule(who=st.integers(0, 2), tokens=few, cut=st.integers(1, 6))
    def save(self, who: int, tokens: list[int], cut: int) -> None:
        save(self.replicas[who], tokens, [cut])
        self.saved[who].add(tuple(tokens))
        self.saved[(1, 0, 2)[who]].add(tuple(tokens)) if who < 2 else None

    @rule(who=st.integers(0, 2), tokens=few)
    def load(self, who: int, tokens: list[int]) -> None:
        """What is read is right, and was saved by one of that model."""
        found = self.replicas[who].find(pack(tokens))
        assert load(self.replicas[who], tokens, found) == list(compute(tokens[: found.tokens]).ravel())
        assert found.tokens <= max((common(one, tokens) for one in self.saved[who]), default=0)

    @rule(which=st.integers(0, 100))
    def remove(self, which: int) -> None:
        there = files(self.root)
        if there:
            there[which % len(there)].unlink()

    @invariant()
    def bounded(self) -> None:
        assert _count_bytes(self.root) <= self.BYTES_MAX
        assert list(self.root.glob(f"*/{PART}*")) == []


TestMachine = Machine.TestCase
