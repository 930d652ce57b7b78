"""Whether a conversation repeats itself already, so that its next answer is held until it is judged.

The rules of the history are asked for one repetition less than they act on. A yes where the answer is another one costs
the client the stream of that answer, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz import fuzz

from reliability.loops.comparison.findings import Memo, Turn
from reliability.loops.history import find_loop
from reliability.loops.session import Fingerprint, Window
from reliability.loops.thresholds import LoopConfig

_THRESHOLDS = ("duplicate_threshold", "break_threshold", "poller_duplicate_threshold", "poller_break_threshold")
PERIOD_MAX = 4


def repeats_already(turns: Sequence[Turn], config: LoopConfig, memo: Memo | None = None) -> bool:
    """Return whether the next answer may be one repetition too many. `memo`: that of these turns (see `find_loop`)."""
    if not config.enabled:
        return False
    if any(getattr(config, name) == 1 for name in _THRESHOLDS):
        return True  # every answer is
    lowered = config.model_copy(update={name: getattr(config, name) - 1 for name in _THRESHOLDS})
    return find_loop(turns, lowered, memo=memo) is not None


def window_repeats_already(window: Window, config: LoopConfig) -> bool:
    """Return whether the newest answer of a session stood in it shortly before."""
    if not config.enabled or not window.answers:
        return False
    newest = window.answers[-1]
    return any(_is_alike(newest, older, config) for older in window.answers[-PERIOD_MAX - 1 : -1])


def _is_alike(newest: Fingerprint, older: Fingerprint, config: LoopConfig) -> bool:
    if newest.calls or older.calls:
        return newest.calls == older.calls
    return fuzz.ratio(newest.text, older.text, score_cutoff=100 * config.similarity_threshold) > 0
