"""Traces by OpenTelemetry: what a finished request's report says, as spans, to an OTLP collector. Off by default.

    close of a request ──put──▶ queue ──▶ a thread: spans ──▶ the SDK's batches ──▶ OTLP over HTTP
                                 bounded                       bounded, dropped where the collector is away

The request's own way costs one `put` into a queue; spans are made on a thread of their own, by the SDK's tracer. Where
they go, with which headers, and how many are kept, say the standard variables (`OTEL_EXPORTER_OTLP_*`,
`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`); a `traceparent` of the client's is gone on from.

The packages are an extra (`otel`) and imported only where traces are on.

What must never happen: that a request, or the end of this process, waits for a collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deployments.config import ConfigError, TelemetryConfig
from deployments.reports.spans import SpanFacts, find_spans
from deployments.telemetry import log_error, log_warning
from reliability.types import TierStatus

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

__all__ = ["Traces", "check_packages", "make_provider"]

QUEUE_MAX = 2048
CLOSE_S = 2.0
SERVICE = "mlx-stack-serve"
MISSING = (
    "telemetry.traces: the packages for it are not installed: pip install 'mlx-stack-serve[otel]', or set it to false"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest:
    """What its spans are made of."""

    report: Mapping[str, Any]
    ended_ns: int
    statuses: Mapping[str, TierStatus]
    checked: bool
    traceparent: str | None


class Traces:
    """The traces of one Router replica.

    Raises:
        ConfigError: they are on, and the packages are not there.
    """

    def __init__(self, config: TelemetryConfig, make: Callable[[], TracerProvider] | None = None) -> None:
        self._queue: queue.Queue[FinishedRequest | None] = queue.Queue(QUEUE_MAX)
        self._closing = threading.Event()
        self._dropping = False
        self._thread: threading.Thread | None = None
        if config.traces:
            provider = (make or make_provider)()
            self._thread = threading.Thread(target=self._send, args=(provider,), name="traces", daemon=True)
            self._thread.start()

    def add(
        self,
        report: Mapping[str, Any],
        *,
        statuses: Mapping[str, TierStatus],
        checked: bool,
        traceparent: str | None,
    ) -> None:
        """Take a request that is over. Never waits; where the thread can't keep up, the request has no trace, and the
        log says so once."""
        if self._thread is None:
            return
        finished = FinishedRequest(
            report=report, ended_ns=time.time_ns(), statuses=statuses, checked=checked, traceparent=traceparent
        )
        try:
            self._queue.put_nowait(finished)
            self._dropping = False
        except queue.Full:
            if not self._dropping:
                log_warning("traces_dropped", waiting=QUEUE_MAX)
            self._dropping = True

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Send what is left, as far as that is done in time; what isn't goes with the process."""
        if self._thread is not None:
            self._closing.set()
            with contextlib.suppress(queue.Full):  # the thread is at it, and sees that it is to end
                self._queue.put_nowait(None)
            await asyncio.to_thread(self._thread.join, within_s)

    def _send(self, provider: TracerProvider) -> None:
        tracer = provider.get_tracer(SERVICE)
        while (finished := self._queue.get()) is not None:
            try:
                _record(tracer, finished)
            except Exception as error:
                log_error("trace_failed", error, request_id=finished.report.get("request_id"))
            if self._closing.is_set() and self._queue.empty():
                break
        provider.shutdown()


def check_packages() -> None:
    """Check that traces can be sent.

    Raises:
        ConfigError: the extra isn't installed.
    """
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise ConfigError(MISSING) from None


def make_provider() -> TracerProvider:
    """Make what the SDK sends spans by, as the environment says.

    Raises:
        ConfigError: as `check_packages`.
    """
    check_packages()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = Resource({"service.name": SERVICE}).merge(OTELResourceDetector().detect())
    # `close` shuts it down; a hook at the interpreter's end would wait for the collector.
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _record(tracer: Tracer, finished: FinishedRequest) -> None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": finished.traceparent or ""})
    root = find_spans(finished.report, ended_ns=finished.ended_ns, statuses=finished.statuses, checked=finished.checked)
    _emit(tracer, root, parent)


def _emit(tracer: Tracer, facts: SpanFacts, parent: Context) -> None:
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
