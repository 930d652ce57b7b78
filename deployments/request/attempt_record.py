"""The account of one attempt: whether its tier ran, what it used, what was wrong with it.

The attempt loop decides by these records what to do next, and settles the grants by them.
"""

from __future__ import annotations

from deployments.request.attempt import Reading
from reliability.faults import TRAITS, Ran
from reliability.loops import Kind
from reliability.types import Attempt, Failed, Flaw, Usage

__all__ = ["record_attempt"]


def record_attempt(reading: Reading, now_ns: int, *, granted: bool = True) -> Attempt:
    """Write the record of an attempt. Without an end it is the client that left. `granted`: nobody
    who should have been asked was silent."""
    failed = reading.end if isinstance(reading.end, Failed) else None
    flaw, detail = _find_flaw(reading)
    usage, reported = reading.count_usage()
    return Attempt(
        tier=reading.tier,
        ran=_has_run(reading, usage),
        fault=failed.fault if failed else None,
        flaw=flaw,
        detail=failed.message if failed else detail,
        status=failed.status if failed else None,
        param=failed.param if failed else None,
        retry_after_s=failed.retry_after_s if failed else None,
        usage=usage,
        started_ns=reading.started_ns,
        ttft_ns=reading.ttft_ns,
        elapsed_ns=now_ns - reading.started_ns,
        text_out=reading.text_out,
        calls_held=bool(reading.judged and reading.judged.calls),
        cancelled=reading.end is None,
        granted=granted,
        reported=reading.reported or reported,
        native_calls=reading.judged.native_calls if reading.judged else 0,
        lost=reading.lost,
        seam=reading.seam,
    )


def _find_flaw(reading: Reading) -> tuple[Flaw | None, str]:
    judged, who = reading.judged, f"tier {reading.tier}"
    if reading.stopped_in_arguments or _has_broken_call(reading):
        return Flaw.TRUNCATED, f"{who} was stopped: it repeated itself in the arguments of a tool call"
    if reading.loop is not None and not _has_called(reading) and not _has_good_calls(reading):
        if judged is not None and not judged.raw_text.strip():
            return Flaw.EMPTY, f"{who} was stopped: it wrote nothing but white space"
        return Flaw.CYCLE, f"{who} was stopped: it repeated itself"
    if judged is None or judged.flaw is None:
        return None, ""
    if judged.loop is not None:
        return judged.flaw, judged.detail
    return judged.flaw, f"{who}: {judged.detail}"


def _has_called(reading: Reading) -> bool:
    """Tell whether it was stopped for calls that are some: what is quoted, or only reasoned about,
    is a text that repeats itself."""
    judged = reading.judged
    return reading.stopped_for_calls and judged is not None and bool(judged.calls or judged.violations)


def _has_broken_call(reading: Reading) -> bool:
    """Tell whether it was stopped inside of a call that it wrote as text: then it is no text that can be cut."""
    judged, loop = reading.judged, reading.loop
    in_text = loop is not None and loop.kind in (Kind.CYCLE, Kind.WHITESPACE)
    return in_text and judged is not None and judged.flaw is Flaw.TRUNCATED


def _has_good_calls(reading: Reading) -> bool:
    """Tell whether it brought complete and valid calls: they count, whatever the model went on to
    babble behind them."""
    judged = reading.judged
    return judged is not None and judged.flaw is None and bool(judged.calls)


def _has_run(reading: Reading, usage: Usage) -> bool:
    """Tell whether the tier did any work: it wrote something, or cost something, or its fault says
    so."""
    if reading.ttft_ns is not None or usage.total_tokens > 0:
        return True
    ran = TRAITS[reading.end.fault].ran if isinstance(reading.end, Failed) else Ran.RAN
    return ran is Ran.RAN or (ran is Ran.IF_STARTED and reading.accepted)
