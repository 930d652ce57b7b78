"""Traces against a collector over HTTP: they arrive, they cost a request nothing, and nobody waits for them."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.app_config import TelemetryConfig
from deployments.config.config_errors import ConfigError
from deployments.reports import traces
from deployments.reports.traces import _NS_PER_MS, Traces, _find_spans, _FinishedRequest, _Span, check_packages
from deployments.telemetry import session_tag
from reliability.types import Fault, Flaw, TierState, TierStatus
from tests.support.otlp_collector import Collector, attributes_of
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
    with Collector() as collector:
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
    """The request's span hangs under the agent's own; a header that is none begins a new trace. The standard variables
    of the environment name what is sent."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=home")
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent, PARENT)
        add(sent, "00-" + "x" * 9000)
        asyncio.run(sent.close())
    one, other = collector.by_name("chat")

    assert PARENT.split("-")[1:3] in ([s.trace_id.hex(), s.parent_span_id.hex()] for s in (one, other))
    assert b"" in (one.parent_span_id, other.parent_span_id)
    assert collector.resources[0].items() >= {"service.name": "mine", "deployment.environment": "home"}.items()


def test_off_there_is_nothing(monkeypatch):
    """No thread, no queue that fills, no package that is imported."""
    before = threading.active_count()
    sent = Traces(TelemetryConfig(), make=lambda: pytest.fail("a provider was made"))
    for _ in range(traces._QUEUE_MAX + 1):
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
    for _ in range(traces._QUEUE_MAX + 10):
        add(sent)
    asyncio.run(sent.close(within_s=0.01))
    took_s = time.monotonic() - began_s
    held = sent._queue.qsize()
    stuck.freed.set()
    sent._thread.join()

    assert logged == ["traces_dropped"]
    assert held <= traces._QUEUE_MAX
    assert took_s < traces._CLOSE_S + 10


@pytest.mark.parametrize("status", [400, 503])
def test_a_collector_that_refuses_is_no_ones_trouble(monkeypatch, status):
    """Its spans are lost; the end comes all the same."""
    with Collector(status) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sent = Traces(ON)
        add(sent)
        asyncio.run(sent.close())
        assert collector.asked.wait(30)


def test_a_report_that_no_span_can_be_made_of_is_logged(monkeypatch):
    """And the next one arrives."""
    logged: list[str] = []
    monkeypatch.setattr(traces, "log_error", lambda event, error, **_: logged.append(event))
    with Collector() as collector:
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


ENDED_NS = 1_795_000_000_000_000_000
SECRET = "QXZJKVWY"
STATUSES = {"fast": TierStatus(name="fast", kind="mlx", state=TierState.READY, model="SmolLM2-135M")}

ATTEMPTS = st.builds(
    attempt,
    tier=st.sampled_from(["fast", "standard"]),
    ran=st.booleans(),
    fault=st.none() | st.sampled_from([fault.value for fault in Fault]),
    flaw=st.none() | st.sampled_from([flaw.value for flaw in Flaw]),
    cancelled=st.booleans(),
    at_ms=st.none() | st.integers(0, 10_000),
    elapsed_ms=st.integers(0, 10_000),
    ttft_ms=st.none() | st.integers(0, 10_000),
    detail=st.just(SECRET),
)
JUDGES = st.none() | st.builds(
    lambda attempts: {"trouble": "stuck", "tool": SECRET, "attempts": attempts}, st.lists(ATTEMPTS, max_size=2)
)
REPORTS = st.builds(
    report,
    attempts=st.lists(ATTEMPTS, max_size=5),
    total_ms=st.floats(0, 20_000),
    judge=JUDGES,
    notes=st.just([SECRET]),
    session=st.just(SECRET),
    repairs=st.lists(st.sampled_from(["fence", "name"]), max_size=2),
)


def find(made: dict[str, Any], checked: bool) -> _Span:
    """The spans of a report."""
    return _find_spans(
        _FinishedRequest(report=made, ended_ns=ENDED_NS, statuses=STATUSES, checked=checked, traceparent=None)
    )


def walk(span: _Span) -> Iterator[tuple[_Span, _Span | None]]:
    """Each span with the one that it is in."""
    yield span, None
    for child in span.children:
        yield from ((one, other or span) for one, other in walk(child))


@given(REPORTS, st.booleans())
def test_a_span_lies_within_the_one_that_it_belongs_to(made, checked):
    """Whatever the report's figures are: no span ends before it begins, and none reaches out of its parent's."""
    root = find(made, checked)

    assert root.end_ns == ENDED_NS
    for span, parent in walk(root):
        assert span.start_ns <= span.end_ns
        if parent is not None:
            assert parent.start_ns <= span.start_ns
            assert span.end_ns <= parent.end_ns


@given(REPORTS, st.booleans())
def test_nothing_that_was_said_is_in_a_span(made, checked):
    """Details, notes and a judge's tool may quote a conversation, and a session's name a person."""
    root = find(made, checked)

    assert all(SECRET not in f"{span.name} {span.error} {dict(span.attributes)}" for span, _ in walk(root))
    assert root.attributes["gen_ai.conversation.id"] == session_tag(SECRET)


@given(REPORTS, st.booleans())
def test_every_attempt_that_ran_has_a_span(made, checked):
    """And of the others the request's span says why they didn't."""
    root = find(made, checked)
    judged = made["judge"]["attempts"] if made["judge"] else []
    ran = [one for one in (*made["attempts"], *judged) if one["ran"] and one["at_ms"] is not None]

    assert len(root.children) == len(ran)
    assert len(root.attributes.get("mlx_stack.skipped", ())) == sum(not one["ran"] for one in made["attempts"])
    assert sorted(str(child.error) for child in root.children) == sorted(str(o["fault"] or o["flaw"]) for o in ran)


@given(REPORTS)
def test_only_an_answer_is_checked(made):
    """One that came whole, of a request with tools."""
    unchecked = find(made, False)
    checked = find(made, True)
    whole = [
        one
        for one in made["attempts"]
        if one["ran"] and one["at_ms"] is not None and not one["fault"] and not one["cancelled"]
    ]

    assert all(not child.children for child in unchecked.children)
    assert sum(len(child.children) for child in checked.children) == len(whole)


def test_an_attempt_says_who_answered_with_what():
    """In the words of the conventions: tokens, the first chunk in seconds, the model behind the tier."""
    one = attempt(tier="fast", at_ms=2, elapsed_ms=5, ttft_ms=3)
    (span,) = find(report(attempts=[one], total_ms=10.0), False).children

    assert span.name == "chat SmolLM2-135M"
    assert span.start_ns == ENDED_NS - 8 * _NS_PER_MS
    assert span.end_ns == ENDED_NS - 3 * _NS_PER_MS
    assert span.attributes["gen_ai.provider.name"] == "mlx"
    assert span.attributes["gen_ai.request.model"] == "SmolLM2-135M"
    assert span.attributes["gen_ai.usage.input_tokens"] == one["usage"]["prompt_tokens"]
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == 0.003
