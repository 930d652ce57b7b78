"""Joining new words to a text that broke off."""

import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reliability.answer.seam import ANCHOR_CHARS, Seam, find_anchor
from reliability.answer.wrapping import Wrapping, read_wrapping
from tests.support.upstream_habits import ANCHORED, HABITS, OWN_WORDS, TEXTS, Asked

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
    return None if seam.torn else out


@given(texts, st.floats(0.05, 0.95), pieces, st.sampled_from(LEADS), st.booleans())
def test_a_model_that_says_the_end_again_is_joined_to_the_letter(text, share, sizes, lead, trusted):
    """Law: with the asked-for words before the rest, whatever their lead, the whole is the whole: nothing twice,
    nothing missing."""
    cut = max(1, int(share * len(text)))
    begun, rest = text[:cut], text[cut:]
    anchor = find_anchor(begun)
    assume(len(anchor) >= ANCHOR_CHARS)  # white space alone never stands; a text that only repeats itself has none
    out = joined(begun, lead + anchor + begun[len(begun.rstrip()) :] + rest, sizes, trusted=trusted)

    assert out is None or begun + out == text
    anew = rest.lstrip().startswith((anchor, begun.lstrip()[:ANCHOR_CHARS]))  # all of it once more looks the same
    if not trusted and not anew and begun[-1].isspace() and len(begun) > 2 * ANCHOR_CHARS:
        assert out is not None


@given(texts, st.floats(0.1, 0.95), pieces, st.booleans())
def test_a_model_that_says_all_of_it_again_is_joined_too(text, share, sizes, trusted):
    """Law: what stands is the largest overlap there can be."""
    cut = max(2 * ANCHOR_CHARS, int(share * len(text)))
    anchor = find_anchor(text[:cut])
    assume(anchor and not text.lstrip().startswith(anchor))  # else it may have said only that
    out = joined(text[:cut], text, sizes, trusted=trusted)
    assert out is None or text[:cut] + out == text


@given(texts, st.floats(0.05, 0.95), pieces)
@example("ha " * 30, 0.5, [1])
def test_one_that_promises_to_go_on_at_once_is_believed(text, share, sizes):
    """Law: its words follow as they come, also where they repeat the last ones: a short repetition is the text's. Not
    where they begin with all of the last line: that may be the line once more."""
    cut = max(1, int(share * len(text)))
    begun, rest = text[:cut], text[len(text[:cut].rstrip()) :]  # it is shown no white space at its end
    assume(begun.strip())
    heads = (rest, rest.lstrip(" \n….\"'`"))
    echo = any(begun.rstrip().endswith(head[:n]) for head in heads for n in range(ANCHOR_CHARS, len(head) + 1))
    end = begun.rstrip()
    again = any(rest.startswith(end[at:]) for at in range(1, len(end)) if end[at - 1] == "\n")
    assume(not echo and not again and not rest.lstrip().startswith(begun.lstrip()[:ANCHOR_CHARS]))
    out = joined(begun, rest, sizes, trusted=True)

    assert begun + (out or "") == text


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("said", [
    "Sure! Here is the rest of my answer: opens slowly.", "I'm sorry, it seems that my message was cut off.",
    "Valves are devices that regulate the flow of a fluid.",
])  # fmt: skip
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
    out = joined(f"A long story about a valve. {begun}", rest, sizes, trusted=True)
    assert out == rest.lstrip(" " * begun.endswith(" "))


@given(pieces, st.sampled_from(["<|im_end|>", "<|im_end|>\n", "<|im_end|>\n<|im_start|>user\nThanks.", "<|eot_id|>"]))
def test_the_end_of_the_turn_is_joined_as_it_came(sizes, said):
    """Law: an upstream that has nothing to add but the end of its turn says so; what stands there is for the judgement,
    and the words are whole."""
    begun = "A valve opens when the pressure falls."
    assert joined(begun, said, sizes, trusted=True) == said


@given(texts, texts, pieces, st.booleans())
def test_a_second_beginning_never_stands_behind_the_first(text, other, sizes, trusted):
    """Law: an answer that begins as the first one did, and then goes elsewhere, isn't joined."""
    assert joined(f"{text} and", f"{text[:60]} xxx {other}", sizes, trusted=trusted) is None


@given(st.text(min_size=1, max_size=600))
def test_an_anchor_is_the_end_of_the_text(text):
    """Law: and it is bounded, also where all of the text is one word or the same word."""
    anchor = find_anchor(text)
    assert text.rstrip().endswith(anchor)
    assert len(anchor) <= 400


ROW = "| pump | open | 3.5 bar | checked |\n"
COUNTED = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(("begun", "said", "trusted", "out"), [
    ("| a | b |\n" + ROW * 3, "\n" + ROW * 3, True, ROW * 3),
    ("As", "As requested, here is the rest of it.", False, None),
    (COUNTED, find_anchor(COUNTED), False, ""), (COUNTED, "", True, ""), (COUNTED, "", False, None),
])  # fmt: skip
def test_words_are_joined_where_their_place_is_certain(begun, said, trusted, out):
    """Law: an echo counts only where it stands once: three of six equal rows stand, three follow. A beginning of one or
    two words may as well open an answer about it. A model that says the last words and stops has said all; silence
    doesn't say that it has understood."""
    assert joined(begun, said, [4], trusted=trusted) == out


@pytest.mark.parametrize("said", ["ok " * 40, "ok " * 9 + "and done"])
def test_a_text_that_only_repeats_itself_has_no_end_to_begin_with(said):
    """Law: where the last words have always stood before, nobody can tell where the new text goes on: it isn't joined
    on a guess; where they haven't, so many words are asked for that their place is certain."""
    assert find_anchor("ok " * 200) == ""
    assert joined("ok " * 200, said, [3], trusted=False) is None
    assert find_anchor("well, then " + "ok " * 14).startswith("well, then ok")


def cuts(text: str) -> list[int]:
    """Where the text may break off: everywhere, in steps that meet each place within a row."""
    return [at for at in range(1, len(text)) if text[:at].strip()][:: max(1, len(text) // 25)]


@pytest.mark.parametrize(
    ("habit", "trusted"),
    [(habit, trusted) for trusted in (True, False) for habit in (*HABITS, *([] if trusted else ANCHORED))],
)
def test_whatever_an_upstream_does_the_whole_is_the_whole_or_there_is_an_error(habit, trusted):
    """Law: no word and no row twice, none missing, and no mark around it: for each habit, each text and each cut."""
    for name, text in TEXTS.items():
        for cut in cuts(text):
            begun = text[:cut]
            end = begun.rstrip()
            asked = Asked(end, text[len(end) :], "" if trusted else find_anchor(begun))
            if not trusted and not asked.anchor:
                continue
            said = {**HABITS, **ANCHORED}[habit](asked)
            outs = {joined(begun, said, sizes, trusted=trusted) for sizes in ([2], [len(said) + 1])}

            assert len(outs) == 1, (name, begun, said, outs)
            out = outs.pop()
            assert out is None or (begun + out).rstrip() in (text.rstrip(), begun.rstrip()), (name, begun, said, out)


@pytest.mark.parametrize("again", ["val", "the val", "you open the val"])
def test_a_word_begun_anew_within_the_word_is_not_joined(again):
    """Law: behind the anchor too, the end said again makes a word that is none: `the valthe valve`."""
    begun, rest = "First you wait a moment, and then you open the val", "ve on the left."
    assert joined(begun, find_anchor(begun) + again + rest, [3], trusted=False) is None
    assert joined(begun, find_anchor(begun) + rest, [3], trusted=False) == rest


@pytest.mark.parametrize("habit", OWN_WORDS)
def test_the_words_of_an_upstream_that_is_trusted_leave_as_they_are_or_not_at_all(habit):
    """Law: where it promises to continue at once, nothing of what it writes is lost or said twice by the seam."""
    for text in TEXTS.values():
        for cut in cuts(text):
            begun = text[:cut]
            end = begun.rstrip()
            said = OWN_WORDS[habit](Asked(end, text[len(end) :], ""))
            outs = {joined(begun, said, sizes, trusted=True) for sizes in ([1], [len(said) + 1])}

            assert len(outs) == 1, (begun, said, outs)
            out = outs.pop()
            assert out is None or out.strip() in (said.strip(), text[cut:].strip()), (begun, said, out)


@pytest.mark.parametrize(
    "text", ["prose", "equal rows", "CSV", "refrain", "equal code", "fenced code", "quotes", "nested"]
)
@pytest.mark.parametrize("trusted", [True, False])
def test_an_upstream_that_keeps_its_promise_is_joined(text, trusted):
    """Law: nearly all cuts join, but for the first words that an anchor is too short behind: refusing all of them would
    be safe and of no use."""
    text, shares = TEXTS[text], []
    for begun in (text[:cut] for cut in cuts(text)):
        said = ("" if trusted else find_anchor(begun)) + text[len(begun.rstrip()) :]
        shares.append(joined(begun, said, [4], trusted=trusted) is not None)

    assert sum(shares) / len(shares) >= (0.85 if trusted else 0.7), sum(shares) / len(shares)


@pytest.mark.parametrize(("said", "out"), [
    ('"{anchor}"sor shows', "sor shows"), ("...{anchor}...sor shows", "sor shows"), ("{anchor}\n\nsor shows", None),
    ("{anchor}{anchor}sor shows", None), ("```\n{anchor}sor shows\n```", "sor shows"),
    ('"{anchor}sor shows"', "sor shows"),
])  # fmt: skip
def test_what_stands_around_the_words_that_were_asked_for_is_taken_off(said, out):
    """Law: within a word only its letters follow; the closing mark of what was opened goes; else nothing is joined."""
    begun = "The pressure in line two is read by the sen"
    assert joined(begun, said.format(anchor=find_anchor(begun)), [3], trusted=False) == out


@pytest.mark.parametrize("opening", ["Let me", "Let's", "Here is", "It seems", "Thanks, I", "I can't"])
@pytest.mark.parametrize("chunk", [1, 5, 1_000])
def test_a_short_sentence_that_opens_as_a_remark_does_is_the_texts_own(opening, chunk):
    """Law: a model that says such a sentence again to the letter goes on with it; not where it is not over yet, or
    where it is about a text."""
    begun = f"{opening} check it."
    assert joined(begun, f"{begun} The valve is open.", [chunk], trusted=False) == " The valve is open."
    assert joined(begun[:-1], f"{begun[:-1]} and go on.", [chunk], trusted=False) is None
    told = f"{opening} continue."
    assert joined(told, f"{told} The valve is open.", [chunk], trusted=False) is None


@pytest.mark.parametrize("dots", ["…", "..."])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_dots_that_may_be_the_texts_own_tear(dots, chunk):
    """Law: a model that opens its words with dots may have closed them, or gone on with the text's own; between words
    nobody can tell, so nothing is joined. Dots that it opens alone go."""
    begun = "We waited for the pump, and then, as nobody came"
    said = f"{dots}{find_anchor(begun)}"
    assert joined(begun, f"{said}{dots} the valve was closed.", [chunk], trusted=False) is None
    assert joined(begun, f"{said} the valve was closed.", [chunk], trusted=False) == " the valve was closed."


FENCE = "```"


@pytest.mark.parametrize(
    ("said", "opened"),
    [('"rest', '"'), ("…rest", "…"), ("```text\nrest", "```text"), ("```\n“rest", "```\n“"), ("rest", "")],
)
def test_the_marks_at_the_beginning_are_read(said, opened):
    """Law: the text behind the marks, and the marks."""
    assert read_wrapping(said) == ("rest", opened)


@given(st.text(alphabet="ab \n`\"'.", max_size=40), st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_without_a_wrapping_all_of_it_leaves(text, sizes):
    """Law: nothing but one fence too many at the very end is held back, however the text is cut."""
    wrapping, out, at, number = Wrapping("begun", ""), "", 0, 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        out, at, number = out + wrapping.feed(text[at : at + size]), at + size, number + 1
    out += wrapping.finish()

    assert text.startswith(out)
    assert text[len(out) :].strip() in ("", FENCE)
    assert out == text or text.count(FENCE) % 2 == 1


@pytest.mark.parametrize(
    ("begun", "said", "out", "torn"),
    [("begun", 'rest"', "rest", False), ('He said "a" and', ' rest"', " rest", True), ("begun", "rest", "rest", False)],
)
def test_a_closing_quotation_mark_that_may_be_the_text_s_own_tears(begun, said, out, torn):
    """Law: the last mark goes where only the wrapping has such marks."""
    wrapping = Wrapping(begun, '"')
    assert wrapping.feed(said) + wrapping.finish() == out
    assert wrapping.torn is torn


def test_a_fence_of_the_text_s_own_stays():
    """Law: fences come in pairs: the one that closes a block of the text is no wrapping."""
    wrapping = Wrapping(f"{FENCE}python\nx = 1", f"{FENCE}python")
    assert wrapping.feed(f"\ny = 2\n{FENCE}\n") + wrapping.finish() == f"\ny = 2\n{FENCE}\n"


@pytest.mark.parametrize("piece", [" ", "\n", '"', "...", "<|start|>", "<|im_end|>"])
def test_what_waits_at_a_seam_is_not_looked_at_with_each_piece(piece):
    """Law: however much waits, and in however many pieces, looking at it costs linear time: again only where it has
    grown by a part of it."""
    seam, looks = Seam("The quick brown fox jumps over the lazy dog and then the", trusted=True), 0

    def count(frame, event, _):
        nonlocal looks
        looks += event == "call" and frame.f_code.co_name == "_decide"

    sys.setprofile(count)
    try:
        out = [seam.feed(piece) for _ in range(4_000)]
    finally:
        sys.setprofile(None)

    assert not any(out)
    assert not seam.joined
    assert 0 < looks < 200
