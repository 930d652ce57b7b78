"""The parts of messages."""

from __future__ import annotations

import base64

import pytest

from deployments.api.openai_responses.content_parts import read_answer, read_content, read_output
from deployments.errors import ApiError


def encode(text: str, media: str = "text/plain") -> str:
    return f"data:{media};base64,{base64.b64encode(text.encode()).decode()}"


def test_a_text_alone_is_a_string():
    """As most chat clients would send it."""
    assert read_content([{"type": "input_text", "text": "hi"}], "p") == read_content("hi", "p") == "hi"


def test_an_image_keeps_its_detail():
    """URL and detail stand together in a chat completion."""
    part = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}

    assert read_content([part], "p") == [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    ]


def test_a_file_of_text_is_its_text():
    """Its name stands before it."""
    part = {"type": "input_file", "filename": "a.txt", "file_data": encode("Grüße")}

    assert read_content([part], "p") == "a.txt:\nGrüße"


def test_a_refusal_stays_one():
    """An answer is a text unless a part of it is a refusal."""
    text, refusal = {"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}

    assert read_answer([text, text], "p") == "aa"
    assert read_answer([text, refusal], "p") == [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]


def test_an_output_is_text_and_what_it_shows():
    """Texts are lines of one text."""
    text, image = {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}

    assert read_output([text, image, text], "p") == ("a\na", [{"type": "image_url", "image_url": {"url": "u"}}])


@pytest.mark.parametrize(
    ("part", "code", "path"),
    [
        (3, "invalid_request", "p.0"),
        ({"type": "input_audio"}, "invalid_request", "p.0.type"),
        ({"type": "input_text"}, "invalid_request", "p.0.text"),
        ({"type": "input_image"}, "invalid_request", "p.0.image_url"),
        ({"type": "input_image", "file_id": "f"}, "unsupported", "p.0.file_id"),
        ({"type": "input_image", "image_url": "u", "detail": "x"}, "invalid_request", "p.0.detail"),
        ({"type": "input_file"}, "invalid_request", "p.0.file_data"),
        ({"type": "input_file", "file_id": "f"}, "unsupported", "p.0.file_id"),
        ({"type": "input_file", "file_url": "f"}, "unsupported", "p.0.file_url"),
        ({"type": "input_file", "file_data": "hi"}, "invalid_request", "p.0.file_data"),
        ({"type": "input_file", "file_data": encode("x", "application/pdf")}, "unsupported", "p.0.file_data"),
        ({"type": "input_file", "file_data": "data:text/plain;base64,_w=="}, "invalid_request", "p.0.file_data"),
        ({"type": "input_file", "file_data": "data:text/plain;base64,/w=="}, "invalid_request", "p.0.file_data"),
        ({"type": "input_file", "filename": "x" * 300, "file_data": encode("x")}, "invalid_request", "p.0.filename"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(part, code, path):
    """Refused by its path."""
    with pytest.raises(ApiError) as caught:
        read_content([part], "p")

    assert (caught.value.code, caught.value.param) == (code, path)
