"""Where the journals are."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.config.app_config import StateConfig
from deployments.config.config_errors import ConfigError
from deployments.state.client import folder_of


def test_a_folder_is_named_or_the_users_own(tmp_path, monkeypatch):
    """`state.path` is the folder, also under a home directory; without it each app has one of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert folder_of("app", StateConfig(path="/var/lib/x")) == Path("/var/lib/x")
    assert folder_of("app", StateConfig(path="~/x")) == tmp_path / "x"
    assert folder_of("app", StateConfig()) == tmp_path / "state" / "mlx-stack-serve" / "app"


def test_a_home_that_is_not_known_is_one_line_that_names_the_key():
    """A folder under the home directory of nobody is a mistake in the configuration, and said as one."""
    with pytest.raises(ConfigError, match=r"^state\.path: its home directory isn't known"):
        folder_of("app", StateConfig(path="~nosuchuser/state"))
