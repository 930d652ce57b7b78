"""The Harmony format: an answer is a row of messages, each with a role, a channel and perhaps a recipient.

    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

What a message is follows from its header alone: a recipient makes it a call (wherever the recipient
stands, in the role or after the channel, and whatever the channel), `analysis` without one is the model's
thinking, and the rest is text. The body of a call must be one object; the end mark may be missing, since
it is a stop token that engines cut off. A header with a recipient and no body is a call that was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reliability.tools.extract.marks import OPENER

__all__ = ["Message", "is_harmony", "split"]

_MARK = re.compile(r"<\|(start|channel|constrain|message|end|call|return)\|>")
_RECIPIENT = re.compile(r"\bto=([A-Za-z0-9_.:/-]{1,160})")
_OTHER = re.compile(rf"\{{|{OPENER.pattern}", re.IGNORECASE)
_NOBODY = frozenset({"assistant", "user", "all"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `complete` is False where its header was cut before any body."""

    recipient: str | None
    channel: str
    body: str
    raw: str
    complete: bool = True

    @property
    def thinking(self) -> bool:
        """True for what is no part of the answer."""
        return self.recipient is None and self.channel == "analysis"


def is_harmony(text: str) -> bool:
    """True where a text has messages of this format, not only their marks in a call of another."""
    mark = _MARK.search(text)
    return mark is not None and "<|message|>" in text and not _OTHER.search(text, 0, mark.start())


def split(text: str) -> list[Message]:
    """All messages of a text, in order; text without a header is a message of its own."""
    first, *rest = _MARK.split(text)
    found: list[Message] = []
    header, raw = "", ""
    if rest and rest[0] == "message":
        header = raw = first
    elif first.strip():
        found.append(Message(None, "", first, first))
    for mark, part in zip(rest[::2], rest[1::2], strict=True):
        if mark == "message":
            found.append(_message(header, part, f"{raw}<|message|>{part}"))
            header, raw = "", ""
        elif mark in ("start", "channel", "constrain"):
            header, raw = f"{header} {mark}:{part}", f"{raw}<|{mark}|>{part}"
        else:
            header, raw = "", ""
            if part.strip():
                found.append(Message(None, "", part, part))
    if header:
        found.append(_message(header, "", raw, complete=False))
    return found


def _message(header: str, body: str, raw: str, *, complete: bool = True) -> Message:
    recipient = _RECIPIENT.search(header)
    channel = re.search(r"channel:\s*(\w+)", header)
    name = None if recipient is None or recipient[1] in _NOBODY else recipient[1].removeprefix("functions.")
    return Message(name, channel[1] if channel else "", body, raw, complete)
