"""What a run has on disk goes with it, and nothing else does."""

import os
import socket
import time
from pathlib import Path

import pytest

from deployments.config.config_errors import ConfigError
from deployments.running.folder import _SESSIONS_KEPT, RunFolder, base_folder, refuse_unfit
from loadtests.running import short_folder


def session_socket(base: Path, day: int) -> tuple[socket.socket, Path]:
    """A socket in a session of Ray's of that day, beside a log; its listener, and where it is."""
    path = base / "ray" / f"session_2026-01-{day:02}_00-00-00_000000_{day}" / "sockets" / "raylet"
    path.parent.mkdir(parents=True)
    (path.parents[1] / "logs").mkdir()
    (path.parents[1] / "logs" / "raylet.out").write_text("said")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener, path


def test_ended_sessions_of_ray_go_but_for_the_newest():
    """Of a session in which nobody listens any more the sockets go. The logs of the last ones stay to be read; older
    ones would fill the disk. One in which somebody listens stays whole, however old."""
    with short_folder() as base:
        run = RunFolder.create(base, 8000)
        living, heard = session_socket(base, 1)
        dead = []
        for day in range(2, _SESSIONS_KEPT + 5):
            listener, path = session_socket(base, day)
            listener.close()
            dead.append(path)
        with living:
            run.remove()

        assert heard.exists()
        assert [path.parents[1].exists() for path in dead] == [False] * 3 + [True] * _SESSIONS_KEPT
        assert all((path.parents[1] / "logs" / "raylet.out").exists() for path in dead[3:])
        assert not any(path.exists() for path in dead)
        assert not run.path.exists()


def test_a_link_in_place_of_a_session_leads_nowhere(tmp_path):
    """Nothing is removed through `session_latest`, nor through a link of that kind with a session's name."""
    kept = tmp_path / "elsewhere"
    (kept / "sockets").mkdir(parents=True)
    (tmp_path / "base" / "ray").mkdir(parents=True)
    for day in range(_SESSIONS_KEPT + 2):
        (tmp_path / "base" / "ray" / f"session_{day}").symlink_to(kept)
    RunFolder.create(tmp_path / "base", 8000).remove()

    assert (kept / "sockets").exists()


def test_the_folder_of_all_runs_is_ones_own(tmp_path):
    """Below RAY_TMPDIR, however open that is; the server's own processes find the same folder."""
    tmp_path.chmod(0o755)
    base = base_folder({"RAY_TMPDIR": str(tmp_path)})
    assert base == tmp_path / f"ms-{os.geteuid()}"
    assert base.stat().st_mode & 0o777 == 0o700
    assert base_folder({"RAY_TMPDIR": str(base)}) == base


@pytest.mark.parametrize(("haproxy", "longest"), [(True, 27), (False, 35)])
def test_a_folder_that_is_too_long_for_sockets_is_refused(haproxy, longest):
    """Before Ray or HAProxy fails with words that name no variable."""
    refuse_unfit(Path("/" + "x" * (longest - 1)), haproxy)
    with pytest.raises(ConfigError, match=rf"/x+ has {longest + 1} characters.*RAY_TMPDIR"):
        refuse_unfit(Path("/" + "x" * longest), haproxy)


@pytest.mark.parametrize("sign", " \t\"'#$\\")
def test_a_folder_that_haproxy_cannot_read_is_refused(sign):
    """A blank ends a word in HAProxy's configuration: the start failed after a minute, with its notices. Ray takes
    such a folder."""
    refuse_unfit(Path(f"/a{sign}b"), False)
    with pytest.raises(ConfigError, match=r"HAProxy.*RAY_TMPDIR"):
        refuse_unfit(Path(f"/a{sign}b"), True)


def test_a_long_run_s_files_look_used(tmp_path):
    """Law: after `refresh` nothing of the run looks untouched for three days, neither sockets nor the lock; and what a
    link points to elsewhere is left alone."""
    run = RunFolder.create(tmp_path / "ms-0", 8000)
    held = run.hold()
    run.note(url="x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    (run.path / "link").symlink_to(elsewhere)
    sockets = tmp_path / "ms-0" / "ray" / "session_x" / "sockets"
    sockets.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sockets / "raylet"))
        long_ago_s = time.time() - 4 * 86_400
        everything = [tmp_path / "ms-0", *(tmp_path / "ms-0").rglob("*"), elsewhere]
        for path in everything:
            os.utime(path, (long_ago_s, long_ago_s), follow_symlinks=False)
        run.refresh()
        ages_s = {path: time.time() - path.lstat().st_mtime for path in everything}
    os.close(held)

    assert ages_s.pop(elsewhere) > 3 * 86_400
    assert [path for path, age_s in ages_s.items() if age_s > 3600] == []
