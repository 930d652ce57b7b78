"""`POST /v1/completions` and `POST /v1/embeddings`: passed on to hosted tiers as they came, and so is the answer.

Only what this server needs is checked: model, prompt or input, `n`, tokens. Invariant: a prompt goes to a tier in the
form in which the client wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Unpack

from pydantic import Field

from deployments.api.dialect import Dialect
from deployments.api.headers import find_session, name_beginning
from deployments.api.openai_chat import (
    STOPS_MAX,
    ChatCall,
    ModelName,
    ParseTerms,
    StreamOptions,
    Strict,
    Text,
    parse_object,
    read_body,
)
from deployments.api.openai_render import DONE, KEEP_ALIVE, sse
from deployments.errors import ApiError, refuse
from deployments.work.json_text import read_json
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Event, Finish, Passed, Prefilled

_INPUTS_MAX = 2_048
_BEST_OF_MAX = 20
_TOKENS_DEFAULT = 16  # as OpenAI's
_TOKEN_BYTES = 2  # a token counts as so much text (`reliability.answer.estimate`)
_FINISHED = b'"finish_reason":"'  # a quote in a text would be escaped

_TokenIds = Annotated[list[int], Field(min_length=1)]
Inputs = Annotated[list[str], Field(min_length=1, max_length=_INPUTS_MAX)]
_TokenLists = Annotated[list[_TokenIds], Field(min_length=1, max_length=_INPUTS_MAX)]


class CompletionBody(Strict):
    """The fields of a completion that this server reads."""

    model: ModelName = "auto"
    prompt: str | list[str] | list[int] | list[list[int]]
    suffix: str | None = None
    max_tokens: int | None = Field(default=None, ge=0, le=100_000_000)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    n: int | None = None
    best_of: int | None = Field(default=None, ge=1, le=_BEST_OF_MAX)
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0)
    stop: Text | Annotated[list[Text], Field(max_length=STOPS_MAX)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class EmbeddingBody(Strict):
    """The fields of an embedding that this server reads."""

    model: ModelName = "auto"
    input: str | Inputs | _TokenIds | _TokenLists
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1)


def _parse_completion(raw: bytes, headers: Mapping[str, str], **terms: Unpack[ParseTerms]) -> ChatCall:
    """Parse the body of a completion. Raises `ApiError`: `invalid_json`, `invalid_request` or `unsupported`."""
    fields, notes = parse_object(raw)
    body = read_body(CompletionBody, fields)
    prompt = _read_prompt(body.prompt)
    if body.n not in (None, 1):
        raise ApiError("invalid_request", f"n must be 1: this server gives one answer (got {body.n})", param="n")
    answers = body.best_of or 1
    asked = _TOKENS_DEFAULT if body.max_tokens is None else body.max_tokens
    most = min(asked, terms["tokens_max"] // answers) * answers
    fields |= {"model": body.model, "prompt": prompt}
    return _build_call("/completions", fields, headers, prompt, most, len(raw), notes, terms)


def _parse_embedding(raw: bytes, headers: Mapping[str, str], **terms: Unpack[ParseTerms]) -> ChatCall:
    """Parse the body of an embedding. Raises `ApiError`: `invalid_json` or `invalid_request`."""
    fields, notes = parse_object(raw)
    body = read_body(EmbeddingBody, fields)
    fields.pop("stream", None)
    fields |= {"model": body.model}
    return _build_call("/embeddings", fields, headers, _read_input(body.input), 0, len(raw), notes, terms)


def _read_prompt(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    if not all(isinstance(each, str) for each in prompt):
        words = "text is needed: what token ids mean depends on the tier that answers"
        raise refuse("prompt", words, "unsupported")
    if len(prompt) != 1:
        raise refuse("prompt", f"one prompt a request (got {len(prompt)})", "unsupported")
    return str(prompt[0])


def _read_input(given: Any) -> str:
    if isinstance(given, str):
        return given
    texts: list[str] = []
    for each in given:
        ids = len(each) if isinstance(each, list) else 1
        texts.append(each if isinstance(each, str) else "0" * _TOKEN_BYTES * ids)
    return "".join(texts)


def _build_call(
    route: str,
    fields: dict[str, Any],
    headers: Mapping[str, str],
    text: str,
    max_tokens: int,
    body_bytes: int,
    notes: Sequence[str],
    terms: ParseTerms,
) -> ChatCall:
    given = fields["prompt"] if route == "/completions" else fields["input"]
    session, _ = find_session(headers, fields)
    request = ChatRequest(
        session_id=session or name_beginning(headers, ({"role": "user", "content": given},)),
        messages=({"role": "user", "content": text},),
        max_tokens=max_tokens,
        route=route,
        extra={name: value for name, value in fields.items() if name != "model"},
        request_id=terms["request_id"],
        timeout_s=terms["timeout_s"],
        body_bytes=body_bytes,
    )
    own: dict[str, Any] = {"model": fields["model"], "stream": bool(fields.get("stream")), "notes": tuple(notes)}
    return ChatCall(request=request, toolbox=ToolBox(), trail=None, wanted=None, **own)


@dataclass(slots=True)
class _PassedAnswer:
    pieces: list[bytes] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        self.pieces += [event.data for event in events if isinstance(event, Passed)]

    def body(self, model: str, finish: Finish) -> bytes:
        return b"".join(self.pieces)


@dataclass(slots=True)
class _PassedWriter:
    """Writes the frames of a stream as they came; from the finish reason on they are held, for the report in the last
    one."""

    held: list[bytes] = field(default_factory=list)

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        out = b""
        for event in events:
            if not isinstance(event, Passed):
                continue
            if self.held or _FINISHED in event.data:
                self.held.append(event.data)
            else:
                out += _frame(event.data)
        return out

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        return KEEP_ALIVE

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        if not self.held:
            return DONE
        *before, end = self.held
        return b"".join(map(_frame, before)) + sse(read_json(end) | {"mlx_stack": report}) + DONE

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        return sse(error.body() | ({} if report is None else {"mlx_stack": report}))


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


COMPLETIONS = Dialect(
    name="completions",
    parse=_parse_completion,
    collector=lambda _, __: _PassedAnswer(),
    writer=lambda _, __: _PassedWriter(),
    error_body=lambda error, _: error.body(),
)
EMBEDDINGS = replace(COMPLETIONS, name="embeddings", parse=_parse_embedding)
