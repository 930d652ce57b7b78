"""A program is asked, and has a bound."""

import sys

import pytest

from deployments.cli.service import init_system
from deployments.cli.service.init_system import Finished, ServiceFault, run_program


def test_what_it_prints_and_how_it_ends_come_back():
    """Both outputs, whatever bytes they are."""
    code = "import os, sys; os.write(1, b'a\\xff\\n'); os.write(2, b'b'); sys.exit(3)"

    assert run_program([sys.executable, "-c", code]) == Finished(3, "a\N{REPLACEMENT CHARACTER}\nb")


def test_one_that_isnt_there_is_named():
    """One line."""
    with pytest.raises(ServiceFault, match="no-such-program can't be run: No such file"):
        run_program(["no-such-program"])


def test_one_that_does_not_end_is_ended(monkeypatch):
    """And named."""
    monkeypatch.setattr(init_system, "ASK_S", 0.1)
    with pytest.raises(ServiceFault, match=r"has not ended within 0.1 s"):
        run_program([sys.executable, "-c", "import threading; threading.Event().wait()"])


@pytest.mark.parametrize(("out", "words"), [("", "exit code 1"), ("a\n  b\n", "a b"), ("x" * 999, "x" * 300)])
def test_its_words_are_one_line(out, words):
    """And not a long one."""
    assert Finished(1, out).words == words
