"""What a request's journey looks like to others: headers before the body, the report after it, and how it stands now.

The headers go out before the outcome of a stream is known, so its last chunk carries the whole report as the extension
field `mlx_stack`, and `GET /v1/reliability/requests/{id}` serves it later. None has a word of the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from types import MappingProxyType
from typing import Any

from deployments.config.tier_cost import Price, cost_usd
from deployments.request.judge import Advice
from deployments.request.run_record import Run
from deployments.work.json_text import write_json
from reliability.admission.budget import WARN_PERCENT
from reliability.attempt import Attempt
from reliability.escalation.policies import reason_of
from reliability.escalation.refusals import figure
from reliability.memory.pressure import Level
from reliability.prefix import LostPrefix, PrefixChange
from reliability.types import Flaw, Prefilled, Reason, Usage

_NS_PER_MS, _NS_PER_S = 1_000_000, 1_000_000_000
_UNCHECKED_MAX = 8
_NOTE_CHARS_MAX = 300
_NOTES_MAX = 32
_REPORT_BYTES_MAX = 131_072
_NAME_CHARS_MAX = 80
# A conversation that begins has nothing to lose: no note.
_ANEW = (PrefixChange.NEW_CONVERSATION,)
_SEAM_WORDS = "went on with the text that stood before the client, at character"
#: How the header names a level.
_LEVEL_WORDS = {Level.WARN: "warning", Level.CRITICAL: "critical"}


def report_headers(run: Run) -> dict[str, str]:
    """Build the `X-MLX-Stack-*` headers as far as the request has come. `Retries`: the calls beyond the first."""
    ran, running = sum(1 for a in run.attempts if a.ran), _is_running(run)
    # A running attempt isn't in the record yet, so those before it are extra calls.
    return write_headers(_describe_way(run) | {"retries": ran if running else run.retries}, ran + running)


def write_headers(report: Mapping[str, Any], attempts: int) -> dict[str, str]:
    """Write the headers of a report's fields, and of so many calls to tiers."""
    known = {
        "X-MLX-Stack-Session": report["session"],
        "X-MLX-Stack-Tier": report["tier"],
        "X-MLX-Stack-Retries": str(report["retries"]),
        "X-MLX-Stack-Attempts": str(attempts),
        "X-MLX-Stack-Escalated-From": report["escalated_from"],
        "X-MLX-Stack-Escalation-Reason": report["escalation_reason"],
        "X-MLX-Stack-Loop": report["loop"] if report["loop"] != "detected" else None,
        "X-MLX-Stack-Repaired": ", ".join(report["repairs"]) or None,
        "X-MLX-Stack-Shortened": str(report["shortened"]) if report["shortened"] else None,
        # How full each window is it says itself.
        "X-MLX-Stack-Budget-Warning": f"{WARN_PERCENT}%" if report["budget"] else None,
        "X-MLX-Stack-Memory-Pressure": _LEVEL_WORDS.get(report["memory_pressure"]),
    }
    return {name: value for name, value in known.items() if value is not None}


def _describe_way(run: Run) -> dict[str, Any]:
    """Describe what the headers and the report have in common."""
    left, reason = run.escalation or (None, None)
    repairs = run.judged.repairs if run.judged is not None and run.finish is not None else ()
    return {
        "session": run.request.session_id,
        "tier": run.tier,
        "escalated_from": left,
        "escalation_reason": _name_of(reason),
        "retries": run.retries,
        "loop": _loop_mark(run) if run.loop is not None else None,
        "repairs": sorted({repair.kind.value for repair in repairs}),
        "shortened": run.shortened,
        "budget": [{"window": load.window.value, "percent": load.percent} for load in run.warnings],
        "memory_pressure": run.level.value,
    }


def _loop_mark(run: Run) -> str:
    """Return what was done about a loop. `broken`: the circuit broke, or an answer that repeated itself was stopped.
    `nudged`: the model was shown a nudge. `detected`: too late for either, the text had left."""
    if any(reason_of(a) is Reason.LOOP_DETECTED and a.flaw is not Flaw.LOOP for a in run.attempts):
        return "broken"
    if _is_running(run):
        return "nudged"  # by the attempt that is running
    first = next((i for i, a in enumerate(run.attempts) if a.flaw is Flaw.LOOP), len(run.attempts))
    if any(a.ran for a in run.attempts[first + 1 :]):
        return "nudged"
    return "detected"


def session_header(run: Run) -> dict[str, str]:
    """Build the header that is known before any tier has answered."""
    return {"X-MLX-Stack-Session": run.request.session_id}


def _is_running(run: Run) -> bool:
    return run.finish is None and run.refusal is None


def report_of(
    run: Run,
    *,
    advice: Advice | None = None,
    started_ns: int = 0,
    total_ns: int = 0,
    prices: Mapping[str, Price] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build the whole report, JSON-ready. No prompt and no secret; a detail may quote some words of a bad call.
    `started_ns`: when its first byte came; `total_ns`: from there to its end. `overhead_ms`: without its attempts."""
    outcome = "client_left" if run.finish is None else "answered"
    if run.refusal is not None:
        outcome = run.refusal.code.value
    attempts = [_describe_attempt(a, prices, started_ns) for a in run.attempts]
    judged = advice.run.attempts if advice and advice.run else []
    judge_attempts = [_describe_attempt(a, prices, started_ns) for a in judged]
    model_ns = sum(a.elapsed_ns for a in (*run.attempts, *judged))
    costs = [a["cost_usd"] for a in (*attempts, *judge_attempts) if a["cost_usd"] is not None]
    report = {
        "request_id": run.request.request_id,
        "parent": run.request.parent or None,
        "key": run.key,
        "outcome": outcome,
        **_describe_way(run),
        "continued": any(attempt.seam is not None and attempt.text_out for attempt in run.attempts),
        "notes": _write_notes(run),
        "total_ms": round(total_ns / _NS_PER_MS, 3),
        "overhead_ms": round(max(0, total_ns - model_ns) / _NS_PER_MS, 3),
        "cost_usd": sum(costs) if costs else None,
        "state_silent": run.silent,
        "attempts": attempts,
        "judge": None if advice is None else _describe_judge(advice, judge_attempts),
    }
    if len(write_json(report)) > _REPORT_BYTES_MAX:
        _shorten(report)
    return report


def _shorten(report: dict[str, Any]) -> None:
    """Leave out of a report that is too long what may quote others."""
    report["notes"] = ["this report was too long: its notes and details are left out"]
    for attempt in (*report["attempts"], *(report["judge"] or {"attempts": ()})["attempts"]):
        attempt |= {"detail": None, "cache_lost": None}


def _write_notes(run: Run) -> list[str]:
    """Write what had no effect, was done less strictly, wasn't checked, wasn't believed, or was computed anew."""
    finish = [*run.finish.notes, *_list_unchecked(run)] if run.finish is not None else []
    notes = [
        *run.notes,
        *finish,
        *(_describe_usage(a.tier, a.reported, a.usage) for a in run.attempts if a.reported and a.usage),
        *(_write_lost(a.tier, a.lost) for a in run.attempts if a.lost is not None and a.lost.changes != _ANEW),
        *(f"tier {a.tier}: {_SEAM_WORDS} {figure(a.seam)}" for a in run.attempts if a.seam is not None and a.text_out),
    ]
    more = [f"and {len(notes) - _NOTES_MAX} more notes"] if len(notes) > _NOTES_MAX else []
    return [note[:_NOTE_CHARS_MAX] for note in notes[:_NOTES_MAX]] + more


def _write_lost(tier: str, lost: LostPrefix) -> str:
    where = f"cache lost at token {figure(lost.token)} of {figure(lost.of)}"
    return f"tier {tier}: {where}: {lost.detail}"


def _list_unchecked(run: Run) -> list[str]:
    """List what the schemas demand that was not checked, and why the text has another form than `response_format`."""
    called = {call.name for call in run.judged.calls} if run.judged is not None else set()
    found: list[str] = []
    for tool in run.expected.toolbox.tools:
        if tool.name in called:
            words = f"not checked in the arguments of {tool.name[:_NAME_CHARS_MAX]}"
            found += [f"{words}: {what}" for what in tool.unchecked]
    form = None if called else run.expected.form
    if form is not None:
        found += [f"not checked in response_format: {what}" for what in form.schema.unchecked]
    if run.judged is not None and run.judged.flaw is Flaw.FORM_INVALID:
        found.append(run.judged.detail)
    return found[:_UNCHECKED_MAX]


def _describe_usage(tier: str, reported: Usage, booked: Usage) -> str:
    tokens = f"{reported.prompt_tokens} prompt and {reported.completion_tokens} completion tokens"
    instead = f"{booked.prompt_tokens} and {booked.completion_tokens} are booked"
    return f"tier {tier} reported {tokens}, which can't be: {instead}"


def _describe_judge(advice: Advice, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    case = advice.case
    return {
        "trouble": case.trouble.value,
        "tool": case.tool and case.tool[:_NAME_CHARS_MAX],
        "count": case.count,
        "by": advice.by,
        "injected": advice.words is not None,
        "attempts": attempts,
    }


def _name_of(kind: Enum | None) -> Any:
    return kind.value if kind is not None else None


def _describe_attempt(attempt: Attempt, prices: Mapping[str, Price], started_ns: int) -> dict[str, Any]:
    lost, thought = None, attempt.thinking
    if attempt.lost is not None:
        changed = [change.value for change in attempt.lost.changes]
        where = {"at_token": attempt.lost.token, "of_tokens": attempt.lost.of}
        lost = where | {"changed": changed, "detail": attempt.lost.detail[:_NOTE_CHARS_MAX]}
    return {
        "tier": attempt.tier,
        "ran": attempt.ran,
        "fault": _name_of(attempt.fault),
        "flaw": _name_of(attempt.flaw),
        "detail": attempt.detail or None,
        "native_calls": attempt.native_calls,
        "seam": attempt.seam,
        "confidence": _round(attempt.confidence.likely),
        "signs": {name: _round(value) for name, value in attempt.confidence.signs.items()},
        "thinking": None if thought is None else {"tokens": thought.tokens, "ended": _name_of(thought.ended)},
        "cancelled": attempt.cancelled,
        "at_ms": None if attempt.started_ns is None else max(0, attempt.started_ns - started_ns) // _NS_PER_MS,
        "elapsed_ms": attempt.elapsed_ns // _NS_PER_MS,
        "ttft_ms": None if attempt.ttft_ns is None else attempt.ttft_ns // _NS_PER_MS,
        "usage": usage_json(attempt.usage) if attempt.usage else None,
        "estimated": attempt.usage is not None and not attempt.usage.exact,
        "cache_lost": lost,
        "granted": attempt.granted,
        "cost_usd": cost_usd(attempt.usage, prices.get(attempt.tier)) if attempt.ran else None,
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def usage_json(usage: Usage) -> dict[str, Any]:
    """Build OpenAI's usage object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def prefill_json(prefill: Prefilled) -> dict[str, Any]:
    """Build the object that says how far a prompt is read."""
    return asdict(prefill) | {"left_s": round(prefill.left_s, 1)}


def write_prefill(prefill: Mapping[str, Any]) -> str:
    """Write what that object says in words."""
    of_tokens, ahead = prefill["of_tokens"], prefill["waits_behind"]
    if ahead is None:
        return f"prefill {prefill['tokens']:,} of {of_tokens:,} tokens, about {prefill['left_s']:.0f} s left"
    return f"prefill of {of_tokens:,} tokens waits, {ahead} before it" if of_tokens else "waiting for a replica"


def describe_running(run: Run, *, now_ns: int, now_s: float) -> dict[str, Any]:
    """Describe one running request; `now_ns` is of its deadline's clock. `writing`: the first token is there. `tokens`:
    of its answer so far, or an estimate."""
    last = run.attempts[-1] if run.attempts else None
    met = (last.fault or last.flaw) if last is not None else None
    current = run.current
    started_ns = run.deadline_ns - int(run.request.timeout_s * _NS_PER_S)
    elapsed_ns = max(0, now_ns - started_ns)
    return {
        "request_id": run.request.request_id,
        "session": run.request.session_id,
        "key": run.key,
        "tier": run.tier,
        "started_at": run.chain[0],
        "at": now_s - elapsed_ns / _NS_PER_S,
        "elapsed_ms": elapsed_ns // _NS_PER_MS,
        "attempts": len(run.attempts),
        "met": _name_of(met),
        "writing": current is not None and current.ttft_ns is not None and current.end is None,
        "tokens": 0 if current is None or current.ttft_ns is None else current.spending.written_tokens,
        "prefill": None if current is None or current.prefilling is None else prefill_json(current.prefilling),
    }
