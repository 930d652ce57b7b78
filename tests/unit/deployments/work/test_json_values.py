"""How many values a JSON text has, told from its bytes."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.work.json_values import has_more_values

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
    monkeypatch.setattr("deployments.work.json_values.PIECE_BYTES", piece)
    value = [{"a\\": '\\",["', "b": ["\\\\", '"', "x" * 30]}, "\\" * 9, [1, 2]] * 5
    raw = orjson.dumps(value)
    assert has_more_values(raw, _values(value) - 1)
    assert not has_more_values(raw, _values(value))
