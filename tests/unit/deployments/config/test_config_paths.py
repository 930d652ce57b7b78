"""Which files a command reads, where none is given."""

import os
from pathlib import Path

import pytest

from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import BUILT_IN, announce_config, announce_flags
from tests.support.repository import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, and in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_empty_folder_has_the_built_in_files(folder, capsys):
    """Where there is nothing, what the package ships is used, and it is there. Flags need no word then."""
    assert announce_config(None) == BUILT_IN / "serve_config.yaml"
    assert announce_config(None).is_file()
    assert "using the built-in" in capsys.readouterr().err
    assert announce_flags() == BUILT_IN / "serve.env"
    assert announce_flags().is_file()
    assert capsys.readouterr().err == ""


def test_files_of_this_folder_go_before(folder, capsys):
    """Law: a person's own files are never passed over, and a file that was not named is said in one line. A link that
    leads nowhere is one too: who reads it says so."""
    (folder / "serve_config.yaml").symlink_to("none.yaml")
    (folder / "serve.env").write_text("")

    assert announce_config(None) == Path("serve_config.yaml")
    assert announce_flags() == Path("serve.env")
    said = [f"using {name} of the working directory: {folder / name}" for name in ("serve_config.yaml", "serve.env")]
    assert capsys.readouterr().err.splitlines() == said


@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "/dev/tty", "."])
def test_what_is_no_file_is_refused(folder, target):
    """Law: a repository that was cloned may hold a link to a device or a terminal: a command says that it is no file,
    and never waits for what comes out of it."""
    os.mkfifo(folder / "pipe")
    (folder / "serve_config.yaml").symlink_to(target)
    (folder / "serve.env").symlink_to(target)

    with pytest.raises(ConfigError, match=r"serve_config\.yaml: is no file"):
        announce_config(None)
    with pytest.raises(ConfigError, match=r"serve\.env: is no file"):
        announce_flags()


def test_a_path_that_is_given_is_taken(folder, capsys):
    """It goes before the folder's own file, also where it doesn't exist: then that is the mistake."""
    (folder / "serve_config.yaml").write_text("")

    assert announce_config(Path("other.yaml")) == Path("other.yaml")
    assert capsys.readouterr().err == ""


def test_a_checkouts_own_flags_need_no_word(monkeypatch, capsys):
    """In a checkout of this project the built-in file and the working directory's are one: nothing to announce."""
    monkeypatch.chdir(ROOT)

    assert announce_flags() == Path("serve.env")
    assert capsys.readouterr().err == ""
