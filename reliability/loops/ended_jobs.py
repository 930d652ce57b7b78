"""Decide whether a poll's result says that its job doesn't exist or has ended.

Then the poll waits for nothing. A job that has ended beside one that runs, is queued or restarts is waited for.
"""

from __future__ import annotations

import re

from reliability.loops.comparison.volatile_fields import STATUS_KEYS

_CHARS = 400  # a longer result is a log, in which something may have ended; so much of it is read for a state
_JOB = r"(?:process|session|shell|terminal|job|task|agent|command|run|build|deployment|execution|thread|p?id)"
_ID = r"(?: (?:with )?(?:id )?| ?[:#=(] ?)?['\"]?(?:[\w.-]{1,40}['\"]?\)?)? ?:? ?"
_HAS = rf"\b{_JOB}{_ID}(?:(?:is|was|has|have|been|already) ){{0,3}}"
_GONE = re.compile(
    rf"\b(?:unknown|invalid|no such) {_JOB}\b|\bno (?:running |active )?{_JOB}"
    r"(?=\W*\Z| (?:found|with|named|is|id)\b| (?!(?:available|assigned|due|open|left|ready)\b)\w{1,20}\W*\Z)"
    rf"|{_HAS}(?:not[ _]found|unknown|exited|terminated|killed|expired|cancell?ed|(?:does not|doesn't) exist"
    r"|(?:no longer |not )(?:running|active|alive)|finished|ended|completed|succeeded|failed)\b"
    r"|(?:id|session|shell|process|job|task|command|parameter|argument|field|property)\W? is required\b"
    r"|\b(?:missing|invalid) (?:required )?(?:parameter|argument|field|property)\b",
    re.IGNORECASE,
)
#: A clause that ends with it and denies nothing.
_RUNS = (
    r"(?:\A|[\n.;,])(?:(?!\b(?:no|not|none|nothing|longer|while|error|fail\w*)\b|n't)[^\n.;,]){0,60}\brunning\b"
    r"(?=\W*(?:[\n.;,(]|\Z))"
)
_GOES_ON = re.compile(
    r"\b(?:yet|queued?|waiting|pending|still|starting|remaining|left|to go|going|not (?:completed?|finished|done|ready)"
    r"|in progress|(?:retry|respawn|restart)\w*|next)\b|>running<|\b\d+ ?(?:/|of) ?\d+\b|\b\w{3,20}ing:? \d\d? ?%"
    rf"|{_RUNS}",
    re.IGNORECASE,
)
_OVER = re.compile(
    rf"(?:\A\W*|[\"'<, ])(?:{'|'.join(STATUS_KEYS)}|done|finished|completed)\W{{1,4}}"
    r"(?:completed?|finished|done|success|succeeded|failed|cancell?ed|stopped|not[ _]found|true)\b",
    re.IGNORECASE,
)
#: A container or a service that stands still, unless something beside it is up.
_STOPPED = re.compile(r"\bexited \(\d+\)|^\s*active: failed\b", re.IGNORECASE | re.MULTILINE)
_UP = re.compile(r"\bup (?:\d|about|less)", re.IGNORECASE)


def has_stopped(result: str) -> bool:
    """Return whether the result shows containers or a service that have ended, and none that is up or begins again."""
    said = result[: 10 * _CHARS]
    return _STOPPED.search(said) is not None and _UP.search(said) is None and _GOES_ON.search(said) is None


def tells_end(result: str, *, by_state: bool) -> bool:
    """Return whether the result says that a job doesn't exist or has ended; with `by_state`, a final state says so."""
    said = result[:_CHARS]
    if _GOES_ON.search(said):
        return False
    gone = has_stopped(result) or (len(result) <= _CHARS and _GONE.search(said) is not None)
    return gone or (by_state and _OVER.search(said) is not None)
