"""Ask a server as an agent does, with the real openai client, and keep all of what came back.

`ask` returns one `Outcome` whether the answer was streamed or not, good or an error, so that a case can be played both
ways and held to the same words. `wire` is what really came over the socket: comments, frames, `[DONE]`.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

from tests.support.renderings import WEATHER_TOOL
from tests.support.serving import Server, until

WEATHER_TOOLS: list[Any] = [WEATHER_TOOL]


class _Tee(httpx.SyncByteStream):
    """Passes the bytes on and keeps a copy; what the client leaves unread is read when it closes."""

    def __init__(self, inner: Any, wire: bytearray) -> None:
        self._inner, self._pieces, self._wire = inner, iter(inner), wire

    def __iter__(self) -> Iterator[bytes]:
        for data in self._pieces:
            self._wire += data
            yield data

    def close(self) -> None:
        for data in self._pieces:
            self._wire += data
        self._inner.close()


class _Tap(httpx.HTTPTransport):
    """The openai client's transport."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = bytearray()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        got = super().handle_request(request)
        body = _Tee(got.stream, self.wire)
        return httpx.Response(got.status_code, headers=got.headers, stream=body, extensions=got.extensions)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came back. `completion` is None where there was an error; `error` is empty where there was none."""

    status: int
    headers: httpx.Headers
    wire: str
    elapsed_s: float
    stream: bool
    completion: Any = None
    error: Mapping[str, Any] = field(default_factory=dict)

    @property
    def choice(self) -> Any:
        return None if self.completion is None else self.completion.choices[0]

    def header(self, name: str) -> str | None:
        return self.headers.get(f"X-MLX-Stack-{name}")

    @property
    def trail(self) -> dict[str, str | None]:
        """The headers that tell the request's way, without those that aren't there."""
        names = ("Tier", "Escalated-From", "Escalation-Reason", "Retries", "Attempts", "Loop")
        return {name: self.header(name) for name in names if self.header(name) is not None}

    @property
    def text(self) -> str:
        """The answer's text; of a stream that broke, what had come until then."""
        if self.choice is not None:
            return self.choice.message.content or ""
        deltas = (frame["choices"][0]["delta"] for frame in self.frames if frame.get("choices"))
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Names and arguments of the tool calls that came over the wire, whatever else came."""
        if self.choice is not None:
            found = self.choice.message.tool_calls or []
            return [(call.function.name, json.loads(call.function.arguments)) for call in found]
        deltas = (frame["choices"][0]["delta"] for frame in self.frames if frame.get("choices"))
        return [("piece", call) for delta in deltas for call in delta.get("tool_calls") or []]

    @property
    def frames(self) -> list[Any]:
        if not self.stream or self.status != 200:
            return []
        return [json.loads(part[6:]) for part in self.wire.split("\n\n") if part.startswith("data: {")]

    @property
    def code(self) -> str | None:
        return self.error.get("code")

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def ends_as_it_should(self) -> bool:
        """A stream ends in `[DONE]` or in one error frame, and never in both."""
        if not self.stream or self.status != 200:
            return True
        errors = [frame for frame in self.frames if "error" in frame]
        done = self.wire.endswith("data: [DONE]\n\n")
        return done != bool(errors) and len(errors) <= 1 and (done or "[DONE]" not in self.wire)


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def ask(
    server: Server, messages: list[Any], *, stream: bool, headers: Mapping[str, str] | None = None, **options: Any
) -> Outcome:
    """One chat completion by the openai client, which doesn't retry. `options`: the request's fields, and `api_key`."""
    key = {"api_key": options.pop("api_key")} if "api_key" in options else {}
    tap, started = _Tap(), time.monotonic()
    with httpx.Client(transport=tap, timeout=60.0) as http, server.client(http_client=http, **key) as client:
        fields = {"model": "auto", "messages": messages, "stream": stream, "extra_headers": dict(headers or {})}
        completion, error = None, {}
        try:
            raw = client.chat.completions.with_raw_response.create(**(fields | options))
        except openai.APIStatusError as refused:
            got, error = refused.response, dict(refused.body or {})  # type: ignore[call-overload]
        else:
            got = raw.http_response
            try:
                completion = _streamed(raw.parse()) if stream else raw.parse()
            except openai.APIError as broken:
                error = dict(broken.body or {})  # type: ignore[call-overload]
    told = {"status": got.status_code, "headers": got.headers, "wire": tap.wire.decode(), "stream": stream}
    return Outcome(**told, elapsed_s=time.monotonic() - started, completion=completion, error=error)


def _streamed(chunks: Any) -> Any:
    state = ChatCompletionStreamState()
    with chunks:
        for chunk in chunks:
            state.handle_chunk(chunk)
    # The final completion would be an exception where a length or a filter has ended it.
    return state.current_completion_snapshot


def report_of(server: Server, outcome: Outcome, **options: Any) -> dict[str, Any]:
    """The request's report, as soon as it is there."""
    path = f"/v1/reliability/requests/{outcome.request_id}"
    return dict(until(lambda: server.find(path, **options), "the report is there"))


def incidents_of(server: Server, outcome: Outcome, **options: Any) -> list[Any]:
    """The incidents of one finished request, the oldest first."""
    report_of(server, outcome, **options)  # it is written together with them
    params = {"request_id": outcome.request_id, "limit": "500"}
    got = httpx.get(f"{server.url}/v1/reliability/incidents", params=params, timeout=30.0, **options)
    return list(reversed(got.json()["data"]))
