"""The ledger's files are their owner's alone."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.incarnations import Driver, ask, life, unpack


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the process would give away by itself."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_what_is_made_is_private(tmp_path):
    """The folder, the journal, and what SQLite puts beside it."""
    folder = tmp_path / "state" / "app"
    assert Driver(life(folder)).granted(ask())

    files = {path.name: mode(path) for path in folder.iterdir()}
    assert set(files) == {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"}
    assert set(files.values()) == {0o600}
    assert mode(folder) == 0o700


def test_what_was_left_open_is_closed(tmp_path):
    """A folder and files of ours, as an older version or a careless copy left them."""
    folder = unpack("one_actor", tmp_path)
    (folder / "sessions-0-of-2.sqlite").touch()
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    life(folder)

    assert mode(folder) == 0o700
    assert mode(folder / "ledger.sqlite") == 0o600


def test_a_folder_that_holds_other_things_stays_as_it_is(tmp_path, caplog):
    """It may be a home directory: the files of ours are private, its mode is its owner's, and one line says so."""
    (tmp_path / "notes.txt").write_text("mine")
    tmp_path.chmod(0o755)
    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        driver = Driver(life(tmp_path))
    assert driver.granted(ask())

    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "ledger.sqlite") == 0o600
    assert any("is open to others" in record.getMessage() for record in caplog.records)


def test_a_folder_that_others_can_write_into_is_refused(tmp_path):
    """Law: nobody else can put a journal in the place of ours. Where the folder holds nothing else, it is closed."""
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    life(folder)
    assert mode(folder) == 0o700
    folder.chmod(0o1777)  # shared, as /tmp is: it stays as it is
    with pytest.raises(PermissionError, match="others can write into"):
        life(folder)
    folder.chmod(0o700)

    (folder / "notes.txt").write_text("mine")
    for open_mode in (0o777, 0o1777, 0o770, 0o702):
        folder.chmod(open_mode)
        with pytest.raises(PermissionError, match=r"others can write into .*: chmod go-w it"):
            life(folder)
        assert mode(folder) == open_mode


@pytest.mark.parametrize("parent_mode", [0o1777, 0o755])
def test_a_shared_folder_above_is_an_ordinary_one(tmp_path, parent_mode):
    """As /tmp is, which belongs to the system and is sticky."""
    tmp_path.chmod(parent_mode)
    assert Driver(life(tmp_path / "state")).granted(ask())
    assert mode(tmp_path / "state") == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_of_another_user_is_refused(tmp_path, linked):
    """Law: its owner could read the journal, and put another one in its place."""
    folder = tmp_path / "state"
    if linked:
        (tmp_path / "mine").mkdir()
        folder.symlink_to(tmp_path / "mine")
    else:
        folder.mkdir(mode=0o700)
    os.chown(folder, 4001, 4001, follow_symlinks=False)

    with pytest.raises(PermissionError, match="belongs to user 4001"):
        life(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_a_journal_that_another_user_has_put_there_is_refused(tmp_path, kind):
    """Law: a file of another user is never written, nor is what a link of another user leads to."""
    journal, mine = tmp_path / "ledger.sqlite", tmp_path / "mine"
    if kind == "file":
        journal.touch()
    else:
        journal.symlink_to(mine)
    if kind == "link":
        mine.touch()
    os.chown(journal, 4001, 4001, follow_symlinks=False)

    with pytest.raises(PermissionError, match="belongs to user 4001"):
        life(tmp_path)
    assert mine.exists() is (kind == "link")
    assert kind == "dangling link" or journal.stat().st_size == 0
