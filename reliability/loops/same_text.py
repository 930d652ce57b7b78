"""TEXTS: the same text again and again, or two or three texts in turn, with no call between.

An answer that holds nothing but thoughts counts by its thoughts, and one whose call stands in its text by its text. The
rule looks through user messages that only say "go on" or say the same again (see `transcript`); every other user
message re-arms it, and so does a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rapidfuzz import fuzz

from reliability.loops.findings import Turn

__all__ = ["PERIOD_MAX", "count_same_texts"]

TEXT_CHARS = 4_000
PERIOD_MAX = 3
#: So many texts are looked at for each repetition that is asked about.
TEXTS_MAX = 64


def count_same_texts(turns: Sequence[Turn], similarity: float, period: int) -> tuple[int, str]:
    """Count the repetitions of the newest `period` texts, back to the first that differs or to a call. Returns (how
    many, the newest text); a repetition that has begun counts, as one of calls does."""
    texts = list(islice(_walk_back(turns), TEXTS_MAX))
    paired = 0
    while paired + period < len(texts) and _is_alike(texts[paired], texts[paired + period], similarity):
        paired += 1
    if period > 1 and (len(texts) < period or _is_alike(texts[0], texts[1], similarity)):
        return 0, ""
    count = -(-(paired + period) // period) if paired else 1
    return (count, texts[0]) if texts else (0, "")


def _walk_back(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in reversed(turns):
        if turn.calls and not turn.written:
            return
        if turn.text.strip():
            yield " ".join(turn.text[:TEXT_CHARS].split())


def _is_alike(a: str, b: str, similarity: float) -> bool:
    return a == b or fuzz.ratio(a, b, score_cutoff=100 * similarity) > 0
