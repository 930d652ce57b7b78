"""How many tokens a text is, where no tokenizer is at hand.

A *reservation* must not be too small: `tokens_max` counts one token for two bytes of UTF-8. A *rejection* must not come
too early: `tokens_min` counts one for five. `tokens_about` (four) is only shown, `tokens_near` is for one piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reliability.types import WRITTEN, CallDelta, Event, Passed

IMAGE_TOKENS = 1_600
_MESSAGE_BYTES = 16  # role and markers of a chat template, about four tokens
_BYTES_PER_TOKEN_LEAST = 2
_BYTES_PER_TOKEN_MOST = 5
BYTES_PER_TOKEN_USUAL = 4
PIECE_CHARS_MAX = 16  # of what may be one token
# From above, of what no size tells: the largest count that a provider's price list gives for one image (gpt-4o-mini, in
# detail), and an hour of film or a long document behind one address.
_IMAGE_TOKENS_MOST = 50_000
_MEDIA_TOKENS_MOST = 1_000_000
_NUMBER_TOKENS_MOST = 32
VALUES_MAX = 50_000  # of one request; what is more counts as a part of unknown size
_TEXT_PARTS = ("text", "refusal", "thinking", "input_text", "output_text")
_CALL_TOKENS = 16  # a tool call's name and the delimiters around it


def tokens_max(size: int) -> int:
    """Estimate from above the tokens in `size` bytes of text."""
    return -(-size // _BYTES_PER_TOKEN_LEAST)


def tokens_about(size: int) -> int:
    """Estimate the tokens in `size` bytes of text, for a person to read: neither bound, and at least one."""
    return max(1, size // BYTES_PER_TOKEN_USUAL)


def tokens_min(size: int) -> int:
    """Estimate from below the tokens in `size` bytes of text."""
    return size // _BYTES_PER_TOKEN_MOST


def tokens_near(piece: str) -> int:
    """Estimate the tokens in one piece of an answer: one where it may be one token, else from above."""
    if len(piece) <= 2 or (len(piece) <= PIECE_CHARS_MAX and piece.isascii() and " " not in piece.strip()):
        return 1
    return tokens_max(text_bytes(piece))


def text_bytes(text: str) -> int:
    """Return the length of a text in UTF-8. Cheap for ASCII, which is most of what agents send."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_bytes(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
    """Count the bytes of text in a prompt of these messages and tools; images count as text of their size in tokens."""
    size = sum(
        _MESSAGE_BYTES + _measure_content(m.get("content") or m.get("refusal")) + _measure_calls(m.get("tool_calls"))
        for m in messages
    )
    return size + (text_bytes(json.dumps(tools, ensure_ascii=False)) if tools else 0)


def prompt_tokens_most(values: Iterable[Any]) -> int:
    """Return how many tokens the prompt of these JSON values can't exceed: one for each byte of any text in them, and a
    bound for each part that is no text. It walks through them, as far as `VALUES_MAX`."""
    tokens, left, seen = 0, list(values), 0
    while left:
        value, seen = left.pop(), seen + 1
        if seen > VALUES_MAX:
            return tokens + _MEDIA_TOKENS_MOST
        if isinstance(value, str):
            tokens += text_bytes(value)
        elif isinstance(value, Mapping):
            media = _bound_media_tokens(value)
            tokens += media or _MESSAGE_BYTES + sum(text_bytes(str(key)) for key in value)
            left += () if media else value.values()
        elif isinstance(value, list | tuple):
            left += value
        elif value is not None:
            tokens += _NUMBER_TOKENS_MOST
    return tokens


def _bound_media_tokens(part: Mapping[str, Any]) -> int:
    """Return the bound of a part that is no text; 0 for anything else. A call and a tool have types too."""
    kind = part.get("type")
    if not isinstance(kind, str) or kind in _TEXT_PARTS:
        return 0
    if "image" in kind:
        return _IMAGE_TOKENS_MOST
    return _MEDIA_TOKENS_MOST if any(word in kind for word in ("audio", "video", "file", "document")) else 0


def _measure_content(content: Any) -> int:
    if isinstance(content, str):
        return text_bytes(content)
    return sum(map(_measure_part, content)) if isinstance(content, list) else 0


def _measure_part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return 0
    text = part.get("text") or part.get("refusal")
    if isinstance(text, str):
        return text_bytes(text)
    return IMAGE_TOKENS * _BYTES_PER_TOKEN_LEAST if "image" in str(part.get("type")) else 0


def _measure_calls(calls: Any) -> int:
    if not isinstance(calls, list):
        return 0
    size = 0
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        texts = [function.get("name"), function.get("arguments")] if isinstance(function, Mapping) else []
        size += _MESSAGE_BYTES * isinstance(call, Mapping) + sum(text_bytes(t) for t in texts if isinstance(t, str))
    return size


def estimate_written_tokens(event: Event) -> int:
    """Estimate the tokens that a model has written for this piece of its answer."""
    if isinstance(event, WRITTEN):
        return tokens_near(event.text)
    if isinstance(event, CallDelta):
        return (tokens_near(event.arguments) if event.arguments else 0) + (_CALL_TOKENS if event.name else 0)
    return tokens_max(event.text_bytes) if isinstance(event, Passed) else 0
