"""Ray's dashboard on demand: which Ray it is for, and the command that becomes it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.dashboard import _build_command, _find_ray
from deployments.config.config_errors import ConfigError
from deployments.running.folder import RunFolder, base_folder

RAY = {"gcs_address": "127.0.0.1:1", "cluster_id": "ab", "node_ip_address": "127.0.0.1", "session_dir": "/t/ray/s"}


class Runs:
    """Servers of this user, by their records."""

    def __init__(self, folder: Path) -> None:
        self.environ = {"RAY_TMPDIR": str(folder)}
        self.held: list[int] = []

    def add(self, port: int, **known: Any) -> None:
        """One more that runs."""
        run = RunFolder.create(base_folder(self.environ), port)
        run.note(url=f"http://127.0.0.1:{port}", **known)
        self.held.append(run.hold())


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """None yet."""
    made = Runs(tmp_path)
    yield made
    for file in made.held:
        os.close(file)


def test_the_server_that_runs_here_is_found(runs: Runs) -> None:
    """Law: the only one without a word, one of several by its URL as clients have it."""
    runs.add(8000, ray=RAY)
    assert _find_ray(None, runs.environ) == RAY
    runs.add(8001, ray=RAY | {"gcs_address": "127.0.0.1:2"})
    assert _find_ray("http://127.0.0.1:8001/v1", runs.environ)["gcs_address"] == "127.0.0.1:2"
    with pytest.raises(ConfigError, match="You run 2 servers here"):
        _find_ray(None, runs.environ)


@pytest.mark.parametrize("ray", [None, "x", {}, RAY | {"cluster_id": 7}])
def test_without_a_ray_to_look_at_one_line_says_so(runs: Runs, ray: Any) -> None:
    """Law: no server, or one whose Ray isn't known yet, is an error of one line."""
    with pytest.raises(ConfigError, match="No server of yours runs here"):
        _find_ray(None, runs.environ)
    runs.add(8000, ray=ray)
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:8000 has not started"):
        _find_ray(None, runs.environ)


def test_it_listens_on_loopback_alone() -> None:
    """Law: Ray's own program, beside this Ray's files, on 127.0.0.1."""
    command = _build_command(RAY, 8265)
    assert Path(command[2]).is_file()
    assert "--host=127.0.0.1" in command
    assert {"--port=8265", "--gcs-address=127.0.0.1:1", "--log-dir=/t/ray/s/logs"} <= set(command)
