"""What a service is made of: where things are, and no key."""

import sys
from pathlib import Path

import pytest

from deployments.cli.service import service_plan
from deployments.cli.service.service_plan import CARRIED, SECRET, list_uncarried, make_plan, read_environment_file
from deployments.config.config_errors import ConfigError
from deployments.graph.serve_file import read_file
from tests.support.config_files import write_config

HOSTED = {"kind": "hosted", "preset": "openrouter"}
OTHER = {"kind": "hosted", "base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": "OTHER_KEY"}


@pytest.fixture
def config(tmp_path) -> Path:
    """A configuration with two hosted tiers."""
    tiers, state = {"fast": OTHER, "premium": HOSTED}, {"path": str(tmp_path / "state")}
    return write_config(tmp_path / "serve_config.yaml", tiers, state=state)


def test_the_service_is_what_would_run_here(config, tmp_path, monkeypatch):
    """This Python, this folder, the configuration wherever it is named from; what says where things are goes along.
    What the server writes to is named from the root: a unit knows neither `~` nor the folder that a path was relative
    to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    environ = dict.fromkeys(CARRIED, "/x") | dict.fromkeys(SECRET, "secret") | {"OTHER_KEY": "secret", "HF_HOME": ""}
    plan = make_plan(Path("serve_config.yaml"), read_file(config), environ, home=tmp_path, folder=tmp_path)

    assert plan.command == (sys.executable, "-P", "-m", "deployments", "serve", str(config))
    assert plan.folder == tmp_path
    assert plan.environment == dict.fromkeys([name for name in CARRIED if name != "HF_HOME"], "/x")
    assert {tmp_path / "state", tmp_path / ".ray", Path("/tmp"), Path("/x")} <= set(plan.writable)
    assert "secret" not in repr(plan)
    environ = {"HF_HOME": "~/hub", "RAY_TMPDIR": "ray"}
    plan = make_plan(config, read_file(config), environ, home=tmp_path, folder=tmp_path)

    assert {tmp_path / "hub", tmp_path / "ray"} <= set(plan.writable)
    assert all(path.is_absolute() for path in plan.writable)


@pytest.mark.parametrize(
    ("name", "value", "said"), [("a", "/x\nExecStart=/y", "a character"), ("a\\", "", "an end"), ("a ", "", "an end")]
)
def test_a_name_that_a_line_can_t_hold_is_refused(config, tmp_path, name, value, said):
    """A line break would begin a line of its own in the service's file, a backslash at a folder's end joins the next
    line to it, and a space is no part of a value."""
    with pytest.raises(ConfigError, match=f"has {said} that a service's file can't hold"):
        make_plan(config, read_file(config), {"HF_HOME": value}, home=tmp_path, folder=tmp_path / name)


@pytest.mark.parametrize(("given", "folder"), [("/x", "/x"), ("", "/home/me/.config"), ("conf", "/home/me/.config")])
def test_the_keys_are_where_configuration_is(given, folder):
    """As the rule for XDG_CONFIG_HOME has it, a relative one is none: systemd would pass over a file named so."""
    found = service_plan.find_environment_file(Path("/home/me"), {"XDG_CONFIG_HOME": given})

    assert found == Path(folder) / "mlx-stack-serve" / "service.env"


def test_keys_that_only_the_shell_has_are_named(config, tmp_path):
    """The tiers' and the server's own, unless the service's file names them; never their values."""
    environ = dict.fromkeys(("OTHER_KEY", "OPENROUTER_API_KEY", "MLX_STACK_API_KEYS", "UNRELATED_KEY"), "secret")
    path = tmp_path / "service.env"
    before = list_uncarried(read_file(config), environ, path)
    path.write_text("# MLX_STACK_API_KEYS=\nOTHER_KEY=x\n")

    assert before == ["OTHER_KEY", "OPENROUTER_API_KEY", "MLX_STACK_API_KEYS"]
    assert list_uncarried(read_file(config), environ, path) == ["OPENROUTER_API_KEY", "MLX_STACK_API_KEYS"]
    assert list_uncarried(read_file(config), {}, path) == []


@pytest.mark.parametrize(("mode", "good"), [(0o600, True), (0o400, True), (0o640, False), (0o604, False)])
def test_a_file_with_keys_is_its_owners_alone(tmp_path, mode, good):
    """Group and others may not read it; no file is fine."""
    path = tmp_path / "service.env"
    read_environment_file(path, {})
    path.write_text("")
    path.chmod(mode)
    if good:
        read_environment_file(path, {})
    else:
        with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
            read_environment_file(path, {})


def test_the_file_fills_in_what_is_not_set(tmp_path):
    """What the environment holds goes before; comments and quotes are no part of a value. A line that is none is named,
    and not shown: it may be a key."""
    path = tmp_path / "service.env"
    path.write_text("# keys\n\nA=1\nB='two words'\nC=\"=x=\"\n")
    path.chmod(0o600)
    environ = {"A": "0"}
    read_environment_file(path, environ)

    assert environ == {"A": "0", "B": "two words", "C": "=x="}
    path.write_text("A=1\nsk-secret\n")
    with pytest.raises(ConfigError, match="line 2: NAME=VALUE is needed") as refused:
        read_environment_file(path, {})

    assert "sk-secret" not in str(refused.value)
