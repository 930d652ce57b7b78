"""What a run has on disk goes with it, and nothing else does."""

from __future__ import annotations

import socket
from pathlib import Path

from deployments.running.folder import RunFolder
from loadtests.running import short_folder

DRIVER = 4711


def session_socket(base: Path, driver: int, *, day: int = 1) -> tuple[socket.socket, Path]:
    """A socket in a session of Ray's that this process has begun; its listener, and where it is."""
    path = base / "ray" / f"session_2026-01-0{day}_00-00-00_000000_{driver}" / "sockets" / "raylet"
    path.parent.mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener, path


def test_the_sockets_of_its_own_ray_go_with_the_run():
    """Those of the session that its driver has begun, though nobody was left to name it; not those of another process,
    nor of a session in which somebody still listens, whoever had that number before."""
    with short_folder() as base:
        run = RunFolder.create(base, 8000)
        run.note(ray_folder=str(base / "ray"), driver=DRIVER)
        dead, own = session_socket(base, DRIVER)
        living, heard = session_socket(base, DRIVER, day=2)
        stranger, other = session_socket(base, 14711)
        dead.close()
        stranger.close()
        with living:
            run.remove()

        assert not own.exists()
        assert heard.exists()
        assert other.exists()
        assert not run.path.exists()
