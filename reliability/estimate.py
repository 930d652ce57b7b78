"""How many tokens a text is, where no tokenizer is at hand.

Two uses want opposite errors, so there are two figures. A *reservation* must not be too small: `tokens_max` counts one
token for two bytes of UTF-8. Measured with SmolLM2's tokenizer (2026-11-22): 4.2 bytes a token in a line of English,
3.6 in this project's README, 3.4 in its median Python file and 2.2 in its densest one, 2.65 in the recorded agent runs
of `tests/evals`. Hashes (1.3) and Japanese (1.7) need more than is reserved; what a call used over that is charged all
the same. A *rejection* (this prompt can't fit that tier) must not come too early: `tokens_min` counts one for five
bytes; the tier itself knows better.

Only what a model reads is counted: an image is `IMAGE_TOKENS`, whatever the size of its base64. What a tier has really
counted replaces all of this once it is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["IMAGE_TOKENS", "prompt_bytes", "text_bytes", "tokens_max", "tokens_min"]

IMAGE_TOKENS = 1_600
MESSAGE_BYTES = 16  # role and markers of a chat template, about four tokens
BYTES_PER_TOKEN_LEAST = 2
BYTES_PER_TOKEN_MOST = 5


def tokens_max(size: int) -> int:
    """An estimate from above of the tokens in `size` bytes of text."""
    return -(-size // BYTES_PER_TOKEN_LEAST)


def tokens_min(size: int) -> int:
    """An estimate from below."""
    return size // BYTES_PER_TOKEN_MOST


def text_bytes(text: str) -> int:
    """The length of a text in UTF-8. Cheap for ASCII, which is most of what agents send."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_bytes(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
    """The bytes of text that a prompt of these messages and tools has; images count as text of their size in tokens."""
    size = sum(MESSAGE_BYTES + _content(m.get("content")) + _calls(m.get("tool_calls")) for m in messages)
    return size + (text_bytes(json.dumps(tools, ensure_ascii=False)) if tools else 0)


def _content(content: Any) -> int:
    if isinstance(content, str):
        return text_bytes(content)
    if not isinstance(content, list):
        return 0
    return sum(_part(part) for part in content)


def _part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return 0
    text = part.get("text")
    if isinstance(text, str):
        return text_bytes(text)
    return IMAGE_TOKENS * BYTES_PER_TOKEN_LEAST if "image" in str(part.get("type")) else 0


def _calls(calls: Any) -> int:
    if not isinstance(calls, list):
        return 0
    return sum(MESSAGE_BYTES + _call(call.get("function")) for call in calls if isinstance(call, Mapping))


def _call(function: Any) -> int:
    if not isinstance(function, Mapping):
        return 0
    texts = (function.get("name"), function.get("arguments"))
    return sum(text_bytes(text) for text in texts if isinstance(text, str))
