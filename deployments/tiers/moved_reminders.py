"""Keep an agent's reminder where the model has read it, when the client sends it further down now.

A reminder that merely moved stays where it was, and is read in its new place as well (docs/decisions/056):
- it stands to the letter in a later message of the request, and its old message has all its other words;
- what was read behind its old place is at least `_GAIN` times as long as what stays there;
- all that stays is at most 1 / `_SHARE` of the conversation.
Invariants: no word that the client sends is left out; no reminder stays that the client sends nowhere any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliability.tools.turns import HARNESS_TAGS

_GAIN, _SHARE = 2, 8

_HOLDERS = ("user", "tool")  # the roles in which clients put reminders
_OPENING = re.compile(rf"<({'|'.join(HARNESS_TAGS)})>")

_Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RemindedMessages:
    """The texts of those messages of a prompt that hold reminders, by their places; `count`: of all its messages."""

    count: int = 0
    texts: Mapping[int, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.texts.values()))


def find_reminded(messages: Sequence[_Message]) -> RemindedMessages:
    """Find the messages that hold reminders."""
    texts = {at: _read_text(message) for at, message in enumerate(messages) if message.get("role") in _HOLDERS}
    return RemindedMessages(len(messages), {at: text for at, text in texts.items() if _OPENING.search(text)})


def keep_moved(messages: Sequence[_Message], known: RemindedMessages) -> tuple[_Message, ...] | None:
    """Return the messages with what moved since `known` in its old places, too; None where it isn't worth it."""
    if not known.texts:
        return None
    texts = [_read_text(message) for message in messages]
    holders = [message.get("role") in _HOLDERS for message in messages]
    sent = [set(_split(text)[1] if holds else ()) for text, holds in zip(texts, holders, strict=True)]
    left_chars, kept = sum(map(len, texts)) // _SHARE, list(messages)
    for at, old in sorted(known.texts.items()):
        if at >= len(texts) or not holders[at] or texts[at] == old:
            continue
        gone = _find_gone(old, texts[at])
        left_chars -= sum(map(len, gone))
        behind = sum(map(len, texts[at + 1 : known.count + 1]))  # with the answer to that prompt
        moved = bool(gone) and set(gone) <= set().union(*sent[at + 1 :])
        if not moved or left_chars < 0 or behind < _GAIN * sum(map(len, gone)):
            break  # what follows is read again in any case
        kept[at] = {**messages[at], "content": old}
    return tuple(kept) if kept != list(messages) else None


def _find_gone(old: str, new: str) -> list[str]:
    (old_words, old_reminders), (words, reminders) = _split(old), _split(new)
    if words != old_words or not set(reminders) <= set(old_reminders):
        return []
    return [reminder for reminder in old_reminders if reminder not in reminders]


def _split(text: str) -> tuple[list[str], list[str]]:
    """Split a text into the words outside of its reminders and the reminders. One pass."""
    words, reminders, at = [], [], 0
    while (opening := _OPENING.search(text, at)) is not None:
        closing = f"</{opening[1]}>"
        end = text.find(closing, opening.end())
        if end < 0:
            break
        end += len(closing)
        words.append(text[at : opening.start()].strip())
        reminders.append(text[opening.start() : end])
        at = end
    words.append(text[at:].strip())
    return [word for word in words if word], reminders


def _read_text(message: _Message) -> str:
    """Read the text of a message; empty where it has other parts, too."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else ""
