"""Fill in what an upstream wants of the model's past answers and no client sends back. Pure; for OpenAI's messages.

DeepSeek, Kimi and MiMo refuse a past answer without its `reasoning_content` while they think, Gemini 3 a past call
without its `thought_signature`. Few clients keep either, and a call that another tier made never had one. So a blank
thought is sent (Kimi takes no empty one), and for the signature the value that Google documents for such calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

_BLANK = " "
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}


class Missing(Enum):
    """What is missing, by the words of the refusal."""

    THOUGHT = re.compile(
        r"\breasoning_content\b.{0,60}\b(missing|must be (passed|provided|included|returned|sent))"
        r"|\bmissing\b.{0,20}\breasoning_content\b",
        re.IGNORECASE | re.DOTALL,
    )
    SIGNATURE = re.compile(r"\bmissing\b.{0,12}\bthought_?signature", re.IGNORECASE)


def find_missing(refusal: str) -> Missing | None:
    """Return what this refusal asks for; None where it is about something else."""
    return next((one for one in Missing if one.value.search(refusal)), None)


def fill_missing(messages: Sequence[Mapping[str, Any]], missing: Collection[Missing]) -> list[Mapping[str, Any]]:
    """Return the messages with a thought for each answer, and a signature for the first call of each."""
    return [_fill(message, missing) if message["role"] == "assistant" else message for message in messages]


def _fill(message: Mapping[str, Any], missing: Collection[Missing]) -> Mapping[str, Any]:
    filled = dict(message)
    if Missing.THOUGHT in missing:
        filled["reasoning_content"] = message.get("reasoning_content") or message.get("reasoning") or _BLANK
    if Missing.SIGNATURE in missing and message.get("tool_calls"):
        first, *rest = message["tool_calls"]
        filled["tool_calls"] = [{"extra_content": _UNSIGNED, **first}, *rest]
    return filled
