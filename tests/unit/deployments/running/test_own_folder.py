"""A folder that only this user can reach, or one clear error."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.app import build
from deployments.config.config_errors import ConfigError
from deployments.running import own_folder
from deployments.running.own_folder import make_own, refuse_strangers
from tests.support.config_files import make_document

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
NOBODY = 65534


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        make_own(folder)
    words = str(refused.value)
    assert words.startswith(f"{folder}: ")
    assert words.endswith("set RAY_TMPDIR to a folder of your own")
    assert "\n" not in words
    return words


def test_it_is_made_closed_whatever_the_mask(tmp_path):
    """Mode 0700 from its first moment on; a second start finds it."""
    before = os.umask(0)
    try:
        assert make_own(make_own(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")} == {0o700}


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o740, 0o755, 0o777, 0o1777, 0o702])
def test_any_bit_for_others_is_refused(tmp_path, mode):
    """To read, to write or to pass: for the group or for everybody."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f").chmod(mode)

    assert "other users can reach it" in refusal(tmp_path / "f")


def test_a_link_is_no_folder(tmp_path):
    """Not even to a folder of one's own: who made the link may change it."""
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "f").symlink_to(tmp_path / "own")
    (tmp_path / "g").write_text("")

    assert "symbolic link" in refusal(tmp_path / "f")
    assert "no folder" in refusal(tmp_path / "g")


@ROOT_ONLY
def test_what_another_user_has_made_before_is_refused(tmp_path):
    """In /tmp anyone can take the name first, whatever the mode; the owner of a folder above can rename what is in it,
    sticky or not."""
    own, above = make(tmp_path / "f", 0o700, NOBODY), make(tmp_path / "theirs", 0o1777, NOBODY)

    assert f"belongs to user {NOBODY}" in refusal(own)
    assert f"{above} above it belongs to user {NOBODY}" in refusal(above / "f")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o722])
def test_a_parent_in_which_others_may_rename_is_refused(tmp_path, mode):
    """However far above; with the sticky bit nobody can rename what isn't theirs."""
    parent = tmp_path / "open"
    (parent / "mine").mkdir(parents=True)
    parent.chmod(mode)
    assert f"other users can rename it in {parent}" in refusal(parent / "mine" / "f")
    parent.chmod(mode | stat.S_ISVTX)

    assert make_own(parent / "mine" / "f").is_dir()


def test_links_above_are_followed(tmp_path):
    """A link on the way counts as the folders that it leads through; macOS has /tmp as one."""
    (tmp_path / "open" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to("open/in")
    assert make_own(tmp_path / "link" / "f").is_dir()
    (tmp_path / "open").chmod(0o777)

    assert f"other users can rename it in {tmp_path / 'open'}" in refusal(tmp_path / "link" / "f")


def test_what_cannot_be_made_is_one_line(tmp_path):
    """A file in its way: the system's word for it, and what to do."""
    (tmp_path / "file").write_text("")

    assert "; set RAY_TMPDIR" in refusal(tmp_path / "file" / "f")


def make(path: Path, mode: int, user: int | None = None) -> Path:
    path.mkdir()
    path.chmod(mode)
    if user is not None:
        os.chown(path, user, user)
    return path


@pytest.mark.parametrize(
    ("above", "mode", "missing"),
    [(0o755, 0o755, False), (0o1777, 0o755, False), (0o1777, 0o775, True), (0o775, 0o775, False)],
)
def test_a_cache_that_no_stranger_could_have_made_is_used(tmp_path, above, mode, missing):
    """Law: others may read it, and the group may write: many systems give each user a group."""
    folder = make(tmp_path / "above", above) / "cache"
    if not missing:
        make(folder, mode)

    refuse_strangers(folder)
    refuse_strangers(folder / "models" / "name")


@pytest.mark.parametrize(("above", "mode"), [(0o777, 0o755), (0o755, 0o777), (0o1777, 0o777)])
def test_a_cache_that_everybody_may_write_is_refused(tmp_path, above, mode):
    """Law: native code is loaded from there. A link to it is as bad."""
    folder = make(make(tmp_path / "above", above) / "cache", mode)
    (tmp_path / "link").symlink_to(folder)

    for path in (folder, folder / "blas" / "name", tmp_path / "link"):
        with pytest.raises(OSError, match="everybody can write into"):
            refuse_strangers(path)


@ROOT_ONLY
def test_a_cache_that_another_user_was_first_to_make_is_refused(tmp_path):
    """Law: where anybody may make a folder, it must be this user's; where only this user or root can have put it, as
    what is mounted into a container, anybody may own it."""
    shared = make(tmp_path / "shared", 0o1777)
    make(shared / "cache", 0o755, NOBODY)
    (shared / "link").symlink_to(make(tmp_path / "own", 0o755))
    os.lchown(shared / "link", NOBODY, NOBODY)
    (tmp_path / "way").symlink_to(shared / "cache")

    for path in (shared / "cache", shared / "cache" / "blas", shared / "link", tmp_path / "way" / "blas"):
        with pytest.raises(OSError, match="user 65534 has made"):
            refuse_strangers(path)
    refuse_strangers(make(tmp_path / "mounted", 0o755, NOBODY))


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user of the machine can enter, as a home directory is on many systems."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_secret_that_another_user_may_know_is_found(reachable, mode):
    """Law: one that others could read, or replace by their own, is no secret; one behind a closed folder is."""
    secret = make(reachable / "folder", 0o755) / "secret"
    assert not own_folder._find_readers(secret)
    secret.write_text("x")
    secret.chmod(0o600)
    assert not own_folder._find_readers(secret)
    secret.chmod(mode)
    (reachable / "link").symlink_to(secret)

    assert own_folder._find_readers(secret)
    assert own_folder._find_readers(reachable / "link")
    secret.parent.chmod(0o700)
    assert not own_folder._find_readers(secret)


def test_serve_run_typed_by_hand_refuses_a_token_that_others_know(reachable, monkeypatch):
    """Law: who has Ray's token runs code in the server, however it was started; without one there is none to know."""
    secret = make(reachable / "folder", 0o755) / "secret"
    secret.write_text("x")
    secret.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(secret))
    args = make_document(state={})["applications"][0]["args"]
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    build(args)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ConfigError, match="other users can reach it"):
        build(args)


@ROOT_ONLY
def test_a_secret_that_another_user_has_made_is_found(reachable):
    """Law: in a shared folder anybody may be first to make it."""
    secret = make(reachable / "shared", 0o1777) / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    assert not own_folder._find_readers(secret)
    os.chown(secret, NOBODY, NOBODY)

    assert f"user {NOBODY} has made" in own_folder._find_readers(secret)
