"""What clients read in an error."""

from __future__ import annotations

import pytest

from deployments.wire.errors import from_refusal
from reliability.escalation import Refuse, RefuseCode

# What litellm (for OpenHands and CrewAI), CrewAI itself and Hermes look for, 2026-11: then they condense their history.
TELLING = ("this model's maximum context length is", "maximum context length", "reduce the length")


@pytest.mark.parametrize("code", RefuseCode)
def test_a_prompt_that_fits_nowhere_is_said_in_words_that_agents_know(code):
    """They read the message, not the code; and no other error may look like it."""
    message = from_refusal(Refuse(code=code, message="tier fast can't hold this prompt")).body()["error"]["message"]

    assert message.startswith("tier fast can't hold this prompt")
    assert [words in message for words in TELLING] == [code is RefuseCode.CONTEXT_LENGTH] * len(TELLING)
