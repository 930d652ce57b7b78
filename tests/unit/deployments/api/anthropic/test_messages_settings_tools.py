"""Anthropic's tools and choices, as a chat completion's."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.api.anthropic.messages_settings import translate_choice, translate_tools
from deployments.errors import ApiError
from tests.support.anthropic_values import MARKER, TOOL


def test_a_tool_is_a_function():
    """Name, description and schema are its own; what is for other servers stays behind."""
    (tool,) = translate_tools([TOOL | {"cache_control": MARKER, "strict": True, "eager_input_streaming": True}])
    schema = TOOL["input_schema"]

    assert tool == {
        "type": "function",
        "function": {"name": "read_file", "description": "Read a file.", "parameters": schema, "strict": True},
    }


@pytest.mark.parametrize(
    ("choice", "translated"),
    [
        (None, (None, None)),
        ({"type": "auto"}, ("auto", None)),
        ({"type": "any"}, ("required", None)),
        ({"type": "none"}, ("none", None)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", False)),
        ({"type": "tool", "name": "f"}, ({"type": "function", "function": {"name": "f"}}, None)),
    ],
)
def test_each_choice_has_its_word(choice: Any, translated: Any):
    """Anthropic's four choices, and the switch that allows one call only."""
    assert translate_choice(choice) == translated


@pytest.mark.parametrize(
    "choice", [{}, {"type": "required"}, {"type": "tool"}, {"type": "auto", "disable_parallel_tool_use": 1.5}]
)
def test_other_choices_are_refused(choice: Any):
    """By the field."""
    with pytest.raises(ApiError) as refused:
        translate_choice(choice)

    assert str(refused.value.param).startswith("tool_choice.")
