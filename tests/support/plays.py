"""What `Upstream` can be made to do: acts, the plays that are made of them, and what a request looked like.

A play is a tuple of acts (send bytes, wait, hang, abort the socket), or a function from the request to one. The
functions here make the usual ones: good answers as OpenRouter sends them, and each way in which an upstream breaks.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


@dataclass
class Seen:
    """One request, as it arrived, and how it ended."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    client: int = 0  # the client's port: the same for requests of one connection
    ended: bool = False
    left: bool = False

    @property
    def body(self) -> Any:
        return json.loads(self.raw) if self.raw else None

    @property
    def model(self) -> str:
        body = self.body
        return str(body.get("model", "")) if isinstance(body, dict) else ""


@dataclass(frozen=True)
class Head:
    """Status line and headers. Without a content length the body is chunked."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Send:
    """Bytes of the body, as one write (and one HTTP chunk)."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Hang:
    """Nothing any more."""


@dataclass(frozen=True)
class Abort:
    """Reset the connection."""


Act = Head | Send | Wait | Hang | Abort
Play = tuple[Act, ...]
Player = Play | Callable[[Seen], Play]

SSE = {"Content-Type": "text/event-stream"}


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({"id": "gen-1", "model": "up/stream", "choices": [choice]} | more)


def frame(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def words(text: str) -> list[Send]:
    first, *rest = text.split(" ")
    return [Send(chunk({"content": part})) for part in (first, *(f" {word}" for word in rest)) if part]


def tail(finish: str = "stop", usage: Mapping[str, Any] | None = USAGE) -> list[Send]:
    """Finish reason, usage on a chunk without choices, and `[DONE]`."""
    end = [Send(chunk({}, finish))]
    if usage is not None:
        end.append(Send(frame({"id": "gen-1", "model": "up/stream", "choices": [], "usage": usage})))
    return [*end, Send(b"data: [DONE]\n\n")]


def good(text: str = "Hello from above.", *, reasoning: str = "", usage: Mapping[str, Any] | None = USAGE) -> Play:
    """A good answer, one write per word, with OpenRouter's comment before it."""
    thought = [Send(chunk({"reasoning": reasoning}))] if reasoning else []
    return (Head(headers=SSE), Send(b": OPENROUTER PROCESSING\n\n"), *thought, *words(text), *tail(usage=usage))


def tools(*calls: tuple[str, Any], text: str = "") -> Play:
    """A good answer that calls tools, each call in three pieces. Arguments as a text are sent as they are."""
    sends: list[Send] = words(text) if text else []
    for index, (name, arguments) in enumerate(calls):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = len(written) // 2
        pieces: list[dict[str, Any]] = [
            {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}},
            {"index": index, "function": {"arguments": written[:half]}},
            {"index": index, "function": {"arguments": written[half:]}},
        ]
        sends += [Send(chunk({"tool_calls": [piece]})) for piece in pieces]
    return (Head(headers=SSE), *sends, *tail("tool_calls"))


def status(
    code: int,
    message: str = "made to fail",
    *,
    error_code: str | int | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Play:
    """An error with an OpenAI-shaped body."""
    error = {"message": message, "code": code if error_code is None else error_code, "param": param}
    return whole(json.dumps({"error": error}).encode(), status_code=code, headers=headers)


def whole(data: bytes, *, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Play:
    """Any body, all at once, with its length."""
    told = {"Content-Type": "application/json", "Content-Length": str(len(data))} | dict(headers or {})
    return (Head(status_code, told), Send(data))


def plain_json(text: str = "Hello at once.", **message: Any) -> Play:
    """One JSON body, from a server that ignores `stream`."""
    said = {"role": "assistant", "content": text} | message
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return whole(json.dumps({"model": "up/stream", "choices": [choice], "usage": USAGE}).encode())


def completion(text: str = "Once upon a time.", usage: Mapping[str, Any] | None = USAGE, **choice: Any) -> Play:
    """A legacy completion, whole."""
    made = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None} | choice
    body = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "up/text", "choices": [made]}
    return whole(json.dumps(body | ({"usage": usage} if usage else {})).encode())


def completion_frames(*texts: str, usage: Mapping[str, Any] | None = USAGE, finish: str | None = "stop") -> Play:
    """A legacy completion, streamed: a frame for each text, the finish reason, the usage and `[DONE]`."""
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "up/text"}
    said: list[dict[str, Any]] = [{"index": 0, "text": text, "logprobs": None, "finish_reason": None} for text in texts]
    if finish is not None:
        said.append({"index": 0, "text": "", "logprobs": None, "finish_reason": finish})
    frames = [head | {"choices": [choice]} for choice in said]
    if usage is not None:
        frames.append(head | {"choices": [], "usage": usage})
    done = [Send(b"data: [DONE]\n\n")] if finish is not None else []
    return (Head(headers=SSE), *(Send(frame(each)) for each in frames), *done)


def embeddings(*vectors: Any, tokens: int = 5) -> Play:
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return whole(json.dumps({"object": "list", "model": "up/vectors", "data": data, "usage": usage}).encode())


def slow(seconds: float, *, headers_too: bool = False) -> Play:
    """A good answer whose first token (and, if told so, whose headers) come late."""
    head, *rest = good("Hello at last.")
    return (Wait(seconds), head, *rest) if headers_too else (head, Wait(seconds), *rest)


def hang(after: int | None = None) -> Play:
    """Silence: before the headers, or after so many words."""
    return (Hang(),) if after is None else (*_first_words(after), Hang())


def cut(after: int | None = None) -> Play:
    """A reset connection: before the headers, or after so many words."""
    return (Abort(),) if after is None else (*_first_words(after), Abort())


def ends_early(after: int = 2) -> Play:
    """A body that ends as HTTP says, but without a finish reason."""
    return _first_words(after)


def malformed(after: int = 2) -> Play:
    """A frame that is not JSON."""
    return (*_first_words(after), Send(b'data: {"choices": [{"delta"\n\n'), *tail())


def no_done() -> Play:
    """A good answer whose `[DONE]` never comes."""
    return good()[:-1]


def error_frame(after: int = 2, code: int | str = 502, message: str = "Provider returned error") -> Play:
    """An error in the middle of the stream, as OpenRouter sends it."""
    error = {"code": code, "message": message}
    sent = frame({"error": error, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]})
    return (*_first_words(after), Send(sent))


def _first_words(count: int) -> Play:
    return (Head(headers=SSE), *words(" ".join(f"w{i}" for i in range(count)))[:count])
