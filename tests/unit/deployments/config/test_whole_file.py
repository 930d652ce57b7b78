"""Files that are written whole."""

import stat

import pytest

from deployments.config.whole_file import write_whole


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
