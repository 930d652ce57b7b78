"""A stored response as bytes."""

from __future__ import annotations

import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses.stored_record import RECORD_BYTES_MAX, open_record, write_record

OBJECTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)


@given(st.lists(OBJECTS, max_size=3), OBJECTS)
def test_what_is_written_is_read_again(items, response):
    """Nothing changes on the way, and the size is that of what is opened."""
    size, record = write_record(orjson.dumps(items), orjson.dumps(response))

    assert open_record(record) == {"input": items, "response": response}
    assert size == len(zlib.decompress(record))


def test_a_record_has_a_bound():
    """One that would open to more than a record may hold is not opened."""
    _, record = write_record(b"[]", orjson.dumps({"x": "x" * (3 * RECORD_BYTES_MAX)}))

    with pytest.raises(ValueError, match="larger"):
        open_record(record)
