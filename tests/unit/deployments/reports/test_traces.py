"""Traces against a collector over HTTP: they arrive, they cost a request nothing, and nobody waits for them."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from deployments.config.app_config import TelemetryConfig
from deployments.config.config_errors import ConfigError
from deployments.reports import traces
from deployments.reports.traces import Traces, check_packages
from tests.support.otlp_collector import attributes_of, collecting
from tests.support.room_rig import attempt, report

ON = TelemetryConfig(traces=True)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def add(sent: Traces, traceparent: str | None = None, **changes) -> None:
    """A request that is over."""
    sent.add(report(**changes), statuses={}, checked=True, traceparent=traceparent)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def test_a_request_arrives_as_one_trace(monkeypatch):
    """Request, attempts and checks hang together, with their times, errors and figures; close sends what is left."""
    bad = attempt(tier="fast", at_ms=1, elapsed_ms=3, flaw="invalid_tool_call")
    good = attempt(tier="standard", at_ms=5, elapsed_ms=4)
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=abc")
        sent = Traces(ON)
        add(sent, attempts=[bad, good], total_ms=10.0, tier="standard")
        asyncio.run(sent.close())
    (root,) = collector.by_name("chat")
    first, second = collector.by_name("chat fast") + collector.by_name("chat standard")
    checks = collector.by_name("check_tool_calls")

    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-token"] == "abc"
    assert collector.resources[0]["service.name"] == "mlx-stack-serve"
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert root.parent_span_id == b""
    assert [span.parent_span_id for span in (first, second)] == [root.span_id] * 2
    assert [span.parent_span_id for span in checks] == [first.span_id, second.span_id]
    assert root.end_time_unix_nano - root.start_time_unix_nano == 10_000_000
    assert first.end_time_unix_nano - first.start_time_unix_nano == 3_000_000
    assert attributes_of(first)["error.type"] == "invalid_tool_call"
    assert (first.status.code, second.status.code) == (2, 0)
    assert attributes_of(root)["mlx_stack.tier"] == "standard"
    assert (root.kind, first.kind, checks[0].kind) == (2, 3, 1)


def test_a_clients_trace_is_gone_on_from(monkeypatch):
    """The request's span hangs under the agent's own; a header that is none begins a new trace."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent, PARENT)
        add(sent, "00-" + "x" * 9000)
        asyncio.run(sent.close())
    one, other = collector.by_name("chat")

    assert PARENT.split("-")[1:3] in ([s.trace_id.hex(), s.parent_span_id.hex()] for s in (one, other))
    assert b"" in (one.parent_span_id, other.parent_span_id)


def test_what_is_sent_is_named_as_the_environment_says(monkeypatch):
    """The standard variables go before."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=home")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent)
        asyncio.run(sent.close())

    assert collector.resources[0]["service.name"] == "mine"
    assert collector.resources[0]["deployment.environment"] == "home"


def test_off_there_is_nothing(monkeypatch):
    """No thread, no queue that fills, no package that is imported."""
    before = threading.active_count()
    sent = Traces(TelemetryConfig(), make=lambda: pytest.fail("a provider was made"))
    for _ in range(traces.QUEUE_MAX + 1):
        add(sent)
    asyncio.run(sent.close())

    assert threading.active_count() == before
    assert sent._queue.empty()


class Stuck:
    """A provider whose collector never answers."""

    def __init__(self) -> None:
        self.freed = threading.Event()

    def get_tracer(self, _):
        return self

    def start_span(self, *_, **__):
        self.freed.wait()
        raise OSError("gone")

    def shutdown(self) -> None:
        self.freed.wait()


def test_a_collector_that_hangs_holds_up_nobody(monkeypatch):
    """Requests are taken up to the bound, then dropped with one line in the log; the end waits no longer than told."""
    logged: list[str] = []
    monkeypatch.setattr(traces, "log_warning", lambda event, **_: logged.append(event))
    monkeypatch.setattr(traces, "log_error", lambda *_, **__: None)
    stuck = Stuck()
    sent = Traces(ON, make=lambda: stuck)
    began_s = time.monotonic()
    for _ in range(traces.QUEUE_MAX + 10):
        add(sent)
    asyncio.run(sent.close(within_s=0.01))
    took_s = time.monotonic() - began_s
    held = sent._queue.qsize()
    stuck.freed.set()
    sent._thread.join()

    assert logged == ["traces_dropped"]
    assert held <= traces.QUEUE_MAX
    assert took_s < traces.CLOSE_S + 10


@pytest.mark.parametrize("status", [400, 503])
def test_a_collector_that_refuses_is_no_ones_trouble(monkeypatch, status):
    """Its spans are lost; the end comes all the same."""
    with collecting(status) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent)
        asyncio.run(sent.close())
        assert collector.asked.wait(30)


def test_a_report_that_no_span_can_be_made_of_is_logged(monkeypatch):
    """And the next one arrives."""
    logged: list[str] = []
    monkeypatch.setattr(traces, "log_error", lambda event, error, **_: logged.append(event))
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent, total_ms=None)
        add(sent)
        asyncio.run(sent.close())

    assert logged == ["trace_failed"]
    assert len(collector.by_name("chat")) == 1


def test_without_the_packages_the_way_to_them_is_said(monkeypatch):
    """One line, before anything is started."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"telemetry.traces: .* pip install 'mlx-stack-serve\[otel\]'"):
        check_packages()
    with pytest.raises(ConfigError):
        Traces(ON)
