"""The ledger's files are their owner's alone."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state.lives import Driver, ask, life


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the process would give away by itself."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def live(folder: Path) -> None:
    """Lives of both layouts, so that every kind of file is there."""
    for layout in ("whole", "hub", "0-of-2", "1-of-2"):
        life(folder, layout)._journal.close()


def test_what_is_made_is_private(tmp_path):
    """The folder, the journals, what SQLite puts beside them and the list of layouts."""
    folder = tmp_path / "state" / "app"
    live(folder)
    assert Driver(life(folder)).granted(ask())

    files = {path.name: mode(path) for path in folder.iterdir()}
    assert {"ledger.sqlite", "layouts.db"} <= set(files)
    assert set(files.values()) == {0o600}
    assert mode(folder) == 0o700


def test_what_was_left_open_is_closed(tmp_path):
    """A folder and files of ours, as an older version or a careless copy left them."""
    folder = tmp_path / "state"
    live(folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    live(folder)

    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.iterdir() if path.suffix in (".sqlite", ".db")} == {0o600}


def test_a_folder_that_holds_other_things_stays_as_it_is(tmp_path, caplog):
    """It may be a home directory: the files of ours are private, its mode is its owner's, and one line says so."""
    (tmp_path / "notes.txt").write_text("mine")
    tmp_path.chmod(0o755)
    with caplog.at_level(logging.WARNING, logger="ray.serve"):
        driver = Driver(life(tmp_path))
    assert driver.granted(ask())

    assert mode(tmp_path) == 0o755
    assert mode(tmp_path / "ledger.sqlite") == mode(tmp_path / "layouts.db") == 0o600
    assert any("is open to others" in record.getMessage() for record in caplog.records)
