"""Take the repetition off the end of a text, so that what is written behind it may stand behind all of it.

    delivered   First, open it. The pump runs. It stops. The pump runs. It stops. (…) The pump runs. It sto
    trimmed     First, open it. The pump runs. It stops. The pump runs. It sto

Both end in the same words, so a text that continues the second continues the first; shown the first, a model only
writes the next copy. Where copies differ a shorter end has to do.

Invariant: the result is a beginning of the text.
"""

from __future__ import annotations

from reliability.loops.in_answer import truncate

__all__ = ["trim_repetition"]

END_CHARS = 24
NEAR_CHARS = 600
SHORTER_ENDS = (16, 12, 8, 6, 4, 3, 2, 1)


def trim_repetition(text: str) -> str:
    """Return the beginning of the text that ends as it does, with about one copy of what it ends in many of; a text
    without a circle is returned as it is."""
    kept = truncate(text)
    if kept == text:
        return text
    return _walk_back(text, kept) or _find_end(text, kept) or kept


def _walk_back(text: str, kept: str) -> str:
    """Go back by whole copies, as long as they are the same."""
    end = text[-END_CHARS:]
    before = text.rfind(end, 0, len(text) - 1)
    period, stop = len(text) - len(end) - before, len(text)
    while before >= 0 and text.endswith(end, 0, stop - period):
        stop -= period
    return text[:stop] if _is_early(stop, text, kept) else ""


def _find_end(text: str, kept: str) -> str:
    """Find the same end, as much of it as there is, soon behind what is worth keeping."""
    for chars in SHORTER_ENDS:
        stop = text.find(text[-chars:], len(kept) - chars) + chars
        if stop <= len(kept) + NEAR_CHARS and _is_early(stop, text, kept):
            return text[:stop]
    return ""


def _is_early(stop: int, text: str, kept: str) -> bool:
    return stop <= (len(kept) + len(text)) // 2
