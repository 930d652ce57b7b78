"""Where in a text a call may begin, and which words before it belong to it."""

import pytest

from reliability.tools import extract_calls
from reliability.tools.extract.delimiter_search import SPOT, find_delimiter_at
from reliability.tools.format_row import Reader
from tests.support.extracting import BOX, CALL


def found(text):
    delimiters = (find_delimiter_at(text, spot.start(), 0) for spot in SPOT.finditer(text))
    first = next(filter(None, delimiters))
    return first.kind, first.start, first.held


@pytest.mark.parametrize("word", ["call", "to", "functions", "commentary to"])
def test_a_word_that_begins_no_call_hides_no_delimiter(word):
    """`call` may begin `call:`; right before a tag it is a word, and the tag begins the call."""
    text = f"I {word}<tool_call>{CALL}</tool_call>"
    assert found(text) == (Reader.ENVELOPE, text.index("<"), text.index("<"))
    assert [call.name for call in extract_calls(text, BOX).calls] == ["search"]


@pytest.mark.parametrize(
    ("words", "sign", "kind"),
    [
        ("call:search", '{query:<|"|>x<|"|>}', Reader.BRACES),
        ("to=functions.search ", '{"query": "x"}', Reader.CHANNEL),
        ("search", '[ARGS]{"query": "x"}', Reader.NAMED),
    ],
)
def test_a_word_within_a_sentence_has_left_already(words, sign, kind):
    """Where a sentence begins the call's text is taken away from its word on, within one from its first bracket on."""
    for before in ("", "So. ", "So:\n"):
        assert found(before + words + sign) == (kind, len(before), len(before))
    assert found("So " + words + sign) == (kind, 3, 3 + len(words))
