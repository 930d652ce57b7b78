"""The spans of a finished request, from its report: request → attempt → tool check.

    chat                    the request, from its first byte to its end
    ├─ chat MODEL           an attempt: one call to one tier
    │  └─ check_tool_calls  its answer held against the request's tools: no time of its own is known, so it has none
    └─ chat MODEL           the next one, or a call to the auxiliary judge

Names are those of OpenTelemetry's conventions for generative AI where they have one (`gen_ai.*`, written out here,
since they are not stable yet), else `mlx_stack.*`. All of it is known when the request is over, so nothing is measured
for it.

What must never happen: words of a prompt, of an answer or of a tool's arguments in a span; the name of a session, which
may be a person's (it is its digest, as in the log).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deployments.telemetry import session_tag
from reliability.types import TierStatus

__all__ = ["SpanFacts", "Value", "find_spans"]

NS_PER_MS = 1_000_000
WELL = ("answered", "client_left")

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFacts:
    """One span. `error`: why it went wrong, one word of a closed set."""

    name: str
    kind: Literal["server", "client", "internal"]
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    error: str | None = None
    children: tuple[SpanFacts, ...] = ()


def find_spans(
    report: Mapping[str, Any], *, ended_ns: int, statuses: Mapping[str, TierStatus], checked: bool
) -> SpanFacts:
    """Find the spans of a report whose request ended at `ended_ns` (since 1970). `checked`: the request declared tools,
    so each answer was held against them."""
    start_ns = ended_ns - int(report["total_ms"] * NS_PER_MS)
    judged = report["judge"]["attempts"] if report["judge"] else []
    calls = [(attempt, False) for attempt in report["attempts"]] + [(attempt, True) for attempt in judged]
    ran = [(attempt, judge) for attempt, judge in calls if attempt["ran"] and attempt["at_ms"] is not None]
    children = [
        _find_attempt(attempt, start_ns, ended_ns, statuses.get(attempt["tier"]), judge=judge, checked=checked)
        for attempt, judge in ran
    ]
    return SpanFacts(
        name="chat",
        kind="server",
        start_ns=start_ns,
        end_ns=ended_ns,
        attributes=dict(_list_request(report)),
        error=None if report["outcome"] in WELL else report["outcome"],
        children=tuple(sorted(children, key=lambda child: child.start_ns)),
    )


def _list_request(report: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    yield "gen_ai.operation.name", "chat"
    yield "gen_ai.provider.name", "mlx_stack"
    yield "gen_ai.conversation.id", session_tag(report["session"])
    yield "mlx_stack.request_id", report["request_id"]
    skipped = tuple(f"{one['tier']}: {one['fault'] or one['flaw']}" for one in report["attempts"] if not one["ran"])
    if skipped:
        yield "mlx_stack.skipped", skipped
    if report["repairs"]:
        yield "mlx_stack.repairs", tuple(report["repairs"])
    for name in (
        "outcome", "tier", "escalated_from", "escalation_reason", "retries", "loop", "overhead_ms", "cost_usd",
        "memory_pressure",
    ):  # fmt: skip
        if report[name] is not None:
            yield f"mlx_stack.{name}", report[name]


def _find_attempt(
    attempt: Mapping[str, Any],
    request_ns: int,
    ended_ns: int,
    status: TierStatus | None,
    *,
    judge: bool,
    checked: bool,
) -> SpanFacts:
    start_ns = min(request_ns + attempt["at_ms"] * NS_PER_MS, ended_ns)
    end_ns = min(start_ns + attempt["elapsed_ms"] * NS_PER_MS, ended_ns)
    model = (status.model if status else None) or attempt["tier"]
    has_answer = checked and not judge and not attempt["fault"] and not attempt["cancelled"]
    return SpanFacts(
        name=f"chat {model}",
        kind="client",
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=dict(_list_attempt(attempt, model, status, judge=judge)),
        error=attempt["fault"] or attempt["flaw"],
        children=(_find_check(attempt, end_ns),) if has_answer else (),
    )


def _list_attempt(
    attempt: Mapping[str, Any], model: str, status: TierStatus | None, *, judge: bool
) -> Iterator[tuple[str, Value]]:
    yield "gen_ai.operation.name", "chat"
    yield "gen_ai.provider.name", status.kind if status else "unknown"
    yield "gen_ai.request.model", model
    yield "mlx_stack.tier", attempt["tier"]
    if judge:
        yield "mlx_stack.judge", True
    if attempt["cancelled"]:
        yield "mlx_stack.cancelled", True
    if attempt["ttft_ms"] is not None:
        yield "gen_ai.response.time_to_first_chunk", attempt["ttft_ms"] / 1000
    if attempt["cost_usd"] is not None:
        yield "mlx_stack.cost_usd", attempt["cost_usd"]
    usage = attempt["usage"]
    if usage is not None:
        yield "gen_ai.usage.input_tokens", usage["prompt_tokens"]
        yield "gen_ai.usage.output_tokens", usage["completion_tokens"]
        yield "gen_ai.usage.cache_read.input_tokens", usage["prompt_tokens_details"]["cached_tokens"]
        yield "gen_ai.usage.reasoning.output_tokens", usage["completion_tokens_details"]["reasoning_tokens"]
        yield "mlx_stack.usage_estimated", attempt["estimated"]


def _find_check(attempt: Mapping[str, Any], at_ns: int) -> SpanFacts:
    return SpanFacts(
        name="check_tool_calls",
        kind="internal",
        start_ns=at_ns,
        end_ns=at_ns,
        attributes={"mlx_stack.tier": attempt["tier"], "mlx_stack.native_calls": attempt["native_calls"]},
        error=attempt["flaw"],
    )
