"""Completion: the real shells are asked what they would offer, at a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.__main__ import HELP, build_parser
from deployments.cli.completion.shell_completion import SHELLS, write_completion
from tests.support.shells import complete, need_shell

# Stands for the program when a script asks it: what `completion_values.py` writes.
PROGRAM = """#!/bin/sh
case "$1 $2 $3 $4 $5" in
  "completion bash --values tiers --line") printf 'fast\\nstandard\\n' ;;
  "completion zsh --values tiers --line") printf 'fast:ready\\nstandard:asleep\\n' ;;
  "completion fish --values tiers --line") printf 'fast\\tready\\nstandard\\tasleep\\n' ;;
  "completion "*" --values requests --line") printf 'ab-1\\nab-2\\ncd-3\\n' ;;
esac
echo "$6" > asked
"""
CASES = {
    "st": {"status"},
    "status --": {"--json", "--url", "--config", "--help"},
    "service status --": {"--yes", "--help"},
    "launch cod": {"codex"},
    "launch --config ser": {"serve.yaml"},
    "check ser": {"serve.yaml"},
    "completion f": {"fish"},
    "incidents --kind gr": {"grant_expired"},
    "incidents --tier ": {"fast", "standard"},
    "incidents --tier fast --kind gr": {"grant_expired"},
    "pull st": {"standard"},
    "why ab": {"ab-1", "ab-2"},
    "why c": {"cd-3"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody works: with a configuration, and the program on the path."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlx-stack-serve"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    (tmp_path / "serve.yaml").touch()
    return tmp_path


@pytest.mark.parametrize("line", CASES)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_what_can_stand_there(folder, shell, line):
    """Commands, options, what an option or an argument takes, and what a server has: that and nothing else."""
    need_shell(shell)
    script = write_completion(shell, build_parser())

    assert complete(shell, script, f"mlx-stack-serve {line}", folder) == CASES[line]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_offered(folder, shell):
    """At the first word all of them."""
    need_shell(shell)

    assert complete(shell, write_completion(shell, build_parser()), "mlx-stack-serve ", folder) == set(HELP)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_server_that_the_line_names_is_asked(folder, shell):
    """The script passes on the line as far as it is written."""
    need_shell(shell)
    complete(shell, write_completion(shell, build_parser()), "mlx-stack-serve why --url http://here:1 ab", folder)

    assert "--url http://here:1" in (folder / "asked").read_text()
