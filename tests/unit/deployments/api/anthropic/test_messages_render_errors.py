"""Errors in Anthropic's shape."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import ErrorResponse
from pydantic import TypeAdapter

from deployments.api.anthropic.messages_render import message_error
from deployments.errors import TABLE, ApiError

SHAPE: TypeAdapter[Any] = TypeAdapter(ErrorResponse)
UNKNOWN = {"request_too_large"}  # Anthropic's documentation has it, its SDK's types haven't


@pytest.mark.parametrize("code", TABLE)
def test_every_error_has_the_shape(code: str):
    """The SDK reads each row of the table as one of its own errors; the row's code and the request's id stand in it."""
    body = message_error(ApiError(code, "no", param="p"), "req-1")

    if body["error"]["type"] not in UNKNOWN:
        SHAPE.validate_python(body, strict=True)
    assert (body["error"]["code"], body["error"]["param"], body["request_id"]) == (code, "p", "req-1")


def test_a_prompt_that_is_too_long_is_said_in_claude_codes_words():
    """It condenses its history where it reads them."""
    body = message_error(ApiError("context_length_exceeded", "tier fast can't hold this prompt"), "r")

    assert body["error"]["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("loop_detected", "billing_error"),
        ("budget_exceeded", "billing_error"),
        ("invalid_answer", "billing_error"),
        ("no_tier_configured", "billing_error"),
        ("context_length_exceeded", "invalid_request_error"),
        ("unsupported", "invalid_request_error"),
        ("invalid_tools", "invalid_request_error"),
        ("rate_limit_exceeded", "rate_limit_error"),
        ("no_tier_available", "overloaded_error"),
        ("upstream_error", "api_error"),
    ],
)
def test_what_stays_has_the_type_at_which_claude_code_gives_up(code: str, kind: str):
    """A refusal for good is asked for once; what passes, and what is the request's own fault, says which it is."""
    assert message_error(ApiError(code, "no"), "r")["error"]["type"] == kind


def test_a_loop_says_when_to_come_back():
    """As in every dialect."""
    assert message_error(ApiError("loop_detected", "no", retry_after_s=5), "r")["error"]["retry_after"] == 5
