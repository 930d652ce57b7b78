"""An OTLP collector on loopback: takes spans over HTTP, and decodes them by OpenTelemetry's own messages."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What has come: each span, and the attributes of what sent it."""

    url: str = ""
    status: int = 200
    spans: list[Any] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Decode one message."""
        self.paths.append(path)
        self.headers.append(headers)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes_of(batch.resource))
            self.spans += [span for scope in batch.scope_spans for span in scope.spans]
        self.asked.set()

    def by_name(self, name: str) -> list[Any]:
        """The spans of this name, the earliest first."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a span or a resource as plain values."""
    return {one.key: _value_of(one.value) for one in message.attributes}


def _value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value_of(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """One that answers with `status`."""
    collector = Collector(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            collector.take(self.path, dict(self.headers), self.rfile.read(int(self.headers["content-length"])))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
