"""A request that is still running, as whoever looks is shown it: where it is, for how long, what it has met so far.

Made of the `Run` that `drive` writes, at the moment somebody looks; the request itself does nothing for it. As in a
report, there is no word of its conversation.
"""

from __future__ import annotations

from typing import Any

from deployments.request.run_record import Run

__all__ = ["describe_running"]

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
BYTES_A_TOKEN = 4


def describe_running(run: Run, *, now_ns: int, now_s: float) -> dict[str, Any]:
    """Describe one running request; `now_ns` is a moment of the clock that its deadline is of. `writing`: the first
    word is there. `tokens`: what the tier has counted of its answer so far, or an estimate where it counts at the
    end."""
    last = run.attempts[-1] if run.attempts else None
    met = (last.fault or last.flaw) if last is not None else None
    started_ns = run.deadline_ns - int(run.request.timeout_s * NS_PER_S)
    elapsed_ns = max(0, now_ns - started_ns)
    return {
        "request_id": run.request.request_id,
        "session": run.request.session_id,
        "key": run.key,
        "tier": run.tier,
        "started_at": run.chain[0],
        "at": now_s - elapsed_ns / NS_PER_S,
        "elapsed_ms": elapsed_ns // NS_PER_MS,
        "attempts": len(run.attempts),
        "met": met.value if met is not None else None,
        "writing": _is_writing(run),
        "tokens": _count_tokens(run),
    }


def _is_writing(run: Run) -> bool:
    current = run.current
    return current is not None and current.ttft_ns is not None and current.end is None


def _count_tokens(run: Run) -> int:
    current = run.current
    if current is None or current.ttft_ns is None:
        return 0
    counted = current.spending.counted
    return counted.completion_tokens if counted is not None else current.spending.written_bytes // BYTES_A_TOKEN
