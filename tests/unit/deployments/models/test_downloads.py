"""How far a fetch is: what is said while it runs, and to whom."""

import contextlib
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.cache_folder import is_being_made, make_once
from deployments.models.downloads import (
    _format_progress,
    check_disk,
    count_bytes,
    find_folder,
    read_progress,
    tell,
    watch,
)
from deployments.models.sources import ModelUnavailable


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_the_share_is_a_whole_number_up_to_a_hundred(done: int, total: int) -> None:
    """Law: never over 100 %, and 100 % only with everything there."""
    share = int(_format_progress(done, total).partition(" ")[0])
    assert 0 <= share <= 100
    assert (share == 100) is (done >= total)


def test_sizes_are_read_as_people_write_them() -> None:
    """Law: megabytes below a gigabyte, else one digit behind the point."""
    assert _format_progress(213_000_000, 491_400_064) == "43 % of 491 MB"
    assert _format_progress(0, 1_117_320_768) == "0 % of 1.1 GB"


def test_each_share_is_said_once_and_never_less_than_before() -> None:
    """Law: the words go up, whatever the counting sees meanwhile."""
    counts = iter([10, 10, 50, 20, 60])
    said: list[str] = []
    finished = threading.Event()

    def count() -> int:
        try:
            return next(counts)
        except StopIteration:
            finished.set()
            return 100

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deployments.models.downloads._EVERY_S", 0.001)
        with watch(count, 100, said.append):
            assert finished.wait(10)

    shares = [int(words.partition(" ")[0]) for words in said]
    assert shares[:3] == [10, 50, 60]
    assert shares == sorted(set(shares))


def test_only_a_running_fetch_counts_as_one(tmp_path: Path) -> None:
    """Law: words of a process that was killed are no progress; those of a failure say why; a question takes nothing."""
    seen = []

    def build(folder: Path) -> None:
        say("43 % of 491 MB")
        found = read_progress(tmp_path, "m")
        assert (found.running, found.words) == (True, "43 % of 491 MB")
        assert is_being_made(tmp_path / "models", "m")

    assert read_progress(tmp_path, "m") is None
    assert not find_folder(tmp_path, "m").exists()
    with contextlib.suppress(ModelUnavailable), tell(tmp_path, "m", seen.append) as say:
        make_once(tmp_path / "models", "m", build)
        assert seen == ["43 % of 491 MB"]
        assert read_progress(tmp_path, "m") is None
        raise ModelUnavailable("no network")
    found = read_progress(tmp_path, "m")
    assert (found.running, found.words) == (False, "no network")
    assert not is_being_made(tmp_path / "models", "m")


def test_bytes_are_counted_below(tmp_path: Path) -> None:
    """Law: all files that fit count, or the largest of them; a folder that isn't there has none."""
    (tmp_path / "a").mkdir()
    for name, size in (("x.part", 3), ("a/y.part", 5), ("a/z", 7)):
        (tmp_path / name).write_bytes(b"0" * size)
    assert count_bytes(tmp_path, "*.part") == 8
    assert count_bytes(tmp_path, "*.part", largest=True) == 5
    assert count_bytes(tmp_path / "nowhere", "*") == 0


def test_a_disk_that_is_too_small_is_said_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Law: what the disk can't hold isn't begun, with both figures and the way out; the folder need not be there."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check_disk("m", tmp_path / "absent", 1_000_000_000, variable="HF_HOME")
    with pytest.raises(ModelUnavailable, match=r"2.0 GB of disk are needed, 1.0 GB are free; make room") as caught:
        check_disk("m", tmp_path / "absent", 2_000_000_000, variable="HF_HOME")
    assert caught.value.again


def test_folders_come_and_go_while_bytes_are_counted(tmp_path: Path) -> None:
    """Law: what vanishes in the middle of a count counts nothing, and ends no count: pip removes the folders that it
    has unpacked in, at any moment."""
    (tmp_path / "x.part").write_bytes(b"000")
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            deep = tmp_path / "a" / "b" / "c"
            deep.mkdir(parents=True)
            shutil.rmtree(tmp_path / "a")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {count_bytes(tmp_path, "*.part") for _ in range(2000)} == {3}
    finally:
        ended.set()
        thread.join()
