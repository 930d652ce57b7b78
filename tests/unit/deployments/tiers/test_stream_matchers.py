"""A call as JSON between two marks: read strictly, and kept as it is spelled."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.stream_matchers import CallFormat, CallSplit, strict_json_call
from reliability.types import CallDelta


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


FORM = CallFormat("<tool_call>", "</tool_call>", strict_json_call)
CITIES = st.lists(st.sampled_from(["Paris", "Rome", "Köln"]), min_size=1, max_size=6)


class TestDistinct:
    @given(CITIES, st.integers(1, 30))
    def test_a_call_that_was_there_already_ends_the_answer(self, cities: list[str], step: int) -> None:
        """Law: with `distinct` what leaves are the calls before the first one that comes again, however it is spaced
        and however the text is cut; without it all leave."""
        calls = [f'{{"name": "f", "arguments": {{{" " * i}"city": "{c}"}}}}' for i, c in enumerate(cities)]
        text = "\n".join(f"<tool_call>{call}</tool_call>" for call in calls)
        first = next((i for i, city in enumerate(cities) if city in cities[:i]), len(cities))
        for distinct, wanted in ((True, first), (False, len(cities))):
            split = CallSplit(FORM, distinct=distinct)
            events = [e for at in range(0, len(text), step) for e in split.feed(text[at : at + step])]
            events += split.finish(truncated=False)
            assert [event.arguments is not None for event in events if isinstance(event, CallDelta)] == [True] * wanted
            assert split.repeated == split.full == (distinct and first < len(cities))
