"""What a message says, and who said it."""

from __future__ import annotations

from reliability.loops.content import Who, classify_speaker, read_answer_text, text_of


def test_images_compare_by_content() -> None:
    """Equal pictures are equal results and other pictures are not, however long their data is."""
    one, two = ([{"type": "image_url", "image_url": {"url": "data:" + c * 50_000 + "x" * 9}}] for c in "ab")
    assert text_of(one) == text_of([dict(one[0])])
    assert text_of(one) != text_of(two)
    assert text_of(["a", {"type": "text", "text": "b"}]) == "a\nb"
    assert len(text_of([{"deep": [[{"url": "x" * 90_000}]]}])) < 100


def test_a_message_of_reminders_is_read_in_one_go():
    """Law: the same for what a harness adds, a quarter of a million times."""
    piece = "<system-reminder>x</system-reminder>\n"
    assert classify_speaker({"role": "user", "content": piece * 250_000}) is Who.NOBODY
    assert classify_speaker({"role": "user", "content": piece * 250_000 + "hello"}) is Who.SPEAKS


def test_a_refusal_is_what_an_answer_says():
    """Law: beside an empty content or as a part of it, a refusal is read as the answer's text."""
    for message in ({"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}):
        assert read_answer_text({"role": "assistant", **message}) == "No."
    assert text_of([{"type": "refusal", "refusal": "No."}]) == "No."
    assert read_answer_text({"role": "assistant", "content": "Yes.", "refusal": None}) == "Yes."
