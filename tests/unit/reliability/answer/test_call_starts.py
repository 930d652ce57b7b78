"""Where a call may begin; the laws of what is then held are in test_gate.py."""

from reliability.answer.call_starts import PARTIAL, find_call_start, prepare_names
from reliability.tools.format_row import Place


def test_words_know_no_empty_name() -> None:
    """An empty name declares nothing, and without names only the marks of turns and messages begin anything."""
    assert prepare_names(["", "a"]).names == ("a",)
    assert find_call_start(prepare_names([""]), "a(1) and {", 0, Place.LINE) == (10, Place.ANYWHERE, None)
    assert find_call_start(prepare_names([""]), "a(1) and <|im_e", 0, Place.LINE) == (9, Place.ANYWHERE, PARTIAL)
