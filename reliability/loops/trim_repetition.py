"""Taking the circles off the end of a text, so that what is written behind it may stand behind all of it.

    told      First, open it. The pump runs. It stops. The pump runs. It stops. (…) The pump runs. It sto
    unwound   First, open it. The pump runs. It stops. The pump runs. It sto

Both end in the same words: who goes on with the second has gone on with the first. Shown the first, a model only writes
the next copy. Where copies differ (a counter, a word) a shorter end has to do.

Measured on SmolLM2-135M alone (temperature 0, 12 prompts for long texts of at most 900 tokens, 2026-11-24, two CPU
cores): 6 answers circled; gone on with from here at temperature .7, 3 came to an end of their own, 1 to the end of its
tokens, 2 circled again. Every seam reads as one text ("from the majestic jaguar to│ the majestic elephant").

Pure. What must never happen: a result that isn't a beginning of the text.
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
