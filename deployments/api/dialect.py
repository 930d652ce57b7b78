"""What an API that clients speak is to this server: one way in, two ways out, the shape of its errors.

    bytes ─▶ Dialect.parse ─▶ ChatCall ─▶ the one internal request, which every tier takes
    events ─▶ Collector ─▶ one JSON body, or ─▶ StreamWriter ─▶ frames

`ChatCall.wanted`: what only the way out must know. Invariant: a field that a dialect can't translate is refused by its
name, or a note in the report says that it had no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.api.openai_chat import ChatCall
from deployments.errors import ApiError
from deployments.request.run_record import Run
from reliability.types import Event, Finish, Prefilled


class Collector(Protocol):
    """Collects the events of an answer that isn't streamed."""

    def take(self, events: Iterable[Event]) -> None:
        """Add a batch of events."""

    def body(self, model: str, finish: Finish) -> bytes:
        """Write the complete answer. `model` is the tier that gave it."""


class StreamWriter(Protocol):
    """Writes one stream. Every method returns complete frames; none is called after `last` or `error`."""

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        """Write a batch of events; the first time with what comes before any of them."""

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        """Write what keeps a silent connection open, or how far the prompt is read. Some clients count events only:
        after minutes of comments (qwen-code 240 s, Codex 300 s) they ask again."""

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        """Write the end of a complete answer, with the report as `mlx_stack`."""

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        """Write the end of an answer that broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API. `parse`, a function of a module, takes what `parse_chat` takes. `error_body` makes the JSON of an error
    for a request of this id. `id_header`: where its clients look for the request's id. `sign`: a header that its
    clients send with everything. `statuses`: of errors, where they differ from the table's. `counted`: what stands
    beside a count of tokens."""

    name: str
    parse: Callable[..., ChatCall]
    collector: Callable[[ChatCall, Run], Collector]
    writer: Callable[[ChatCall, Run], StreamWriter]
    error_body: Callable[[ApiError, str], dict[str, Any]]
    id_header: str | None = None
    sign: str | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)

    def id_headers(self, request_id: str) -> Mapping[str, str]:
        return {} if self.id_header is None else {self.id_header: request_id}
