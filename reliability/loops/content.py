"""What a message says, and whether the user said it.

Not the user's are tool results in a user-role message and what stands beside them, reminders that a harness wraps in
its tags, and our own nudges. Parts that are no text stand in a text by their digest; a long one is sampled first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

from reliability.loops.comparison.findings import digest, dumps
from reliability.loops.comparison.volatile_fields import phrase_set

Message = dict[str, Any]

SAMPLE_CHARS = 8_192
#: Every message that this server injects starts like this, so that it is never mistaken for the user.
NOTICE = "[Reliability notice"
#: Elements in which agent harnesses wrap what they add to the user's side of a conversation.
HARNESS_TAGS = ("system-reminder", "system_reminder", "environment_details", "environment_context")
#: A text that is made of such elements and nothing else; each is read once.
_WRAPPED = re.compile(rf"(?:\s*+(?><({'|'.join(HARNESS_TAGS)})>.*?</\1>))++\s*+", re.DOTALL)
#: How messages begin that a harness writes in the user's name: the state of the files, the result of a check.
_REPORTS = re.compile(
    r"\s*(?:I have \*added these files|I updated the files\b|These files have been added|Here are "
    r"summaries of some files"
    r"|Here are (?:some )?READ ONLY files|I am working with you on code in a git repo|The above "
    r"context|\[?(?:Tool|Command) (?:result|output)"
    r"|<(?:tool_response|function_results?|observation|output)>|Observation:|\[\w+ for '[^'\n]{0,200}'\] Result)",
    re.IGNORECASE,
)
GO_ON = phrase_set(
    "|continue|please continue|go on|please go on|keep going|proceed|please proceed|go ahead|carry on|resume|ok|okay"
    "|next|keep working|continue working|continue working on it|please continue working on it"
    "|please continue working on the task"
)
GO_ON_CHARS = max(map(len, GO_ON))


def blocks_of(message: Message) -> list[Message]:
    """Return the parts of a message that is made of parts."""
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def type_of(block: Message) -> str:
    """Return the type that a block or an item names; empty where it names none."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def text_of(content: Any) -> str:
    """Return the text of a message's content; parts that are no text stand in it by their digest."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, Sequence):
        return dumps(content)
    return "\n".join(_read_part(part) for part in content)


def _read_text(part: Any) -> str | None:
    text = part.get("refusal" if part.get("type") == "refusal" else "text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None


def _read_part(part: Any) -> str:
    text = part if isinstance(part, str) else _read_text(part)
    return text if text is not None else f"<part {digest(dumps(_sample(part)))}>"


def _sample(value: Any, depth: int = 8) -> Any:
    """Thin out every long text of the value (most often an image), so that its digest stays cheap."""
    if isinstance(value, str) and len(value) > SAMPLE_CHARS:
        return [len(value), value[:1024], value[:: len(value) // SAMPLE_CHARS + 1], value[-1024:]]
    if isinstance(value, dict) and depth:
        return {str(k): _sample(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list) and depth:
        return [_sample(v, depth - 1) for v in value]
    return value


def read_answer_text(message: Message) -> str:
    """Read the text of an answer, without its call and reasoning blocks; where it has none, its refusal."""
    content = message.get("content") or message.get("refusal")
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part if isinstance(part, str) else _read_text(part) for part in content]
    return "\n".join(text for text in texts if isinstance(text, str))


class Who(Enum):
    """What a user-role message turned out to be."""

    NOBODY = 1  # tool results and what stands beside them, a harness's reminder, our own nudge
    REPORTS = 2  # a harness, in the user's name
    GOES_ON = 3
    SPEAKS = 4


def read_spoken_text(message: Message) -> str:
    """Return the text of a user-role message without its tool results."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part if isinstance(part, str) else _read_text(part) for part in parts)
    return "\n".join(text for text in texts if text)


def list_other_parts(message: Message) -> list[Message]:
    """Return the parts of a user-role message that are neither text nor a tool result: images, files."""
    return [
        part for part in blocks_of(message) if _read_text(part) is None and not type_of(part).endswith("tool_result")
    ]


def classify_speaker(message: Message) -> Who:
    """Tell whether a user-role message could be the user's own, is a bare "go on", a harness's report, or nobody's."""
    if any(type_of(part).endswith("tool_result") for part in blocks_of(message)):
        return Who.NOBODY
    text = read_spoken_text(message)
    if text.startswith(NOTICE) or _WRAPPED.fullmatch(text):
        return Who.NOBODY
    if _REPORTS.match(text):
        return Who.REPORTS
    if list_other_parts(message) or not isinstance(message.get("content") or "", (str, list)):
        return Who.SPEAKS
    words = text.strip().strip(".!… ")
    return Who.GOES_ON if len(words) <= GO_ON_CHARS and words.lower() in GO_ON else Who.SPEAKS
