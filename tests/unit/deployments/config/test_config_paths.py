"""Which files a command reads, where none is given."""

from pathlib import Path

import pytest

from deployments.config.config_paths import BUILT_IN, _find_config, _find_flags, announce_flags
from tests.support.repository import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, and in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_empty_folder_has_the_built_in_files(folder):
    """Where there is nothing, what the package ships is used, and it is there."""
    assert _find_config(None) == BUILT_IN / "serve_config.yaml"
    assert _find_flags() == BUILT_IN / "serve.env"
    assert _find_config(None).is_file()
    assert _find_flags().is_file()


def test_files_of_this_folder_go_before(folder):
    """A person's own files are never passed over."""
    (folder / "serve_config.yaml").write_text("")
    (folder / "serve.env").write_text("")

    assert _find_config(None) == Path("serve_config.yaml")
    assert _find_flags() == Path("serve.env")


def test_a_link_that_leads_nowhere_is_a_file_of_this_folder(folder):
    """Who reads it says that it can't be read: another file in its place would be a surprise."""
    (folder / "serve_config.yaml").symlink_to("none.yaml")

    assert _find_config(None) == Path("serve_config.yaml")


def test_a_path_that_is_given_is_taken(folder):
    """It goes before the folder's own file, also where it doesn't exist: then that is the mistake."""
    (folder / "serve_config.yaml").write_text("")

    assert _find_config(Path("other.yaml")) == Path("other.yaml")


def test_flags_of_this_folder_are_announced(folder, capsys):
    """Law: a file of the working directory that was not named is said in one line, flags too; what the package ships
    needs no word."""
    assert announce_flags() == BUILT_IN / "serve.env"
    assert capsys.readouterr().err == ""
    (folder / "serve.env").write_text("")

    assert announce_flags() == Path("serve.env")
    assert capsys.readouterr().err == f"using serve.env of the working directory: {folder / 'serve.env'}\n"


def test_a_checkouts_own_flags_need_no_word(monkeypatch, capsys):
    """In a checkout of this project the built-in file and the working directory's are one: nothing to announce."""
    monkeypatch.chdir(ROOT)

    assert announce_flags() == Path("serve.env")
    assert capsys.readouterr().err == ""
