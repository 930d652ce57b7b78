"""Count the values of a JSON text from its bytes, before anything reads it.

Reading, checking and sending a body takes time by its values far more than by its bytes, so a body or an answer with
more than `VALUES_MAX` is refused unread. Ten thousand messages with a call and a result each have 120,000. A value is
a comma or an opening bracket outside of strings; a text with few of these bytes is not looked at further.
"""

from __future__ import annotations

from typing import Any

__all__ = ["VALUES_MAX", "has_more_values", "is_too_deep"]

VALUES_MAX = 200_000
PIECE_BYTES = 128 * 1024
DELIMITERS = (b",", b"[", b"{")


def has_more_values(raw: bytes, values_max: int = VALUES_MAX) -> bool:
    """Tell whether this text has more values than may be. What is no JSON is counted as if it were some."""
    if len(raw) <= values_max or _count_delimiters(raw) <= values_max:
        return False
    found, inside, odd = 0, 0, b""
    for at in range(0, len(raw), PIECE_BYTES):
        piece = odd + raw[at : at + PIECE_BYTES]
        whole = piece.rstrip(b"\\")
        odd = b"\\" * ((len(piece) - len(whole)) % 2)  # it escapes what the next piece begins with
        parts = whole.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        found += _count_delimiters(b"".join(parts[inside::2]))
        inside ^= (len(parts) - 1) % 2
        if found > values_max:
            return True
    return False


def _count_delimiters(raw: bytes) -> int:
    return sum(map(raw.count, DELIMITERS))


def is_too_deep(value: Any, depth_max: int) -> bool:
    """Tell whether a value has a level beyond `depth_max`."""
    level = [value]
    for _ in range(depth_max):
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
    return bool(level)
