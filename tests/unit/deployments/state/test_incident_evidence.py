"""How large what an incident shows may be, whatever it was made of."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.incident_evidence import cut, fit_evidence, to_plain_json
from tests.support.run_values import (
    long,
    values,
    words,
)


@given(words | long, st.integers(8, 300))
def test_a_cut_text_is_the_longest_beginning_that_fits(text, bytes_max):
    """It fits, it is a beginning, and a mark shows where something is missing."""
    shown = cut(text, bytes_max)
    size = len(orjson.dumps(shown)) - 2

    assert size <= bytes_max
    if not shown.endswith("…"):
        assert len(shown) == len(text) or "\ud800" <= max(text, default="") <= "\udfff"
    elif not any("\ud800" <= c <= "\udfff" for c in text):
        assert text.startswith(shown[:-1])
        assert size > bytes_max - 9


@given(values)
def test_plain_is_idempotent(value):
    """What is plain already stays as it is."""
    assert to_plain_json(to_plain_json(value)) == to_plain_json(value)


def test_what_does_not_fit_is_left_out_with_a_mark():
    """The first entries are the ones that stay."""
    shown = fit_evidence({"a": 1, "b": "x" * 500, "c": None, "d": 2}, 100)

    assert shown == {"a": 1, "cut": True, "d": 2}
