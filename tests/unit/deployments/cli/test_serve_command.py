"""How `make serve` starts: nothing is started that others could reach around the API keys."""

import os
from pathlib import Path

import pytest

from deployments.cli import serve_command
from deployments.config.config_errors import ConfigError
from tests.support.repository import ROOT


@pytest.mark.parametrize("told", ["disabled", "DISABLED"])
def test_nothing_is_started_without_rays_token(monkeypatch, told):
    """The ports between replicas are open to other machines, and only the token keeps those out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RAY_AUTH_MODE", told)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it was started"))

    with pytest.raises(SystemExit, match="RAY_AUTH_MODE=disabled"):
        serve_command.serve(Path("serve_config.yaml"))


def test_the_token_is_asked_for_by_itself():
    """Whoever sets nothing gets it."""
    assert serve_command.environment(ROOT / "serve.env", {})["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_wrong_bound_ends_the_start_with_one_line(switch):
    """With HAProxy and without it: neither its script nor Ray's proxy is left to fail over it."""
    given = {"MLX_STACK_UNREAD_S": "soon", "RAY_SERVE_ENABLE_HA_PROXY": switch}

    with pytest.raises(ConfigError, match=r"^MLX_STACK_UNREAD_S: seconds are needed .*$"):
        serve_command.environment(ROOT / "serve.env", given)
