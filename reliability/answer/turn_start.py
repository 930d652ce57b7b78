"""What some models write before their answer, or in its place: the marks of their chat template, spelled out.

    <|im_start|>assistant\\nThe file has 3 lines.     the opening of the turn that is open already: dropped
    <|im_start|>                                     nothing but marks: no answer at all

A model that may not end its turn, or open one, by the token for it spells that token out of others (seen 2026-11-24:
Qwen2.5-Coder-1.5B behind a tool's result, the last answer of 14 of 29 clients), and small servers send such tokens as
text. Only the head of an answer is looked at: further on they may be what the answer is about. The marks of calls are
the call formats' own (`reliability.tools.formats`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reliability.types import Event, Text

__all__ = ["drop_turn_start", "may_be_turn_start", "strip_turn_start"]

_MARK = r"<\|(?:im_start|im_end|endoftext|begin_of_text|end_of_text|start_header_id|end_header_id|eot_id|eom_id)\|>"
_ROLE = "assistant"
_ROLE_BEGUN = "|".join(_ROLE[:length] for length in range(1, len(_ROLE) + 1))
_TURN = re.compile(rf"\s*(?:<\|im_start\|>(?:{_ROLE}(?!\w))?\s*)+")
_ONLY_MARKS = re.compile(rf"(?:\s|{_MARK})*\Z")
_WAITS = re.compile(
    rf"(?:\s|{_MARK}|{_TURN.pattern})*(?:<\|?|<\|\w{{1,32}}\|?|(?<=<\|im_start\|>)(?:{_ROLE_BEGUN}))?\Z"
)


def may_be_turn_start(text: str) -> bool:
    """Tell whether the head of an answer may still turn out to be no part of it."""
    return _WAITS.match(text) is not None


def strip_turn_start(text: str) -> str:
    """Return the head of an answer without the opening of its turn; nothing where it is nothing but marks."""
    if _ONLY_MARKS.match(text):
        return "" if "<|" in text else text
    opening = _TURN.match(text)
    return text[opening.end() :] if opening else text


def drop_turn_start(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of an answer of which nothing has left, its text without the opening of its turn."""
    for place, event in enumerate(events):
        if isinstance(event, Text):
            text = strip_turn_start(event.text)
            if text == event.text:
                return events
            return [*events[:place], *([Text(text)] if text else []), *events[place + 1 :]]
    return events
