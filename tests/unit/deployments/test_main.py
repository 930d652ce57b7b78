"""The command `mlx-stack-serve`: what it says of itself, and which configuration it takes."""

import importlib
import json
import os
import pwd
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deployments.__main__ import main
from deployments.cli.commands import cli
from deployments.config.config_paths import BUILT_IN
from tests.support.config_files import make_document
from tests.support.repository import ROOT

SCRIPTED = make_document()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, and in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_package_has_the_command():
    """What pyproject.toml installs as `mlx-stack-serve` is what `python -m deployments` runs."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, name = scripts["mlx-stack-serve"].partition(":")

    assert getattr(importlib.import_module(module), name) is main


def test_every_python_that_is_started_leaves_the_working_directory_out():
    """`python -m` puts it first in `sys.path`, so that a repository's own `deployments` or `json.py` would run."""
    sources = [*(ROOT / "deployments").rglob("*.py"), ROOT / "Makefile"]
    lines = [line for path in sources for line in path.read_text(encoding="utf-8").splitlines()]
    started = [line for line in lines if re.search(r'(executable|python), .*"-m"|BIN./python .*-m deployments', line)]

    assert len(started) > 10
    assert [line for line in started if not re.search(r'"-P", "-m"|python -P -m', line)] == []


def test_help_says_what_each_subcommand_does(capsys, monkeypatch):
    """One line each, on a terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()

    for name in cli.commands:
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 4
        assert line.endswith(".")
        assert not line.endswith("...")


@pytest.mark.parametrize("command", cli.commands)
def test_every_subcommand_has_help_of_its_own(capsys, command):
    """`mlx-stack-serve COMMAND --help` says what it does and what it takes."""
    assert main([command, "--help"]) == 0
    assert f"Usage: mlx-stack-serve {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["fly"],
        ["serve", "--fast"],
        ["service", "build"],
        ["launch"],
        ["logs", "-n", "501"],
        ["dashboard", "--port", "-1"],
    ],
)
def test_a_wrong_command_line_is_told_from_a_failed_check(capsys, words):
    """Exit code 2, and what is wrong on standard error."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, "Error: " in err) == ("", True)


def test_help_waits_for_no_import_of_the_server():
    """A Tab and a question to a server neither: what a command does is imported when it runs."""
    code = (
        "import sys, deployments.__main__; print({'ray', 'pydantic', 'httpx', 'psutil', 'yaml'} & sys.modules.keys())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert out.stdout == "set()\n"


def test_an_empty_folder_is_checked_by_the_built_in_configuration(folder, capsys):
    """The command says which file it uses, and the file is good."""
    assert main(["check"]) == 0

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(BUILT_IN / "serve_config.yaml") in said


@pytest.mark.parametrize("text", ["applications: 1", "a: ["])
def test_a_bad_configuration_of_ones_own_is_not_passed_over(folder, capsys, text):
    """A mistake in it is said; the built-in one is no way around it."""
    (folder / "serve_config.yaml").write_text(text)

    assert main(["check"]) == 2
    assert capsys.readouterr().err.splitlines()[1].startswith("serve_config.yaml: ")


def test_a_model_source_needs_no_configuration(folder, capsys):
    """`pull SOURCE` reads no configuration, so it names none."""
    assert main(["pull", "path:none"]) == 1
    assert "serve_config.yaml" not in capsys.readouterr().err


def test_whoever_has_seen_enough_of_a_script_sees_no_traceback():
    """As in `completion bash | head -1`."""
    command = [sys.executable, "-m", "deployments", "completion", "bash"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


@pytest.mark.parametrize("words", [["--help"], ["agents", "--url", "http://127.0.0.1:1"]])
def test_an_output_that_is_closed_is_no_fault_and_a_full_disk_is_one(words):
    """Law: `>&-` ends a command as `>/dev/null` does; an output that can't be written is a line and exit code 1."""
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "deployments", *words]
    closed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    full = subprocess.run(
        [*command[:2], command[2].replace(">&-", ">/dev/full"), *command[3:]],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert (closed.returncode, closed.stderr) == (0, b"")
    assert sys.platform != "linux" or (full.returncode, full.stderr.count(b"\n")) == (1, 1)


def test_a_terminal_of_another_encoding_is_no_fault():
    """What it has no sign for is replaced: a dash, or an arrow, ends no command."""
    code = "import sys; from deployments.__main__ import main; main(['check', 'x']); print('→')"
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, cwd=ROOT, capture_output=True, check=False)
    assert ended.stdout == b"?\n"


def test_a_user_without_a_home_reads_no_traceback(folder, monkeypatch, capsys):
    """Law: a number without a user and without HOME, as services and containers may have, is one whose home is the
    root; commands raised where they looked for the models and the state."""

    def find(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    (folder / "serve_config.yaml").write_text(json.dumps(SCRIPTED))
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", find)

    assert main(["models"]) == 0
    assert os.environ["HOME"] == "/"
    assert "in all" in capsys.readouterr().out
