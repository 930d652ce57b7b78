"""Halves of surrogate pairs: joined where they meet, replaced where they don't."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reliability.surrogates import Halves, join_all, join_surrogates, may_hold_halves

texts = st.lists(st.sampled_from(["a", "é", "😀", "\ud83d", "\ude00"]), max_size=12).map("".join)


@given(texts)
def test_any_text_can_be_encoded(text: str) -> None:
    """Halves that meet are a character, others are U+FFFD, and all around them stays as it is."""
    joined = join_surrogates(text)
    assert joined.encode().decode() == joined
    assert joined == text.replace("\ud83d\ude00", "😀").replace("\ud83d", "\ufffd").replace("\ude00", "\ufffd")


@given(texts, st.lists(st.integers(0, 3), max_size=20))
def test_a_pair_survives_every_cut(text: str, sizes: list[int]) -> None:
    """In pieces leaves what would have left in one, whatever the cuts; each piece can be encoded."""
    halves, out, at = Halves(), [], 0
    for size in [*sizes, len(text)]:
        out.append(halves.take(text[at : at + size]))
        at += size
    out.append(halves.end())

    assert "".join(out) == join_surrogates(text)
    assert all(piece.encode().decode() == piece for piece in out)
    assert halves.end() == ""


@given(st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)))
def test_every_text_and_key_of_a_value_is_joined(value: Any) -> None:
    """A value in which all texts are whole is the same object; else each text and key in it is joined, or the value is
    refused where two keys would be one."""
    try:
        joined = join_all(value)
    except ValueError:
        assert "\\ud" in json.dumps(value)
        return
    assert json.dumps(joined, ensure_ascii=False).encode()
    assert (joined is value) is (joined == value)
    assert may_hold_halves(json.dumps(value)) or joined is value
