"""Files that are written whole."""

import stat
from pathlib import Path

import pytest

from deployments.config.whole_file import read_bounded, write_whole


def test_a_file_is_written_whole_with_its_mode(tmp_path):
    """Nothing is left beside it; a text that can't be written leaves the old one, and no temporary file."""
    path = tmp_path / "x"
    path.write_text("old")
    write_whole(path, "two\r\nlines", 0o640)
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")

    assert path.read_bytes() == b"two\r\nlines"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_read_has_a_bound(tmp_path):
    """Law: what never ends is refused after the bound, and a file of that size is read; a folder is the system's
    error."""
    (tmp_path / "x").write_bytes(b"12345")

    assert read_bounded(tmp_path / "x", 5) == b"12345"
    for path in (tmp_path / "x", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is over 4 bytes"):
            read_bounded(path, 4)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)
