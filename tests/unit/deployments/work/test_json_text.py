"""JSON to the letter, and how many values a text has, told from its bytes."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.work.json_text import _HALVES, has_more_values, join_arguments, read_json, write_json
from reliability.surrogates import join_all

texts = st.lists(st.sampled_from(["a", "é", "😀", "\ud83d", "\ude00", "\\", '"', "\n", "9" * 20]), max_size=6).map(
    "".join
)
numbers = st.integers() | st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def joined(value: Any) -> Any:
    try:
        return join_all(value)
    except ValueError:
        return None


@given(values, st.booleans())
def test_what_is_read_is_what_was_written(value: Any, escaped: bool) -> None:
    """Law: integers keep every digit, half characters are U+FFFD, all else stays as it was, however it is spelled."""
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    whole = joined(json.loads(text.decode("utf-8", "surrogatepass")))
    if whole is None and value is not None:
        with pytest.raises(ValueError, match="half characters"):
            read_json(text)
        return
    notes: list[str] = []
    assert repr(read_json(text, notes=notes)) == repr(whole)
    assert bool(notes) is (repr(whole) != repr(json.loads(text.decode("utf-8", "surrogatepass"))))
    assert set(notes) <= {_HALVES}
    assert repr(json.loads(write_json(value))) == repr(whole)


@pytest.mark.parametrize(
    "raw",
    [
        b"1e400",
        b'[1234567890123456789012345, 1e400, "\\ud83d"]',
        b'["\\ud83d", NaN]',
        b'["\\ud83d", -Infinity]',
        b'["\\ud83d"',
        b'["\\ud83d\n"]',
        b'["\\ud83d\xff"]',
        b'{"\\ud83d": 1, "\\ude00": 2}',
        b"1" * 4301,
        b"[-" + b"1" * 100_000 + b"]",
        b"\xef\xbb\xbf[1234567890123456789012345]",
    ],
)
def test_what_can_not_be_read_without_loss_is_refused(raw: bytes) -> None:
    """Law: what JSON doesn't know, a number that no reader holds and a key given twice are errors, also in a text that
    only the slower reader takes."""
    with pytest.raises(ValueError, match=r"\w"):
        read_json(raw)


def test_the_longest_integer_keeps_its_digits() -> None:
    """Law: an integer of 4,300 digits is read and written exactly."""
    for sign in ("", "-"):
        raw = f"[{sign}{'7' * 4300}]".encode()
        assert write_json(read_json(raw)) == raw


def test_a_deep_text_ends_in_an_error() -> None:
    """Law: nesting that no reader's stack holds is an error, and no crash."""
    with pytest.raises((ValueError, RecursionError)):
        read_json(b'["\\ud83d",' + b"[" * 100_000)
    with pytest.raises((ValueError, RecursionError)):
        read_json(b"[12345678901234567890123," * 100_000)


def test_what_upstreams_send_is_taken() -> None:
    """Law: halves stay for the next piece to complete, and NaN is read, where the caller says so."""
    assert read_json(b'["\\ud83d", NaN, 12345678901234567890123]', nan=True, halves=True)[::2] == [
        "\ud83d",
        12345678901234567890123,
    ]


def test_what_has_no_json_is_an_error() -> None:
    """Law: an object of no JSON type is an error, next to a long integer too; `default` translates it."""
    with pytest.raises(TypeError):
        write_json([2**70, {1, 2}])
    assert write_json([2**70, {1}], default=list) == b"[1180591620717411303424,[1]]"
    assert write_json({"b": 2**70, "a": 1}, option=orjson.OPT_SORT_KEYS) == b'{"a":1,"b":1180591620717411303424}'


def test_the_arguments_of_past_calls_are_made_whole() -> None:
    """Law: half characters in the JSON text of a past call are U+FFFD; other texts, and what is no JSON, stay to the
    letter."""

    def message(*arguments: Any) -> dict[str, Any]:
        return {
            "role": "assistant",
            "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": a}} for a in arguments],
        }

    kept = (
        message('{"a": "\\ud83d\\ude00", "n": 1.0}', "{", '{"a": "\\ud83d', None, {"a": 1}),
        {"role": "user", "content": "\\ud83d"},
    )
    assert join_arguments(kept) == (kept, ())
    long = '{"a\\udc00":"\\ud83d","n":12345678901234567890123}'
    assert join_arguments([message(long)]) == ((message('{"a�":"�","n":12345678901234567890123}'),), (_HALVES,))


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab",[{\\\\é'),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('k",[{\\\\'), inner, max_size=5),
    max_leaves=40,
)


def _values(value: object) -> int:
    """Commas and opening brackets, counted from the value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(inner) - 1) + sum(map(_values, inner))


@given(JSON)
def test_values_are_told_from_the_bytes(value: object):
    """Law: the count of the bytes is that of the value, whatever stands in its texts."""
    for raw in (orjson.dumps(value), json.dumps(value, indent=1).encode()):
        assert not has_more_values(raw, _values(value))
        assert not _values(value) or has_more_values(raw, _values(value) - 1)


@pytest.mark.parametrize("piece", [7, 8, 9, 64])
def test_values_are_told_however_the_pieces_are_cut(piece: int, monkeypatch: pytest.MonkeyPatch):
    """Law: a cut through an escape or a text changes nothing."""
    monkeypatch.setattr("deployments.work.json_text._PIECE_BYTES", piece)
    value = [{"a\\": '\\",["', "b": ["\\\\", '"', "x" * 30]}, "\\" * 9, [1, 2]] * 5
    raw = orjson.dumps(value)
    assert has_more_values(raw, _values(value) - 1)
    assert not has_more_values(raw, _values(value))
