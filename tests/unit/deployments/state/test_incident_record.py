"""A record of an incident: bounded, whatever it is made of, and of known fields only."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.incident_evidence import EVIDENCE_BYTES_MAX
from deployments.state.incident_record import RECORD_BYTES_MAX, IncidentKind, record
from tests.support.run_values import AT_S, FIELDS, SLOW, long, values, words


@SLOW
@given(values, st.dictionaries(words | long, values, max_size=8))
def test_a_record_of_anything_is_bounded(value, evidence):
    """Whoever makes a record, and of whatever: it is JSON, and it fits."""
    one = record(
        IncidentKind.OPERATOR, at_s=AT_S, reason="isolate", evidence=evidence, model=value, session="\x00" * 9000
    )

    assert len(orjson.dumps(one)) <= RECORD_BYTES_MAX
    assert len(orjson.dumps(one["evidence"])) <= EVIDENCE_BYTES_MAX
    assert orjson.loads(orjson.dumps(one)) == one
    assert set(one) == FIELDS


def test_a_record_has_no_other_fields():
    """A misspelt fact is an error of the caller, not a new column."""
    with pytest.raises(TypeError, match="ttft_s"):
        record(IncidentKind.BREAKER, at_s=AT_S, reason="opened", ttft_s=1)
