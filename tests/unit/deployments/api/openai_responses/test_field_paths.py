"""Errors in the client's own words."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.api.openai_responses.field_paths import translate_error, translate_path
from deployments.errors import ApiError, refuse


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("messages", "input"),
        ("messages.3.content", "input"),
        ("messages[3].content", "input"),
        ("tools.0.function.parameters.type", "tools.2.parameters.type"),
        ("tools.0.name", "tools.2.name"),
        ("tools.7.name", "tools"),
        ("tools", "tools"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.tools", "tool_choice.tools"),
        ("response_format.json_schema.schema.x", "text.format.schema.x"),
        ("max_completion_tokens", "max_output_tokens"),
        ("reasoning_effort", "reasoning.effort"),
        ("seed", "seed"),
    ],
)
def test_a_path_is_the_clients(path, own):
    """Every path of a chat completion has its counterpart in what the client has sent."""
    assert translate_path(path, [2]) == own


def test_a_place_that_is_not_known_is_left_out():
    """Where nobody knows which tools were kept from the model no place is better than a wrong one."""
    assert translate_path("tools.0.function.name") == "tools"


parts = st.sampled_from(["tools", "messages", "response_format", "json_schema", "function", "name", "type", "0", "1",
                         "7", "tool_choice", "max_tokens", "parameters", "format", "input", "seed"])  # fmt: skip
paths = st.lists(parts, min_size=1, max_size=5).map(".".join)


@given(paths, st.none() | st.lists(st.integers(0, 9), max_size=3))
@example("tools.0.function.name", [3])
def test_what_was_translated_stays(path, places):
    """The parser translates its errors, where it knows the places of the tools, and the answer is written by who
    doesn't: the tool that is wrong is still named."""
    once = translate_path(path, places)

    assert translate_path(once) == once


@pytest.mark.parametrize(
    ("param", "message", "own"),
    [
        ("messages", "messages: too long", "input: too long"),
        ("messages.0.role", "messages.0.role: wrong", "input: wrong"),
        ("messages", "too long", "too long"),
        ("messages.0", "messages: wrong", "input: wrong"),
    ],
)
def test_a_text_begins_with_the_clients_path(param, message, own):
    """`param` and text agree."""
    error = translate_error(ApiError("unsupported", message, param=param, retry_after_s=3.0))

    assert (error.message, error.param, error.retry_after_s) == (own, "input", 3.0)


def test_an_error_without_a_field_stays():
    """There is nothing to translate."""
    error = ApiError("overloaded", "messages: busy")

    assert translate_error(error) is error


def test_a_refusal_begins_with_its_path():
    """One rule for all texts."""
    assert refuse("input.0", "wrong").message == "input.0: wrong"
