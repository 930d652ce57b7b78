"""Estimates of tokens: one that is never too small for a reservation, one that is never too large for a rejection."""

import base64
import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reliability.answer import estimate as estimates
from reliability.answer.estimate import estimate_written_tokens, prompt_bytes, text_bytes, tokens_max, tokens_min
from reliability.types import CallDelta, Reasoning, Text

texts = st.text(max_size=40)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["role", "content", "tool_calls", "type", "text", "function", "name", "arguments", "image_url"])
messages = st.lists(st.dictionaries(keys, junk, max_size=4), max_size=4)


@given(texts)
@example("a\ud800")
def test_bytes_are_those_of_utf8(text: str) -> None:
    """The length of a text is that of its UTF-8, whatever it is made of: half a character, too."""
    assert text_bytes(text) == len(text.encode("utf-8", "surrogatepass"))


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_the_two_estimates_enclose(size: int, more: int) -> None:
    """The lower estimate is never above the upper one, and neither falls where the text grows."""
    assert 0 <= tokens_min(size) <= tokens_max(size)
    assert tokens_max(size) <= tokens_max(size + more)
    assert tokens_min(size) <= tokens_min(size + more)
    assert tokens_max(size) * 2 >= size >= tokens_min(size) * 5
    # For a person: never nothing.
    assert max(1, tokens_min(size)) <= estimates.tokens_about(size) <= max(1, tokens_max(size))


@given(messages, messages, st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2))
def test_any_messages_have_a_size(some: list[Any], others: list[Any], tools: list[Any]) -> None:
    """Whatever clients send has a size, and a longer prompt is no smaller."""
    size = prompt_bytes(some)
    assert size >= 0
    assert prompt_bytes([*some, *others]) == size + prompt_bytes(others)
    assert prompt_bytes(some, tools) == size + (text_bytes(json.dumps(tools, ensure_ascii=False)) if tools else 0)


@given(texts, texts)
def test_what_a_model_reads_is_counted(text: str, arguments: str) -> None:
    """Text counts the same as a string and as parts; calls count by name and arguments."""
    plain = prompt_bytes([{"role": "user", "content": text}])
    assert plain == prompt_bytes([{"role": "user", "content": [{"type": "text", "text": text}]}])
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": arguments}}
    with_call = prompt_bytes([{"role": "assistant", "content": text, "tool_calls": [call]}])
    assert with_call >= plain + 4 + text_bytes(arguments)


@pytest.mark.parametrize("kind", ["image_url", "input_image", "image"])
def test_an_image_counts_as_its_tokens(kind: str) -> None:
    """An image is so many tokens, whether its base64 is a kilobyte or a megabyte."""
    sizes = set()
    for length in (1, 1000, 10**6):
        url = "data:image/png;base64," + base64.b64encode(b"x" * length).decode()
        sizes.add(prompt_bytes([{"role": "user", "content": [{"type": kind, "image_url": {"url": url}}]}]))
    (size,) = sizes
    assert tokens_max(size) >= estimates.IMAGE_TOKENS
    assert tokens_max(size) - tokens_max(prompt_bytes([{"role": "user", "content": []}])) <= estimates.IMAGE_TOKENS + 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # The counts are those of SmolLM2's tokenizer, which was asked once for each of these texts.
        ("The quick brown fox jumps over the lazy dog. It was a bright cold day in April, and the clocks struck.", 24),
        ("def main(argv: list[str]) -> int:\n    return sum(int(a) for a in argv[1:] if a.isdigit())\n", 35),
        ('{"city": "Lima", "unit": "celsius", "days": 3, "hourly": false}', 26),
    ],
)
def test_real_texts_lie_between(text: str, tokens: int) -> None:
    """English, code and JSON lie between the two estimates."""
    size = text_bytes(text)
    assert tokens_min(size) <= tokens <= tokens_max(size)


def test_a_refusal_of_the_history_counts():
    """Law: it is read as any other text is, whether it stands beside the content or in it."""
    plain = prompt_bytes([{"role": "assistant", "content": "No." * 50}])
    assert prompt_bytes([{"role": "assistant", "content": None, "refusal": "No." * 50}]) == plain
    assert prompt_bytes([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No." * 50}]}]) == plain


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_any_request_has_a_bound(value):
    """Whatever JSON a request holds."""
    assert estimates.prompt_tokens_most([value]) >= 0
    assert estimates.prompt_tokens_most([[0] * 200_000]) >= 1_000_000


@pytest.mark.parametrize("piece", ["a", "你", "😀", " word", "word ", "\n\n", "Internationaliza", '{"', "—"])
def test_a_piece_that_may_be_one_token_is_one(piece):
    """Most servers send a token in each piece."""
    assert estimates.tokens_near(piece) == 1


@given(st.text(min_size=17))
def test_a_longer_piece_is_estimated_from_above(text):
    """Nothing says how many tokens a server has joined."""
    assume(len(text) > 16)
    assert estimates.tokens_near(text) >= len(text) / 2


def test_what_is_written_is_counted_whatever_it_is():
    """Text, reasoning, and calls with their names."""
    assert estimate_written_tokens(Text("word ")) == estimate_written_tokens(Reasoning("word ")) == 1
    assert estimate_written_tokens(CallDelta(index=0, arguments="{")) == 1
    assert estimate_written_tokens(CallDelta(index=0, id="c", name="look")) > 1
