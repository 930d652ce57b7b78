"""Joining new words to a text that broke off."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reliability.answer.seam import ANCHOR_CHARS, Seam, find_anchor

WORDS = ["the", "pump", "valve", "opens", "slowly", "when", "pressure", "in", "line", "two", "falls", "below", "half"]
texts = st.lists(st.sampled_from([*WORDS, "\n\n", "1.", "—", "été"]), min_size=20, max_size=60).map(" ".join)
pieces = st.lists(st.integers(1, 30), min_size=1, max_size=80)
LEADS = ["", " ", "\n", "… ", "...", '"', "`"]


def joined(begun: str, said: str, sizes: list[int], *, trusted: bool) -> str | None:
    """What a client sees behind `begun`; None where the two don't join."""
    seam, out, at, number = Seam(begun, trusted=trusted), "", 0, 0
    while at < len(said):
        size = sizes[number % len(sizes)]
        out, at, number = out + seam.feed(said[at : at + size]), at + size, number + 1
    out += seam.finish()
    assert not (seam.torn and out), "words left of an answer that doesn't join"
    return None if seam.torn else out


@given(texts, st.floats(0.05, 0.95), pieces, st.sampled_from(LEADS), st.booleans())
def test_a_model_that_says_the_end_again_is_joined_to_the_letter(text, share, sizes, lead, trusted):
    """Law: with the asked-for words before the rest, whatever their lead, the whole is the whole: nothing twice,
    nothing missing."""
    cut = max(1, int(share * len(text)))
    begun, rest = text[:cut], text[cut:]
    anchor = find_anchor(begun)
    assume(anchor)  # white space alone never stands; a text that only repeats itself has none
    if trusted and (len(anchor) < ANCHOR_CHARS or begun.count(anchor) > 1):
        return  # so short an echo is taken for the text's own
    out = joined(begun, lead + anchor + begun[len(begun.rstrip()) :] + rest, sizes, trusted=trusted)

    assert begun + (out or "") == text


@given(texts, st.floats(0.1, 0.95), pieces, st.booleans())
def test_a_model_that_says_all_of_it_again_is_joined_too(text, share, sizes, trusted):
    """Law: what stands is the largest overlap there can be."""
    cut = max(2 * ANCHOR_CHARS, int(share * len(text)))
    anchor = find_anchor(text[:cut])
    assume(trusted or (anchor and not text.lstrip().startswith(anchor)))  # else it may have said only that
    out = joined(text[:cut], text, sizes, trusted=trusted)

    assert text[:cut] + (out or "") == text


@given(texts, st.floats(0.05, 0.95), pieces)
@example("ha " * 30, 0.5, [1])
def test_one_that_promises_to_go_on_at_once_is_believed(text, share, sizes):
    """Law: its words follow as they come, also where they repeat the last ones: a short repetition is the text's."""
    cut = max(1, int(share * len(text)))
    begun, rest = text[:cut], text[len(text[:cut].rstrip()) :]  # it is shown no white space at its end
    assume(begun.strip())
    heads = (rest, rest.lstrip(" \n….\"'`"))
    echo = any(begun.rstrip().endswith(head[:n]) for head in heads for n in range(ANCHOR_CHARS, len(head) + 1))
    assume(not echo and not rest.lstrip().startswith(begun.lstrip()[:ANCHOR_CHARS]))
    out = joined(begun, rest, sizes, trusted=True)

    assert begun + (out or "") == text


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "said",
    [
        "Sure! Here is the rest of my answer: opens slowly.",
        "I'm sorry, it seems that my message was cut off.",
        "Valves are devices that regulate the flow of a fluid.",
    ],
)
@given(sizes=pieces)
def test_an_answer_about_the_answer_is_not_joined_where_the_end_was_asked_for(said, sizes, trusted):
    """Law: without the words that were asked for nothing leaves; where going on at once is promised, nothing that
    speaks to its reader in the middle of a sentence."""
    begun = "A valve opens when the pressure in line two falls below half of its usual"
    out = joined(begun, said, sizes, trusted=trusted)

    assert out == (said if trusted and said.startswith("Valves") else None)


@given(
    pieces, st.sampled_from([("He said: “", "Sure! I will."), ("Ask. ", "Sorry, what?"), ("It is", " okay, I think.")])
)
def test_such_words_may_be_the_text_s_own(sizes, parts):
    """Law: where a sentence may begin, and in small letters, they are the rest as any words are."""
    begun, rest = parts

    assert joined(f"A long story about a valve. {begun}", rest, sizes, trusted=True) == rest.lstrip(
        " " * begun.endswith(" ")
    )


@given(texts, texts, pieces, st.booleans())
def test_a_second_beginning_never_stands_behind_the_first(text, other, sizes, trusted):
    """Law: an answer that begins as the first one did, and then goes elsewhere, isn't joined."""
    begun = f"{text} and"
    said = f"{text[:60]} xxx {other}"
    out = joined(begun, said, sizes, trusted=trusted)

    assert out is None


@given(st.text(min_size=1, max_size=600))
def test_an_anchor_is_the_end_of_the_text(text):
    """Law: and it is bounded, also where all of the text is one word or the same word."""
    anchor = find_anchor(text)

    assert text.rstrip().endswith(anchor)
    assert len(anchor) <= 400


def test_nothing_behind_the_anchor_is_the_end():
    """Law: a model that says the last words and stops has said all; silence doesn't say that it has understood."""
    begun = "one two three four five six seven eight nine ten"

    assert joined(begun, find_anchor(begun), [3], trusted=False) == ""
    assert joined(begun, "", [3], trusted=True) == ""
    assert joined(begun, "", [3], trusted=False) is None


@pytest.mark.parametrize("said", ["ok " * 40, "ok " * 9 + "and done"])
def test_a_text_that_only_repeats_itself_has_no_end_to_begin_with(said):
    """Law: where the last words have always stood before, nobody can tell where the new text goes on: it isn't joined
    on a guess; where they haven't, so many words are asked for that their place is certain."""
    assert find_anchor("ok " * 200) == ""
    assert joined("ok " * 200, said, [3], trusted=False) is None
    assert find_anchor("well, then " + "ok " * 14).startswith("well, then ok")
