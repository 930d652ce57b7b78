"""Traces by OpenTelemetry: the spans of a finished request, from its report, to an OTLP collector. Off by default.

    chat ─▶ chat MODEL (an attempt, or a call to the judge) ─▶ check_tool_calls

A thread makes the spans. The standard `OTEL_*` variables hold; a client's `traceparent` is continued. Invariants: no
request, and no end of this process, waits for a collector; a span has no words of a prompt, an answer or arguments, and
of a session's name only the digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deployments.config.app_config import TelemetryConfig
from deployments.config.config_errors import ConfigError
from deployments.telemetry import log_error, log_warning, session_tag
from reliability.types import TierStatus

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_NS_PER_MS = 1_000_000
_QUEUE_MAX = 2048
_CLOSE_S = 2.0
_SERVICE = "mlx-stack-serve"
_MISSING = "the packages for it are not installed: pip install 'mlx-stack-serve[otel]', or set it to false"
_WELL = ("answered", "client_left")

_Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinishedRequest:
    """A request whose spans are to be made. `ended_ns`: since 1970. `checked`: it declared tools."""

    report: Mapping[str, Any]
    ended_ns: int
    statuses: Mapping[str, TierStatus]
    checked: bool
    traceparent: str | None


class Traces:
    """The traces of one Router replica. Raises ConfigError: they are on, and the packages are not there."""

    def __init__(self, config: TelemetryConfig, make: Callable[[], TracerProvider] | None = None) -> None:
        self._queue: queue.Queue[_FinishedRequest | None] = queue.Queue(_QUEUE_MAX)
        self._closing = threading.Event()
        self._dropping = False
        self._thread: threading.Thread | None = None
        if config.traces:
            provider = (make or _make_provider)()
            self._thread = threading.Thread(target=self._send, args=(provider,), name="traces", daemon=True)
            self._thread.start()

    def add(
        self, report: Mapping[str, Any], *, statuses: Mapping[str, TierStatus], checked: bool, traceparent: str | None
    ) -> None:
        """Take a request that is over. Never waits: where the thread can't keep up, it is dropped, with one line."""
        if self._thread is None:
            return
        finished = _FinishedRequest(
            report=report, ended_ns=time.time_ns(), statuses=statuses, checked=checked, traceparent=traceparent
        )
        try:
            self._queue.put_nowait(finished)
            self._dropping = False
        except queue.Full:
            if not self._dropping:
                log_warning("traces_dropped", waiting=_QUEUE_MAX)
            self._dropping = True

    async def close(self, within_s: float = _CLOSE_S) -> None:
        """Send what is left, as far as that is done in time."""
        if self._thread is not None:
            self._closing.set()
            with contextlib.suppress(queue.Full):  # the thread is at it, and sees that it is to end
                self._queue.put_nowait(None)
            await asyncio.to_thread(self._thread.join, within_s)

    def _send(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        tracer, headers = provider.get_tracer(_SERVICE), TraceContextTextMapPropagator()
        while (finished := self._queue.get()) is not None:
            try:
                parent = headers.extract({"traceparent": finished.traceparent or ""})
                _emit(tracer, _find_spans(finished), parent)
            except Exception as error:
                log_error("trace_failed", error, request_id=finished.report.get("request_id"))
            if self._closing.is_set() and self._queue.empty():
                break
        provider.shutdown()


def check_packages() -> None:
    """Check that traces can be sent. Raises ConfigError where the extra isn't installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise ConfigError(f"telemetry.traces: {_MISSING}") from None


def _make_provider() -> TracerProvider:
    """Make what the SDK sends spans by, as the environment says. Raises as `check_packages`."""
    check_packages()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource({"service.name": _SERVICE}).merge(OTELResourceDetector().detect())
    # `close` shuts it down; a hook at the interpreter's end would wait for the collector.
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _emit(tracer: Tracer, facts: _Span, parent: Context) -> None:
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

    span = tracer.start_span(
        facts.name,
        context=parent,
        kind=SpanKind[facts.kind.upper()],
        start_time=facts.start_ns,
        attributes=dict(facts.attributes),
    )
    if facts.error is not None:
        span.set_attribute("error.type", facts.error)
        span.set_status(Status(StatusCode.ERROR, facts.error))
    for child in facts.children:
        _emit(tracer, child, set_span_in_context(span, parent))
    span.end(end_time=facts.end_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """One span. `error`: why it went wrong, one word of a closed set."""

    name: str
    kind: Literal["server", "client", "internal"]
    start_ns: int
    end_ns: int
    attributes: Mapping[str, _Value]
    error: str | None = None
    children: tuple[_Span, ...] = ()


def _find_spans(finished: _FinishedRequest) -> _Span:
    report, ended_ns = finished.report, finished.ended_ns
    judged = report["judge"]["attempts"] if report["judge"] else []
    calls = [(attempt, False) for attempt in report["attempts"]] + [(attempt, True) for attempt in judged]
    ran = [(attempt, judge) for attempt, judge in calls if attempt["ran"] and attempt["at_ms"] is not None]
    children = [_find_attempt(finished, attempt, judge=judge) for attempt, judge in ran]
    return _Span(
        name="chat",
        kind="server",
        start_ns=_find_start_ns(finished),
        end_ns=ended_ns,
        attributes=dict(_list_request(report)),
        error=None if report["outcome"] in _WELL else report["outcome"],
        children=tuple(sorted(children, key=lambda child: child.start_ns)),
    )


def _find_start_ns(finished: _FinishedRequest) -> int:
    return finished.ended_ns - int(finished.report["total_ms"] * _NS_PER_MS)


def _list_request(report: Mapping[str, Any]) -> Iterator[tuple[str, _Value]]:
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


def _find_attempt(finished: _FinishedRequest, attempt: Mapping[str, Any], *, judge: bool) -> _Span:
    start_ns = min(_find_start_ns(finished) + attempt["at_ms"] * _NS_PER_MS, finished.ended_ns)
    end_ns = min(start_ns + attempt["elapsed_ms"] * _NS_PER_MS, finished.ended_ns)
    status = finished.statuses.get(attempt["tier"])
    model = (status.model if status else None) or attempt["tier"]
    check = _Span(
        name="check_tool_calls",
        kind="internal",
        start_ns=end_ns,
        end_ns=end_ns,
        attributes={"mlx_stack.tier": attempt["tier"], "mlx_stack.native_calls": attempt["native_calls"]},
        error=attempt["flaw"],
    )
    has_answer = finished.checked and not judge and not attempt["fault"] and not attempt["cancelled"]
    return _Span(
        name=f"chat {model}",
        kind="client",
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=dict(_list_attempt(attempt, model, status, judge=judge)),
        error=attempt["fault"] or attempt["flaw"],
        children=(check,) if has_answer else (),
    )


def _list_attempt(
    attempt: Mapping[str, Any], model: str, status: TierStatus | None, *, judge: bool
) -> Iterator[tuple[str, _Value]]:
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
