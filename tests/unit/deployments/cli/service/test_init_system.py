"""A program is asked, and has a bound."""

import sys

import pytest

from deployments.cli.service import init_system
from deployments.cli.service.init_system import Finished, ServiceFault, give_order, run_program


def test_what_it_prints_and_how_it_ends_come_back():
    """Both outputs, whatever bytes they are."""
    code = "import os, sys; os.write(1, b'a\\xff\\n'); os.write(2, b'b'); sys.exit(3)"

    assert run_program([sys.executable, "-c", code]) == Finished(3, "a\N{REPLACEMENT CHARACTER}\nb")


def test_one_that_isnt_there_or_does_not_end_has_failed_by_its_name(monkeypatch):
    """In one line; an order that fails so is a fault."""
    assert "no-such-program can't be run: No such file" in run_program(["no-such-program"]).words
    with pytest.raises(ServiceFault, match="`no-such-program x` failed: no-such-program can't be run"):
        give_order(run_program, "no-such-program", "x")
    monkeypatch.setattr(init_system, "ASK_S", 0.1)
    ended = run_program([sys.executable, "-c", "import threading; threading.Event().wait()"])
    assert ended.code
    assert "has not ended within 0.1 s" in ended.words


@pytest.mark.parametrize(("out", "words"), [("", "exit code 1"), ("a\n  b\n", "a b"), ("x" * 999, "x" * 300)])
def test_its_words_are_one_line(out, words):
    """And not a long one."""
    assert Finished(1, out).words == words
