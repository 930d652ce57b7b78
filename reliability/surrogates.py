"""Text that can always be encoded.

JSON may hold half a surrogate pair, and an upstream may send the halves of one character in two chunks; a half
that left for a client would break the encoding of its whole answer.
"""

from __future__ import annotations

import re
from operator import is_
from typing import Any

_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def may_hold_halves(json_text: str) -> bool:
    """Return whether a JSON text may hold halves of characters: as they are, or escaped."""
    return _HALF.search(json_text) is not None


def join_surrogates(text: str) -> str:
    """Return `text` with pairs of halves joined, and each half without its other half as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def join_all(value: Any) -> Any:
    """Return a JSON value with every text and key in it joined; the same object where all of them were. Raises
    `ValueError`: two keys of one object are the same then, so that one value would be lost."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, list):
        items = [join_all(inner) for inner in value]
        return value if all(map(is_, items, value)) else items
    if not isinstance(value, dict):
        return value
    joined = {join_surrogates(key): join_all(inner) for key, inner in value.items()}
    if len(joined) < len(value):
        raise ValueError("two keys differ in nothing but half characters")
    same = all(map(is_, joined, value)) and all(map(is_, joined.values(), value.values()))
    return value if same else joined


class Halves:
    """A buffer for a first half at the end of a piece, until the next piece brings the second."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def take(self, text: str) -> str:
        """Return what can leave after this piece."""
        if not text:
            return ""
        text, self._held = self._held + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return join_surrogates(text)

    def end(self) -> str:
        """Return what is left, since there is no next piece."""
        held, self._held = self._held, ""
        return join_surrogates(held)
