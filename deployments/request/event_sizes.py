"""How large the events of an answer are, and how large an answer may become.

A tier that obeys its cap of tokens stays far below these bounds; one that doesn't is cut, so that nobody reads what no
client will see. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from reliability.types import CallDelta, Event, Reasoning, Refusal, Text

__all__ = ["ANSWER_BYTES_MAX", "OVERRUN_BYTES", "TOKEN_BYTES_MOST", "compute_bytes_max", "count_chars", "cut_event"]

# What an answer of so many tokens can't be longer than: SmolLM2's tokenizer has 10 bytes a token in formal English, 11
# in deeply indented code, and an answer of a few tokens may be a few long words.
TOKEN_BYTES_MOST = 16
OVERRUN_BYTES = 256
# The longest answer that is read at all, whatever cap a request or the configuration names: a quarter of a million
# tokens, more than any model writes.
ANSWER_BYTES_MAX = 1024 * 1024
# An event of this size costs too little to be cut.
EVENT_CHARS = 65_536


def compute_bytes_max(output_cap: int) -> int:
    """Compute how many bytes an answer may have: more are surely more than a tier was allowed to
    write."""
    return min(output_cap * TOKEN_BYTES_MOST + OVERRUN_BYTES, ANSWER_BYTES_MAX)


def cut_event(event: Event, left_bytes: int) -> Event:
    """Cut an event that is long and goes far beyond the bytes that are left: an answer ends with it
    anyway."""
    if count_chars(event) <= EVENT_CHARS:
        return event
    most = max(EVENT_CHARS, left_bytes + 1)
    match event:
        case Text(text) | Reasoning(text) | Refusal(text) if len(text) > most:
            return type(event)(text[:most])
        case CallDelta(arguments=arguments) if len(arguments) > most:
            return replace(event, arguments=arguments[:most])
    return event


def count_chars(event: Event) -> int:
    """Count the characters that a model has written with this event."""
    match event:
        case Text(text) | Reasoning(text) | Refusal(text):
            return len(text)
        case CallDelta(arguments=arguments):
            return len(arguments)
    return 0
