"""A record of an incident: bounded, whatever it is made of, and of known fields only."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state import incident_record
from deployments.state.incident_record import IncidentKind, _to_plain_json, cut, fit_evidence, record
from tests.support.run_values import AT_S, FIELDS, SLOW, long, values, words


@SLOW
@given(values, st.dictionaries(words | long, values, max_size=8))
def test_a_record_of_anything_is_bounded(value, evidence):
    """Whoever makes a record, and of whatever: it is JSON, and it fits."""
    facts = {"evidence": evidence, "model": value, "session": "\x00" * 9000}
    one = record(IncidentKind.OPERATOR, at_s=AT_S, reason="isolate", **facts)

    assert len(orjson.dumps(one)) <= incident_record._RECORD_BYTES_MAX
    assert len(orjson.dumps(one["evidence"])) <= incident_record._EVIDENCE_BYTES_MAX
    assert orjson.loads(orjson.dumps(one)) == one
    assert set(one) == FIELDS


def test_a_record_has_no_other_fields():
    """A misspelt fact is an error of the caller, not a new column."""
    with pytest.raises(TypeError, match="ttft_s"):
        record(IncidentKind.BREAKER, at_s=AT_S, reason="opened", ttft_s=1)


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
    assert _to_plain_json(_to_plain_json(value)) == _to_plain_json(value)


def test_what_does_not_fit_is_left_out_with_a_mark():
    """The first entries are the ones that stay."""
    shown = fit_evidence({"a": 1, "b": "x" * 500, "c": None, "d": 2}, 100)

    assert shown == {"a": 1, "cut": True, "d": 2}
