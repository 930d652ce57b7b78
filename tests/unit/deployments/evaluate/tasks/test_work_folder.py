"""The throw-away folder: what is inside can be read and written, and nothing outside, by whatever path."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.evaluate.tasks.work_folder import FILE_BYTES_MAX, Refused, WorkFolder

SECRET = "a secret outside of the folder"


@pytest.fixture
def folder(tmp_path) -> WorkFolder:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (root / "src/b.py").write_text("x = 1\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    return WorkFolder(root)


def test_files_inside_are_read_and_written(folder):
    """By relative paths, however they are spelled."""
    assert folder.read("./src//b.py") == "x = 1\n"
    folder.write("src/b.py", "x = 22\n")
    folder.write("src/b.py", "y\n")
    assert folder.read("src/b.py") == "y\n"
    assert folder.list_files() == ["a.txt", "src/b.py"]


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "src/../../secret.txt", "/etc/passwd", "~/x", "link.txt", "out/secret.txt", "loop", "a\\..\\b"],
)
def test_who_wants_out_is_refused_and_counted(folder, path):
    """`..`, absolute paths and symbolic links, at any place of the path."""
    with pytest.raises(Refused):
        folder.read(path)
    with pytest.raises(Refused):
        folder.write(path, "x")

    assert folder.refusals == 2
    assert (folder.root.parent / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", ["", "none.txt", "src", "a.txt/b", "pipe", "x" * 500, "a\0b", "/".join("abcdefghij")])
def test_what_is_no_file_is_refused_in_words(folder, path):
    """Nothing hangs, and nothing raises anything else."""
    with pytest.raises(Refused):
        folder.read(path)


def test_nothing_is_made_and_nothing_grows_without_end(folder):
    """A new file is refused, and one that is too large."""
    with pytest.raises(Refused):
        folder.write("new.txt", "x")
    with pytest.raises(Refused):
        folder.write("a.txt", "x" * (FILE_BYTES_MAX + 1))

    assert folder.read("a.txt") == "inside"


parts = st.sampled_from(["..", ".", "", "src", "a.txt", "link.txt", "out", "secret.txt", "loop", "etc", "~", "b.py"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(parts, max_size=6), st.sampled_from(["", "/", "./", "//"]))
def test_no_path_leads_out(folder, names, head):
    """Whatever is put together, what is outside is never read."""
    try:
        text = folder.read(head + "/".join(names))
    except Refused:
        return
    assert text in ("inside", "x = 1\n")


def test_a_folder_that_became_a_link_meanwhile_is_refused(folder, tmp_path):
    """The path is walked by descriptors: who swaps a folder for a link gains nothing."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text(SECRET)
    (folder.root / "src").rename(tmp_path / "moved")
    Path(folder.root, "src").symlink_to(other)

    with pytest.raises(Refused):
        folder.read("src/b.py")
