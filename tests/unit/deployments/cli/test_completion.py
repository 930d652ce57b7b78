"""Completion: bash itself is asked what it would offer."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from deployments.__main__ import HELP, build_parser
from deployments.cli.completion import SHELLS, write_completion

ASK = """
COMP_WORDS=({words}); COMP_CWORD={at}
_mlx_stack_serve
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offer(*words: str) -> set[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in ("mlx-stack-serve", *words))
    script = write_completion("bash", build_parser()) + ASK.format(words=quoted, at=len(words))
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_every_command_is_offered():
    """At the first word all of them, and those that begin so."""
    assert offer("") == set(HELP)
    assert offer("st") == {"status"}


def test_options_and_choices_are_offered():
    """Of the command that stands there; what is for the program itself isn't shown."""
    assert {"--json", "--url", "--config"} <= offer("status", "--")
    assert offer("launch", "cod") == {"codex"}
    assert offer("completion", "fi") == {"fish"}
    assert "--checked" not in offer("serve", "--")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_can_read_its_own(shell):
    """Where it is on this machine it is asked; each command is in it anyway."""
    text = write_completion(shell, build_parser())
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=text, text=True, check=True)

    assert all(name in text for name in HELP)
