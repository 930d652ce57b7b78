"""Did a tool fail, and with which words?"""

from __future__ import annotations

import pytest

from reliability.loops import Result
from reliability.loops.comparison.errors import error_text, has_failed


@pytest.mark.parametrize(
    "text",
    [
        '{"error": "no such file"}',
        '{"error": {"code": 7}}',
        '{"exit_code": 2, "output": ""}',
        '{"exit_code": "127"}',
        '{"returncode": -9}',
        '{"is_error": true}',
        '{"success": false}',
        '{"status": "error", "message": "no"}',
        '{"output": "no", "metadata": {"exit_code": 1}}',
        "Error: no",
        "  ValueError: no",
        "requests.exceptions.Timeout: no\nhttplib.BadError: x",
        "Traceback (most recent call last):\n  File x\nKeyError: 1",
        "start\nTraceback (most recent call last):\n  File x\nboom",
        "bash: foo: command not found",
        "cat: x: No such file or directory",
        "[ERROR] no",
        "Process exited with code 3",
        '"Error: no"',
        "Unknown tool: foo",
    ],
)
def test_failures(text: str) -> None:
    """An error that says something, an exit code other than 0, and error markers at the edges of a text."""
    assert has_failed(Result(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"error": null, "output": "Error: none"}',
        '{"error": ""}',
        '{"error": false}',
        '{"exit_code": 0, "stderr": "warning: error-prone"}',
        '{"exit_code": "0"}',
        '{"exit_code": null}',
        '{"output": "", "metadata": {"exit_code": 0}}',
        '{"status": "failed", "job": 7}',
        '{"output": "Traceback (most recent call last):"}',
        '["Error: no"]',
        "",
        "ok",
        "0 errors",
        "fine\nERROR in the middle of a log\nfine",
        "exit code: 0",
        "errors: none",
    ],
)
def test_no_failures(text: str) -> None:
    """`error: null` is no failure, and the word "error" inside JSON or inside a text is content."""
    assert not has_failed(Result(text))


def test_a_flag_is_enough_and_the_unknown_is_nothing() -> None:
    """A result that is flagged as an error is one; an unknown result is none."""
    assert has_failed(Result("fine", error=True))
    assert not has_failed(None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Error: no ", "Error: no"),
        ('{"error": " no "}', "no"),
        ('{"error": {"message": "no", "code": 1}}', "no"),
        ('{"error": {"code": 1}}', '{"code":1}'),
        ('{"error": true, "message": "no"}', "no"),
        ('{"exit_code": 1, "stderr": "no"}', "no"),
        ('{"exit_code": 1, "output": "x"}', ""),
        ("[1]", "[1]"),
    ],
)
def test_what_a_failure_said(text: str, expected: str) -> None:
    """The words of a failure, and nothing where there is only a code."""
    assert error_text(Result(text)) == expected
