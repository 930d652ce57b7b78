"""What a request's journey looks like to the client: headers before the body, the same facts after it.

The headers go out before the outcome of a stream is known, so the last chunk of a stream carries the whole report as
the extension field `mlx_stack`, and `GET /v1/reliability/requests/{id}` serves it later.
"""

from __future__ import annotations

from typing import Any

from deployments.drive import Run
from reliability.types import Attempt, Flaw, Usage

__all__ = ["report_headers", "report_of", "session_header", "usage_json"]

NS_PER_MS = 1_000_000


def report_headers(run: Run) -> dict[str, str]:
    """The `X-MLX-Stack-*` headers as far as the request has come. `Retries` counts every call beyond the first."""
    headers = session_header(run) | {"X-MLX-Stack-Retries": str(_retries_now(run))}
    if run.tier is not None:
        headers["X-MLX-Stack-Tier"] = run.tier
    if run.escalation is not None:
        tier, reason = run.escalation
        headers["X-MLX-Stack-Escalated-From"] = tier
        headers["X-MLX-Stack-Escalation-Reason"] = reason.value
    if run.loop is not None:
        headers["X-MLX-Stack-Loop"] = loop_mark(run)
    repaired = repairs_of(run)
    if repaired:
        headers["X-MLX-Stack-Repaired"] = ", ".join(repaired)
    return headers


def loop_mark(run: Run) -> str:
    """`broken` where the circuit broke, or an answer was stopped in its circles; else `nudged`."""
    return "broken" if any(a.flaw in (Flaw.CIRCUIT_BREAK, Flaw.CYCLE) for a in run.attempts) else "nudged"


def repairs_of(run: Run) -> list[str]:
    """The kinds of repairs on the calls that were delivered, each once."""
    delivered = run.judged if run.finish is not None else None
    return sorted({repair.kind.value for repair in delivered.repairs}) if delivered else []


def session_header(run: Run) -> dict[str, str]:
    """What is known before any tier has answered."""
    return {"X-MLX-Stack-Session": run.request.session_id}


def _retries_now(run: Run) -> int:
    """While an attempt runs it isn't in the record yet, so the ones before it are all extra calls."""
    if run.finish is None and run.refusal is None:
        return sum(1 for a in run.attempts if a.ran)
    return run.retries


def report_of(run: Run) -> dict[str, Any]:
    """The whole report, JSON-ready. No prompt, no answer, no key."""
    escalation = run.escalation
    return {
        "request_id": run.request.request_id,
        "session": run.request.session_id,
        "outcome": _outcome(run),
        "tier": run.tier,
        "escalated_from": escalation[0] if escalation else None,
        "escalation_reason": escalation[1].value if escalation else None,
        "retries": run.retries,
        "loop": loop_mark(run) if run.loop is not None else None,
        "repairs": repairs_of(run),
        "attempts": [_attempt(a) for a in run.attempts],
    }


def _outcome(run: Run) -> str:
    if run.refusal is not None:
        return run.refusal.code.value
    return "answered" if run.finish is not None else "client_left"


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "tier": attempt.tier,
        "ran": attempt.ran,
        "fault": attempt.fault.value if attempt.fault else None,
        "flaw": attempt.flaw.value if attempt.flaw else None,
        "detail": attempt.detail or None,
        "cancelled": attempt.cancelled,
        "elapsed_ms": attempt.elapsed_ns // NS_PER_MS,
        "ttft_ms": None if attempt.ttft_ns is None else attempt.ttft_ns // NS_PER_MS,
        "usage": usage_json(attempt.usage) if attempt.usage else None,
    }


def usage_json(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
