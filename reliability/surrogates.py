"""Text that can always be encoded.

JSON may hold half a surrogate pair, and an upstream may send the halves of one character in two chunks; a half
that left for a client would break the encoding of its whole answer.
"""

from __future__ import annotations

__all__ = ["Halves", "join_surrogates"]


def join_surrogates(text: str) -> str:
    """Return `text` with pairs of halves joined, and each half without its other half as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


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
