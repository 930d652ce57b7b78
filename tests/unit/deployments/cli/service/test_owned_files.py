"""A file is ours as long as nobody has touched it."""

import plistlib
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.service.owned_files import FileState, OwnedFile, look_at, read_mark, remove_file, sign, write_file

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"))
PATHS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(text=TEXTS, config=PATHS)
def test_a_signed_text_says_whose_it_is(text, config):
    """The mark names the configuration, whatever its path looks like; what is signed stays as it is behind the mark."""
    signed = sign(text, Path(config))

    assert read_mark(signed) is not None
    assert read_mark(signed)["config"] == str(Path(config))
    assert signed.endswith(text)


@given(text=TEXTS, at=st.integers(0), put=st.characters(exclude_categories=["Cs", "Cc"]))
def test_one_character_makes_it_somebody_elses(text, at, put):
    """A change anywhere behind the mark is seen."""
    signed = sign(text, Path("/x"))
    begin = signed.index("\n") + 1
    where = begin + at % (len(signed) - begin + 1)

    assert read_mark(signed[:where] + put + signed[where:]) is None


@given(st.text())
def test_what_we_havent_written_is_not_ours(text):
    """Any text at all."""
    assert read_mark(text) is None


@given(config=PATHS)
def test_the_mark_is_a_comment_in_xml(config):
    """A path with dashes doesn't end the comment, and the file is read as if there were none."""
    signed = sign(plistlib.dumps({"a": 1}).decode(), Path(f"/a--b-->{config}"), xml=True)

    assert plistlib.loads(signed.encode()) == {"a": 1}
    assert read_mark(signed)["config"] == str(Path(f"/a--b-->{config}"))


def test_a_file_is_written_whole_with_its_mode_and_removed(tmp_path):
    """Folders are made, nothing is left beside it, and it can be removed again."""
    path = tmp_path / "a" / "b"
    write_file(OwnedFile(path=path, text=sign("x\n", tmp_path), mode=0o600))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert look_at(path)[0] is FileState.OURS
    assert remove_file(path)
    assert look_at(path) == (FileState.ABSENT, "")
    assert remove_file(path)


@pytest.mark.parametrize("kind", ["changed", "link", "folder", "bytes"])
def test_what_is_not_ours_stays(tmp_path, kind):
    """A text that was changed, a link to one of ours, a folder, bytes: none is removed."""
    path, ours = tmp_path / "x", tmp_path / "ours"
    ours.write_text(sign("x\n", tmp_path))
    if kind == "changed":
        path.write_text(sign("x\n", tmp_path) + "# mine\n")
    elif kind == "link":
        path.symlink_to(ours)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe")

    assert look_at(path)[0] is FileState.FOREIGN
    assert not remove_file(path)
    assert path.exists()
    assert ours.exists()


def test_a_text_that_cant_be_written_leaves_the_old_one(tmp_path):
    """And no temporary file."""
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_file(OwnedFile(path=path, text="\ud800", mode=0o600))

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
