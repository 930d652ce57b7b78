"""Ray's dashboard on demand: which Ray it is for, and the command that becomes it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.dashboard import _build_command, _find_ray
from deployments.config.config_errors import ConfigError
from deployments.running.folder import RunFolder, base_folder

RAY = {"gcs_address": "127.0.0.1:1", "cluster_id": "ab", "node_ip_address": "127.0.0.1", "session_dir": "/t/ray/s"}


@contextlib.contextmanager
def run_server(environ: Mapping[str, str], port: int, ray: Any) -> Iterator[None]:
    """One more server of this user, by its record."""
    run = RunFolder.create(base_folder(environ), port)
    run.note(url=f"http://127.0.0.1:{port}", ray=ray)
    held = run.hold()
    yield
    os.close(held)


def test_the_server_that_runs_here_is_found(tmp_path: Path) -> None:
    """Law: the only one without a word, one of several by its URL as clients have it."""
    environ = {"RAY_TMPDIR": str(tmp_path)}
    with run_server(environ, 8000, RAY):
        assert _find_ray(None, environ) == RAY
        with run_server(environ, 8001, RAY | {"gcs_address": "127.0.0.1:2"}):
            assert _find_ray("http://127.0.0.1:8001/v1", environ)["gcs_address"] == "127.0.0.1:2"
            with pytest.raises(ConfigError, match="You run 2 servers here"):
                _find_ray(None, environ)


@pytest.mark.parametrize("ray", [None, "x", {}, RAY | {"cluster_id": 7}])
def test_without_a_ray_to_look_at_one_line_says_so(tmp_path: Path, ray: Any) -> None:
    """Law: no server, or one whose Ray isn't known yet, is an error of one line."""
    environ = {"RAY_TMPDIR": str(tmp_path)}
    with pytest.raises(ConfigError, match="No server of yours runs here"):
        _find_ray(None, environ)
    with run_server(environ, 8000, ray), pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:8000 has not started"):
        _find_ray(None, environ)


def test_it_listens_on_loopback_alone() -> None:
    """Law: Ray's own program, beside this Ray's files, on 127.0.0.1."""
    command = _build_command(RAY, 8265)
    assert Path(command[2]).is_file()
    assert "--host=127.0.0.1" in command
    assert {"--port=8265", "--gcs-address=127.0.0.1:1", "--log-dir=/t/ray/s/logs"} <= set(command)
