"""A log with a bound, and keys from a file that only their owner reads."""

from __future__ import annotations

import os

import pytest

from deployments.config import ConfigError
from deployments.service.agent_start import bound_output, read_environment_file


@pytest.mark.parametrize(("held", "turned"), [(8, False), (9, True)])
def test_a_log_that_is_too_large_becomes_the_older_part(tmp_path, held, turned):
    """Output goes to the new one; what was there is kept until the next turn."""
    log, older = tmp_path / "x.log", tmp_path / "x.log.1"
    log.write_bytes(b"a" * held)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        bound_output(log, bytes_max=8, outputs=(output,))
        os.write(output, b"new")
    finally:
        os.close(output)

    assert log.read_bytes() == (b"new" if turned else b"a" * held + b"new")
    assert older.exists() is turned


def test_a_log_that_cant_be_written_is_said_so(tmp_path):
    """One line, with the path."""
    with pytest.raises(ConfigError, match=r"none/x.log: can't be written"):
        bound_output(tmp_path / "none" / "x.log", outputs=())


def test_the_file_fills_in_what_is_not_set(tmp_path):
    """What the environment holds goes before; comments and quotes are no part of a value."""
    path = tmp_path / "service.env"
    path.write_text("# keys\n\nA=1\nB='two words'\nC=\"=x=\"\n")
    path.chmod(0o600)
    environ = {"A": "0"}
    read_environment_file(path, environ)

    assert environ == {"A": "0", "B": "two words", "C": "=x="}


def test_no_file_no_variables(tmp_path):
    """The service needs none."""
    environ: dict[str, str] = {}
    read_environment_file(tmp_path / "none", environ)

    assert environ == {}


def test_a_file_that_others_read_is_refused(tmp_path):
    """With the order that mends it."""
    path = tmp_path / "service.env"
    path.write_text("A=1")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others may read it: chmod 600"):
        read_environment_file(path, {})


def test_a_line_that_is_none_is_named_and_not_shown(tmp_path):
    """It may be a key."""
    path = tmp_path / "service.env"
    path.write_text("A=1\nsk-secret\n")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="line 2: NAME=VALUE is needed") as refused:
        read_environment_file(path, {})

    assert "sk-secret" not in str(refused.value)
