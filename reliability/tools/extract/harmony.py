"""The Harmony format: an answer is a row of messages, each with a role, a channel and perhaps a recipient.

    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

The header alone says what a message is: a recipient makes it a call, wherever it stands, and so does the end of a call,
or `constrain`, on `commentary`. `analysis` without one is reasoning, the rest is text; where a user or a tool speaks,
the answer is over. A call's body must be one object; the end token may be missing, since engines cut it off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reliability.tools.extract.quoting import find_telling, is_block_quoted
from reliability.tools.extract.text import find_object_end
from reliability.tools.formats import OPENER, begins_sentence
from reliability.tools.turns import is_in_code_block, stands_in_code

HEADER_CHARS, BODY_CHARS = 400, 20_000  # of a message that may only be told of
HEADER_MARKS = r"<\|(?:channel|constrain|message)\|>"
"""The marks of a header that don't open a turn: without the rest of it they are no part of the answer."""

_DELIMITER = re.compile(r"<\|(start|channel|constrain|message|end|call|return|eom|eot)\|>")
_RECIPIENT = re.compile(r"\bto=([A-Za-z0-9_.:/-]{1,160})")
_HEADER = re.compile(
    r"(?:assistant|analysis|commentary|final"
    r"|(?:assistant ?)?(?:(?:commentary|analysis) )?to=[\w.:/-]{1,160}(?: (?:code|json))?)\s*\Z"
)
_HEADER_WITH_BODY = re.compile(
    r"<\|(?:start|channel)\|>[^<]{0,200}(?:<\|(?:channel|constrain)\|>[^<]{0,200}){0,3}<\|message\|>"
)
_OPEN_HEADER = re.compile(
    r"<\|(?:start|channel)\|>[^<]{0,200}(?:<\|(?:channel|constrain)\|>[^<]{0,200}){0,3}(?:<[|a-z]{0,12})?\Z"
)
_OWN_HEADER = re.compile(rf"(?=<\|channel\|>|<\|start\|>assistant\b)(?:{_HEADER_WITH_BODY.pattern})")
_LOST_MARK = re.compile(
    rf"(?:<\|start\|>assistant[ \t]*)?{HEADER_MARKS}(?:(?:analysis|commentary|final)[ \t]*(?=\n|\Z))?"
)
_BODY = re.compile(r"<\|message\|>")
_BODY_END = re.compile(r"[^<\n]{0,140}<\|(?:call|end|return|eom|eot)\|>")
_CHANNEL = re.compile(r"channel:\s*(\w+)")
_GOES_ON = re.compile(HEADER_MARKS)
_ROLE = re.compile(r"start:\s*([\w.:/-]+)")
_NOBODY = frozenset({"assistant", "user", "all"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message; its body begins `at` this place of the text. `complete` is False where its header was cut before any
    body. A `recipient` of "" is a call that doesn't say of what."""

    recipient: str | None
    channel: str
    body: str
    raw: str
    at: int
    complete: bool = True
    role: str = ""

    @property
    def is_foreign(self) -> bool:
        """True where a user, or a tool, speaks: the answer's turn is over."""
        return self.role not in ("", "assistant")

    @property
    def is_reasoning(self) -> bool:
        """True for what is no part of the answer."""
        return self.recipient is None and self.channel == "analysis"


def is_harmony(text: str, fences: list[int] | None = None) -> bool:
    """Return whether a text has messages of this format. `fences`: the lines that open or close a code block."""
    delimiter = _DELIMITER.search(text)
    if delimiter is None or "<|message|>" not in text:
        return False
    before = text[: delimiter.start()]
    if delimiter[1] == "message" and before.strip() and not _split_header(before)[1]:
        return False
    if stands_in_code(text, delimiter.start()) or is_in_code_block(fences or [], delimiter.start()):
        return False
    if is_told(text, delimiter.start()):
        return False
    inside = text.count("{", 0, delimiter.start()) > text.count("}", 0, delimiter.start())
    return not inside and OPENER.search(text, 0, delimiter.start()) is None


def may_be_harmony(text: str) -> bool:
    """Return whether a text has messages of this format, or ends in the header of one that isn't complete."""
    return _OPEN_HEADER.search(text, max(0, len(text) - HEADER_CHARS)) is not None or is_harmony(text)


def has_header(text: str) -> bool:
    """Return whether a message with a complete header stands in a text: its delimiters are no part of the answer."""
    return _HEADER_WITH_BODY.search(text) is not None


def begins_message(text: str, at: int) -> bool:
    """Return whether a message of the answer's own begins here, with a complete header."""
    return _OWN_HEADER.match(text, at) is not None


def is_header(text: str, at: int) -> bool:
    """Return whether a message of the answer's own begins here, or a mark of a header stands alone."""
    return _LOST_MARK.match(text, at) is not None or begins_message(text, at)


def is_told(text: str, at: int) -> bool:
    """Return whether the message that begins here is only told of, in quotes or in a block quote."""
    if is_block_quoted(text, 0, at):
        return True
    body = _BODY.search(text, at, at + HEADER_CHARS)
    if body is None:
        return False
    end = body.end() + find_object_end(text[body.end() : body.end() + BODY_CHARS])
    closed = _BODY_END.match(text, end)
    return find_telling(text, 0, at, closed.end() if closed else end).told


def skip_header_mark(text: str, at: int) -> int:
    """Return the place behind a mark of a header that stands alone, and behind its channel; `at` where none does."""
    mark = _LOST_MARK.match(text, at)
    return mark.end() if mark else at


def split(text: str) -> list[Message]:
    """Split a text into its messages, in order; text without a header is a message of its own."""
    delimiters = list(_DELIMITER.finditer(text))
    ends = [delimiter.start() for delimiter in delimiters[1:]] + [len(text)]
    first, header = _split_header(text[: delimiters[0].start()]) if delimiters else (text, "")
    found: list[Message] = [Message(None, "", first, first, 0)] if first.strip() else []
    raw = header
    for delimiter, end in zip(delimiters, ends, strict=True):
        kind, part = delimiter[1], text[delimiter.end() : end]
        if kind == "message":
            called = text.startswith("<|call|>", end)
            body, following = _split_header(part) if _GOES_ON.match(text, end) else (part, "")
            found.append(_build_message(header, body, f"{raw}{delimiter[0]}{body}", delimiter.end(), called=called))
            header = raw = following
        elif kind in ("start", "channel", "constrain"):
            recipient = _RECIPIENT.search(header)
            if recipient is not None and "{" in header[recipient.end() :]:
                found.append(_build_message(header, "", raw, delimiter.start(), complete=False))
                header = raw = ""
            header, raw = f"{header} {kind}:{part}", f"{raw}{delimiter[0]}{part}"
        else:
            if _RECIPIENT.search(header):
                found.append(_build_message(header, "", raw, delimiter.start(), complete=False))
            part, header = _split_header(part) if end < len(text) or kind == "call" else (part, "")
            raw = header
            if part.strip():
                found.append(Message(None, "", part, part, delimiter.end()))
    if header:
        found.append(_build_message(header, "", raw, len(text), complete=False))
    return found


def _split_header(text: str) -> tuple[str, str]:
    """Part what stands before the first delimiter: prose, and the beginning of a header that lacks its own."""
    header = _HEADER.search(text)
    if header is None or not (begins_sentence(text, header.start()) or text[: header.start()].endswith(("}", "} "))):
        return text, ""
    return text[: header.start()], text[header.start() :]


def _build_message(
    header: str, body: str, raw: str, at: int, *, complete: bool = True, called: bool = False
) -> Message:
    recipient = _RECIPIENT.search(header)
    channel, role = _CHANNEL.search(header), _ROLE.search(header)
    name = None if recipient is None or recipient[1] in _NOBODY else recipient[1].removeprefix("functions.")
    spoken = channel[1] if channel else ""
    if name == "self":
        name, spoken = None, "analysis"
    elif name is None and spoken == "commentary" and (called or "constrain:" in header):
        name = ""
    return Message(name, spoken, body, raw, at, complete, role[1] if role else "")
