"""One spelling for every value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Memo, Turn, find_loop
from reliability.loops.comparison.findings import canonical, digest, dumps, error_text, has_failed, parse, summary
from tests.support.conversation import CONFIG
from tests.support.loop_histories import acting, asks, histories, law, steps


@pytest.mark.parametrize(("arguments", "expected"), [
    ("", "{}"), (" null ", "{}"), ('{"b": 1, "a": [1.0, 2.5]}', '{"a":[1,2.5],"b":1}'),
    ('{"a": "cafe\u0301"}', '{"a":"caf\u00e9"}'), (" not json ", "not json"), ('{"a": 1', '{"a": 1'),
    ("[" * 100_000, "[" * 100_000),
])  # fmt: skip
def test_arguments_have_one_spelling(arguments: str, expected: str) -> None:
    """Equal meaning, equal text; what can't be parsed is its own stripped text."""
    assert canonical(arguments) == expected


def test_ignored_arguments_are_ignored_at_the_top_only() -> None:
    """A metadata argument is left out, and a field of the same name further in is not."""
    ignored = frozenset({"note"})
    assert canonical('{"a": 1, "note": "x"}', ignored) == '{"a":1}'
    assert canonical('{"a": {"note": "x"}}', ignored) == '{"a":{"note":"x"}}'


def test_what_has_no_json_has_a_marker() -> None:
    """Values that JSON can't say, or that nest without end, still have a text."""
    endless: list[Any] = []
    endless.append(endless)
    assert dumps(endless) == "<list>"
    assert dumps({(1, 2): 3}) == "<dict>"
    assert digest("\ud800") == digest("\ud800")
    assert digest("a", "b") != digest("ab")


def test_a_summary_is_one_short_line() -> None:
    """A summary is cut at its bound and says so."""
    assert summary("a\n  b") == "a b"
    assert len(summary("x" * 10_000)) == 240
    assert summary("x" * 10_000).endswith("…")


@law
@given(histories, steps, st.integers(0, 6), st.lists(acting.map(asks), max_size=3))
def test_a_memo_changes_no_verdict(before: tuple[Turn, ...], lap: list[Turn], laps: int, others: list[Turn]) -> None:
    """Each tier's answer to one request is judged as it would be alone, whatever was judged before it."""
    turns, memo = (*before, *lap * laps), Memo()
    for answer in (asks(lap[0]), *others, None, asks(lap[-1]), asks(lap[0])):
        assert find_loop(turns, CONFIG, answer, memo) == find_loop(turns, CONFIG, answer)


def test_what_is_known_is_not_asked_again() -> None:
    """One question is answered once, whatever its answer is."""
    memo, asked = Memo(), []
    for key in ("a", ("a", 1), "a", ("a", 1)):
        assert memo.once(key, lambda: asked.append(1)) is None
    assert len(asked) == 2


@given(st.lists(st.integers(0, 20), max_size=40))
def test_a_text_is_read_as_without_a_memo(numbers: list[int]) -> None:
    """Also when more texts are read than are kept, in any order."""
    memo = Memo()
    for text in [f'{{"n": {number}' + "}" * (number % 3) for number in numbers]:
        assert memo.parse(text) == parse(text)


FAILURES = [
    '{"error": "no such file"}', '{"error": {"code": 7}}', '{"exit_code": 2, "output": ""}', '{"exit_code": "127"}',
    '{"returncode": -9}', '{"is_error": true}', '{"success": false}', '{"status": "error", "message": "no"}',
    '{"output": "no", "metadata": {"exit_code": 1}}', "Error: no", "  ValueError: no",
    "requests.exceptions.Timeout: no\nhttplib.BadError: x",
    "Traceback (most recent call last):\n  File x\nKeyError: 1",
    "start\nTraceback (most recent call last):\n  File x\nboom",
    "bash: foo: command not found", "cat: x: No such file or directory", "[ERROR] no", "Process exited with code 3",
    '"Error: no"', "Unknown tool: foo", "write_stdin failed: Unknown process id 1",
    "apply_patch verification failed: no match",
    "The tool execution failed with the following error:\n<error>\nno match\n</error>",
]  # fmt: skip
OTHERS = [
    '{"error": null, "output": "Error: none"}', '{"error": ""}', '{"error": false}',
    '{"exit_code": 0, "stderr": "warning: error-prone"}', '{"exit_code": "0"}', '{"exit_code": null}',
    '{"output": "", "metadata": {"exit_code": 0}}', '{"status": "failed", "job": 7}',
    '{"output": "Traceback (most recent call last):"}', '["Error: no"]', None, "", "ok", "0 errors",
    "fine\nERROR in the middle of a log\nfine", "exit code: 0", "errors: none", "Tests failed: 0",
]  # fmt: skip


@pytest.mark.parametrize(("text", "failed"), [(text, text in FAILURES) for text in FAILURES + OTHERS])
def test_failures(text: str | None, failed: bool) -> None:
    """An error that says something, an exit code other than 0, and error markers at the edges of a text. `error: null`
    is no failure, nor is an unknown result; "error" inside JSON or inside a text is content."""
    assert has_failed(text) is failed


@pytest.mark.parametrize(("text", "expected"), [
    ("Error: no ", "Error: no"), ('{"error": " no "}', "no"), ('{"error": {"message": "no", "code": 1}}', "no"),
    ('{"error": {"code": 1}}', '{"code":1}'), ('{"error": true, "message": "no"}', "no"),
    ('{"exit_code": 1, "stderr": "no"}', "no"), ('{"exit_code": 1, "output": "x"}', ""), ("[1]", "[1]"),
])  # fmt: skip
def test_what_a_failure_said(text: str, expected: str) -> None:
    """The words of a failure, and nothing where there is only a code."""
    assert error_text(text) == expected


@pytest.mark.parametrize("key", ["content", "detail", "details", "reason", "description", "msg", "errors"])
def test_a_failure_is_told_under_many_names(key: str) -> None:
    """Law: the words of a failure are read where MCP servers and web frameworks write them, also as a list of parts."""
    words = "Invalid arguments: the quantity is required"
    for told in (words, [{"type": "text", "text": words}]):
        assert words in error_text(dumps({"isError": True, key: told}))
