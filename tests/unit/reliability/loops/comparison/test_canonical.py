"""One spelling for every value."""

from __future__ import annotations

from typing import Any

import pytest

from reliability.loops.comparison.canonical import canonical, digest, dumps, summary


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "{}"),
        (" null ", "{}"),
        ('{"b": 1, "a": [1.0, 2.5]}', '{"a":[1,2.5],"b":1}'),
        ('{"a": "cafe\u0301"}', '{"a":"caf\u00e9"}'),
        (" not json ", "not json"),
        ('{"a": 1', '{"a": 1'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
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
