"""A path may begin with the home of somebody who isn't known here."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.key import key_command
from deployments.config import ConfigError
from deployments.memory.sensors.scripted import ScriptedSensor
from deployments.models.adapter import adapter_at
from deployments.models.sources import ModelUnavailable, parse_source, resolve

NOBODY = "~nobody-of-that-name"


def test_a_model_and_an_adapter_say_that_there_is_no_such_folder():
    """The tier is unavailable with that reason, and nothing is raised that the tier doesn't expect."""
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        resolve(parse_source(f"path:{NOBODY}/model"), say=lambda words: None)
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        adapter_at(f"{NOBODY}/adapter")


def test_a_scripted_sensor_says_that_it_cannot_read():
    """The level is unknown, with the reason."""
    assert "No such file" in ScriptedSensor(f"{NOBODY}/pressure.txt").read(0).problem


def test_a_key_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One line, and no folder of that name is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        key_command("a", admin=False, local_only=False, file=Path(f"{NOBODY}/keys.yaml"))

    assert not list(tmp_path.iterdir())
