"""How many tokens a text is where no tokenizer is at hand, and whether a tier's own count is possible at all.

A *reservation* must not be too small: `tokens_max` counts one token for two bytes of UTF-8. A *rejection* must not come
too early: `tokens_min` counts one for five. `tokens_about` (four) is only shown, `tokens_near` is for one piece of an
answer. Measured with SmolLM2's tokenizer (2026-11-22): 2.2 to 4.2 bytes a token in English and Python, 1.3 in hashes.

A count that an upstream reports is believed, to the token, where it is possible (`verify_usage`): a prompt of at most a
token for each byte and what is hidden beside it, a completion of at most the cap or a token for each byte written, and
at least one for so many bytes as no tokenizer puts into one. Else our estimate replaces it, and the report says so. No
count, or 0 for something that is there, is no lie (Ollama says 0 for a cached prompt).

Invariant: no report costs a session more than one very long answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.types import WRITTEN, CallDelta, Event, Passed, Usage

IMAGE_TOKENS = 1_600
MESSAGE_BYTES = 16  # role and markers of a chat template, about four tokens
BYTES_PER_TOKEN_LEAST = 2
BYTES_PER_TOKEN_MOST = 5
BYTES_PER_TOKEN_USUAL = 4
PIECE_CHARS_MAX = 16  # of what may be one token
# From above, of what no size tells: the largest count that a provider's price list gives for one image (gpt-4o-mini, in
# detail), and an hour of film or a long document behind one address.
IMAGE_TOKENS_MOST = 50_000
MEDIA_TOKENS_MOST = 1_000_000
NUMBER_TOKENS_MOST = 32
VALUES_MAX = 50_000  # of one request; what is more counts as a part of unknown size
TEXT_PARTS = ("text", "refusal", "thinking", "input_text", "output_text")
# What an upstream reads beside the request: the instructions for tools are some hundred tokens at the known providers,
# hidden system prompts and pages of a search some thousand.
HIDDEN_TOKENS_MAX = 8_192
# Beyond `max_tokens`: the longest thinking that providers who count so allow by default.
REASONING_TOKENS_MAX = 65_536
CALL_TOKENS = 16  # a tool call's name and the delimiters around it
ENDS_TOKENS_MAX = 64  # delimiters around an answer and its calls, which no text shows
# What no tokenizer puts into one token, on the average of more than a few: the densest text that was measured is
# formal English and deeply indented code, 10 and 11 bytes (SmolLM2). A prompt may hold lines of blanks or dashes.
ANSWER_TOKEN_BYTES_MOST, ANSWER_FREE_BYTES = 16, 256
PROMPT_TOKEN_BYTES_MOST, PROMPT_FREE_BYTES = 64, 4_096


def tokens_max(size: int) -> int:
    """Estimate from above the tokens in `size` bytes of text."""
    return -(-size // BYTES_PER_TOKEN_LEAST)


def tokens_about(size: int) -> int:
    """Estimate the tokens in `size` bytes of text, for a person to read: neither bound, and at least one."""
    return max(1, size // BYTES_PER_TOKEN_USUAL)


def tokens_min(size: int) -> int:
    """Estimate from below the tokens in `size` bytes of text."""
    return size // BYTES_PER_TOKEN_MOST


def tokens_near(piece: str) -> int:
    """Estimate the tokens in one piece of an answer as a server sent it: one where it may be one token
    (a word at most, or two characters of any script), else from above."""
    if len(piece) <= 2 or (len(piece) <= PIECE_CHARS_MAX and piece.isascii() and " " not in piece.strip()):
        return 1
    return tokens_max(text_bytes(piece))


def text_bytes(text: str) -> int:
    """Return the length of a text in UTF-8. Cheap for ASCII, which is most of what agents send."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_bytes(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
    """Count the bytes of text in a prompt of these messages and tools; images count as text of their size in tokens."""
    size = sum(
        MESSAGE_BYTES + _measure_content(m.get("content") or m.get("refusal")) + _measure_calls(m.get("tool_calls"))
        for m in messages
    )
    return size + (text_bytes(json.dumps(tools, ensure_ascii=False)) if tools else 0)


def prompt_tokens_most(values: Iterable[Any]) -> int:
    """Return how many tokens the prompt of these JSON values (messages, tools, the schema of an answer) can't exceed:
    one for each byte of any text in them, key or value, and a bound for each part that is no text. It walks through
    them, as far as `VALUES_MAX`."""
    tokens, left, seen = 0, list(values), 0
    while left:
        value, seen = left.pop(), seen + 1
        if seen > VALUES_MAX:
            return tokens + MEDIA_TOKENS_MOST
        if isinstance(value, str):
            tokens += text_bytes(value)
        elif isinstance(value, Mapping):
            media = _bound_media_tokens(value)
            tokens += media or MESSAGE_BYTES + sum(text_bytes(str(key)) for key in value)
            left += () if media else value.values()
        elif isinstance(value, list | tuple):
            left += value
        elif value is not None:
            tokens += NUMBER_TOKENS_MOST
    return tokens


def _bound_media_tokens(part: Mapping[str, Any]) -> int:
    """Return the bound of a part that is no text; 0 for anything else. A call and a tool have types too."""
    kind = part.get("type")
    if not isinstance(kind, str) or kind in TEXT_PARTS:
        return 0
    if "image" in kind:
        return IMAGE_TOKENS_MOST
    return MEDIA_TOKENS_MOST if any(word in kind for word in ("audio", "video", "file", "document")) else 0


def _measure_content(content: Any) -> int:
    if isinstance(content, str):
        return text_bytes(content)
    if not isinstance(content, list):
        return 0
    return sum(_measure_part(part) for part in content)


def _measure_part(part: Any) -> int:
    if not isinstance(part, Mapping):
        return 0
    text = part.get("text") or part.get("refusal")
    if isinstance(text, str):
        return text_bytes(text)
    return IMAGE_TOKENS * BYTES_PER_TOKEN_LEAST if "image" in str(part.get("type")) else 0


def _measure_calls(calls: Any) -> int:
    if not isinstance(calls, list):
        return 0
    return sum(MESSAGE_BYTES + _measure_call(call.get("function")) for call in calls if isinstance(call, Mapping))


def _measure_call(function: Any) -> int:
    if not isinstance(function, Mapping):
        return 0
    texts = (function.get("name"), function.get("arguments"))
    return sum(text_bytes(text) for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """What is known of one attempt. `prompt_most` is asked only where a count is beyond the size of the prompt, since
    it walks through the whole request. `estimate` stands in for what isn't possible."""

    prompt_bytes: int
    prompt_most: Callable[[], int]
    output_cap: int
    written_bytes: int
    estimate: Usage


def verify_usage(reported: Usage, possible: Possible) -> tuple[Usage, bool]:
    """Return what to book for an attempt that is reported to have cost `reported`, and whether that was impossible."""
    prompt_holds, prompt_lie = _check_prompt_count(reported.prompt_tokens, possible)
    completion_holds, completion_lie = _check_completion_count(reported, possible)
    estimate = possible.estimate
    prompt = reported.prompt_tokens if prompt_holds else estimate.prompt_tokens
    completion = reported.completion_tokens if completion_holds else estimate.completion_tokens
    if (
        prompt_holds
        and completion_holds
        and reported.cached_tokens <= prompt
        and reported.reasoning_tokens <= completion
    ):
        return reported, False
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(reported.cached_tokens, prompt) if prompt_holds else 0,
        reasoning_tokens=min(reported.reasoning_tokens, completion) if completion_holds else 0,
        exact=reported.exact and prompt_holds and completion_holds,
    )
    return usage, prompt_lie or completion_lie


def _check_prompt_count(tokens: int, possible: Possible) -> tuple[bool, bool]:
    size = possible.prompt_bytes
    if tokens <= 0:
        return size <= 0, False
    if tokens < (size - PROMPT_FREE_BYTES) // PROMPT_TOKEN_BYTES_MOST:
        return False, True
    holds = tokens <= size + HIDDEN_TOKENS_MAX or tokens <= possible.prompt_most() + HIDDEN_TOKENS_MAX
    return holds, not holds


def _check_completion_count(reported: Usage, possible: Possible) -> tuple[bool, bool]:
    tokens, written = reported.completion_tokens, possible.written_bytes
    if tokens <= 0:
        return written <= 0, False
    most = max(possible.output_cap, written) + ENDS_TOKENS_MAX
    most += REASONING_TOKENS_MAX if reported.reasoning_tokens > 0 else 0
    holds = (written - ANSWER_FREE_BYTES) // ANSWER_TOKEN_BYTES_MOST <= tokens <= most
    return holds, not holds


def estimate_written_tokens(event: Event) -> int:
    """Estimate the tokens that a model has written for this piece of its answer."""
    if isinstance(event, WRITTEN):
        return tokens_near(event.text)
    if isinstance(event, CallDelta):
        return (tokens_near(event.arguments) if event.arguments else 0) + (CALL_TOKENS if event.name else 0)
    return tokens_max(event.text_bytes) if isinstance(event, Passed) else 0
