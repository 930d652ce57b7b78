"""An OTLP collector on loopback: takes spans over HTTP, and decodes them by OpenTelemetry's own messages."""

import threading
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.loopback import LoopbackHandler, LoopbackServer


class Collector(LoopbackServer):
    """What has come: each span, and the attributes of what sent it. It answers with `status`."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(_Handler)
        self.status = status
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.asked = threading.Event()

    def by_name(self, name: str) -> list[Any]:
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


class _Handler(LoopbackHandler):
    def post(self) -> None:
        collector = self.server
        collector.paths.append(self.path)
        collector.headers.append(dict(self.headers))
        for batch in ExportTraceServiceRequest.FromString(self.read_body()).resource_spans:
            collector.resources.append(attributes_of(batch.resource))
            collector.spans += [span for scope in batch.scope_spans for span in scope.spans]
        collector.asked.set()
        self.reply(status=collector.status)


def attributes_of(message: Any) -> dict[str, Any]:
    return {one.key: _value_of(one.value) for one in message.attributes}


def _value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(one) for one in value.array_value.values]
    return getattr(value, kind)
