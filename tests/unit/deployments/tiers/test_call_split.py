"""A call as JSON between two marks: read strictly, and kept as it is spelled."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.call_split import strict_json_call


class TestCalls:
    def test_arguments_keep_their_spelling(self) -> None:
        """Law: numbers keep every digit and strings their escapes."""
        arguments = '{"n": 1.00, "big": 123456789012345678901234567890, "s": "\\u00e9"}'
        calls = strict_json_call(f'{{"arguments" : {arguments} , "name": "f"}}')
        assert calls == [("f", arguments)]

    @given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists), max_size=4))
    def test_every_object_survives(self, arguments: dict[str, object]) -> None:
        """Law: whatever the arguments are, they come out as they were written."""
        written = json.dumps(arguments)
        assert strict_json_call(json.dumps({"name": "f", "arguments": arguments})) == [("f", written)]
