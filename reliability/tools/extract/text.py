"""JSON with text around it: what may be taken off without loss, and what is data and may not.

"Here are the arguments:", a fence, a remark, one brace too many: taking that off is lossless only while it holds no
data, which has brackets, quoted keys or an equals sign. When in doubt the whole is unreadable. Blank is what JSON calls
white space: a client's reader would refuse the whole for a no-break space.
"""

from __future__ import annotations

import re
from dataclasses import replace

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable, Value, read

TEXT_CHARS_MAX = 4_000

_SPACE = " \t\r\n"
_FENCE_BEFORE = re.compile(r"`{3,}[\w-]{0,32}\s*\Z")
_FENCE_AFTER = re.compile(r"\s*`{3,}")
_STRAY = re.compile(r"[\s}\]>)]*+[.;,]?\s*\Z")
_DATA = re.compile(r"[{}\[\]\"=`]")
_LABEL = re.compile(r"[^\s:]++\s++[^\s:][^:]*+:\s*\Z|[^:]*+\Z")


def is_harmless_before(text: str, *, fenced: bool = False) -> bool:
    """Return whether this is prose in front of a value. `name: {` is a key, "Here is the answer: {" is not."""
    if len(text) > TEXT_CHARS_MAX or _DATA.search(text):
        return False
    return fenced or _LABEL.match(text) is not None


def is_harmless_after(text: str) -> bool:
    """Return whether this is prose, or brackets too many, behind a complete value."""
    if _STRAY.match(text):
        return True
    rest = text.lstrip(_SPACE + "}])")
    return (
        len(text) <= TEXT_CHARS_MAX
        and not _DATA.search(rest)
        and not rest[:1].isdigit()
        and rest[:1] not in (",", ":", "'")
    )


def find_object_end(text: str) -> int:
    """Find the place behind the object with which a text begins; 0 where it begins with none."""
    try:
        value = read(text)
    except Unreadable:
        return 0
    return value.end if isinstance(value.value, dict) else 0


def read_arguments(text: str) -> Value | str:
    """Read the one value in a text, or give the reason why there is none. Nothing that looks like data
    is left out."""
    try:
        value = read(text)
        if not text[value.end :].strip(_SPACE):
            return value
    except Unreadable as bad:
        reason = bad.reason
    else:
        reason = "there is more than one value"
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    return reason if start < 0 else _read_surrounded(text, start, reason)


def _read_surrounded(text: str, start: int, reason: str) -> Value | str:
    """Read the value at `start`, if only fences and prose stand around it."""
    try:
        value = read(text, start)
    except Unreadable as bad:
        return bad.reason
    kinds = list(value.repair_kinds)
    window = max(0, start - 64)
    fence = _FENCE_BEFORE.search(text, window, start)
    before = text[: fence.start() if fence else start]
    closing = _FENCE_AFTER.match(text, value.end)
    after = text[closing.end() if closing else value.end :]
    if fence or closing:
        kinds.append(RepairKind.FENCE)
    if before.strip(_SPACE) or after.strip(_SPACE):
        kinds.append(RepairKind.EXTRA_TEXT)
    if not is_harmless_before(before.strip(), fenced=fence is not None) or not is_harmless_after(after):
        return reason
    return replace(value, end=len(text), repair_kinds=tuple(dict.fromkeys(kinds)))
