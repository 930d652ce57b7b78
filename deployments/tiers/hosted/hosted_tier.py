"""The tier kind `hosted`: any server that speaks OpenAI chat completions (OpenRouter, LM Studio, Ollama, vLLM, ...).

One attempt is one HTTP request, but for `_send_in_form` and a thought that is ended (`hold_to_budget`). Connecting,
headers, reads and the tail have clocks of their own, and all end with the request's `timeout_s`.

Invariants: the key is read from the environment at each request, and never stands in a message, a log or a status.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from deployments.tiers.hosted.answer_limits import find_room, leaves_uncounted
from deployments.tiers.hosted.chat_body import chat_body
from deployments.tiers.hosted.chat_reader import ChatReader
from deployments.tiers.hosted.connection import CHAT, STREAMS_MAX, Endpoint, Inbox
from deployments.tiers.hosted.continuing import Continues, ask_to_go_on, choose_continues, join
from deployments.tiers.hosted.passed_reader import PassedReader, build_passed_body, cut_list
from deployments.tiers.hosted.thought_bound import ThoughtBound, hold_to_budget
from deployments.tiers.hosted.upstream_errors import (
    UpstreamComplaint,
    read_error_body,
    read_retry_after_s,
    read_written,
    translate_complaint,
)
from deployments.tiers.hosted.upstream_form import UpstreamForm
from deployments.work.large_work import large
from reliability.types import ChatRequest, Event, Failed, Fault, Started, TierState, TierStatus, Usage

_NO_ROUTE = frozenset({404, 405, 501})
WINDOW_S = 0.04  # what comes within it after a list leaves as one list: a list costs more than the words in it
TAIL_S = 5.0  # how long usage and [DONE] may take once the finish reason is here
_END_GRACE_S = 0.05  # after [DONE]: a body that is read to its end leaves a connection that can be used again
_ERROR_BODY_BYTES_MAX = 64 * 1024
_ERROR_BODY_S = 5.0
_LOWERED_MAX = 2  # times that a request's tokens are
FORM_S = 3600.0  # how long what was learned of an upstream is known: a gateway's next provider may take more

# The preset `openrouter`; a person's own settings go over it.
OPENROUTER_URL = "https://openrouter.ai/api/v1"
OPENROUTER_HEADERS: Mapping[str, str] = {"X-Title": "MLX Stack Serve"}


class HostedTier:
    """A tier behind an OpenAI-compatible URL."""

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        model: str,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_tokens: int | None = None,
        openrouter: bool = False,
        continues: Continues | None = None,
        connect_s: float = 5.0,
        idle_s: float = 120.0,
    ) -> None:
        self._name = name
        self._model = model
        self._endpoint = Endpoint(base_url, api_key_env, headers or {})
        self._context_tokens = context_tokens
        self._as_written = UpstreamForm(openrouter=openrouter)
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._client: aiohttp.ClientSession | None = None
        self._closed = False
        self._active: Counter[str] = Counter()  # by API key
        # What this upstream is known to take, by API key: a refusal may quote what a client has written.
        self._forms: dict[str, tuple[UpstreamForm, float]] = {}  # with when it is forgotten, by the loop's clock
        self.continues: Continues = continues or choose_continues(self._endpoint.url.host, model)

    @property
    def active(self) -> int:
        """How many streams are running."""
        return self._active.total()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        key = self._endpoint.read_key()
        if reason := self._find_problem(key):
            yield [self._build_failed(Fault.UNAVAILABLE, f"is unavailable: {reason}")]
            return
        if full := self._find_full(request.key):
            yield [self._build_failed(Fault.OVERLOADED, full)]
            return
        self._active[request.key] += 1
        try:
            async with aclosing(self._ask(request, key)) as answer:
                async for events in answer:
                    yield events
        finally:
            self._active -= Counter((request.key,))
            await self._free()

    async def status(self) -> TierStatus:
        """Report ready where a request could be sent. Whether the upstream is well, only a request can show."""
        return self.describe()

    def describe(self) -> TierStatus:
        """Return the status without waiting."""
        reason = self._find_problem(self._endpoint.read_key())
        return TierStatus(
            name=self._name,
            kind="hosted",
            state=TierState.UNAVAILABLE if reason else TierState.READY,
            reason=reason,
            model=self._model,
            source=self._endpoint.authority,
            context_tokens=self._context_tokens,
        )

    def _find_full(self, key: str) -> str:
        if self.active >= STREAMS_MAX:
            return f"has all {STREAMS_MAX} connections in use"
        if key and self._active[key] >= STREAMS_MAX // 2:
            return f"has {STREAMS_MAX // 2} connections in use for this API key, as many as one may have"
        return ""

    async def close(self) -> None:
        """Take no more requests; those that run may end, and the last one takes the connections with it."""
        self._closed = True
        await self._free()

    async def _free(self) -> None:
        client = self._client
        if self._closed and not self.active and client is not None:
            self._client = None
            await client.close()

    def _ask(self, request: ChatRequest, key: str) -> AsyncGenerator[list[Event], None]:
        if request.route:
            return self._exchange(key, request)
        if not request.begun:

            def ask(way: ChatRequest, bound: ThoughtBound) -> AsyncGenerator[list[Event], None]:
                return self._exchange(key, way, bound, again=way is not request)

            return hold_to_budget(request, ask, self.continues, openrouter=self._as_written.openrouter)
        rest = self._exchange(key, ask_to_go_on(request, self.continues))
        return join(rest, request.begun, self.continues, self._name)

    async def _exchange(
        self, key: str, request: ChatRequest, bound: ThoughtBound | None = None, *, again: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        deadline = _now_s() + request.timeout_s
        # Taken: from here on the wait is the upstream's, and `first_token_s` bounds it, headers included.
        yield [Started()]
        response = await self._send_in_form(request, key, deadline, again=again)
        if isinstance(response, list):
            yield response
            return
        with closing(response):  # a body that was read to its end has given its connection back already
            reader, inbox = self._open_reader(request, key, bound), Inbox(response.content.iter_any())
            # The first words leave at once, where somebody reads them.
            not_before = 0.0 if request.streamed else _now_s() + WINDOW_S
            try:
                while not reader.over:
                    if events := await self._next(inbox, reader, deadline, not_before):
                        for part in cut_list(events):
                            yield part
                        not_before = _now_s() + WINDOW_S
            finally:
                await inbox.close(_END_GRACE_S if reader.over else 0.0)

    async def _send_in_form(
        self, request: ChatRequest, key: str, deadline: float, *, again: bool
    ) -> aiohttp.ClientResponse | list[Event]:
        """Return a response that is an answer, or the events of one that is none. A refusal of the request's form, or
        of its tokens, has generated nothing: the request is sent again in the form that it asks for. No form is tried
        twice. `again`: its thought was ended, so none is asked for."""
        form, lowered = self._recall_form(request.key), 0
        tried = {form}
        while True:
            shaped = form.shape(request)
            if again and form.keeps_thinking(shaped):
                return [self._build_failed(Fault.REFUSED, "can't answer without thinking")]
            response = await self._send(request, key, deadline, form)
            if isinstance(response, Failed):
                return [response]
            if response.status // 100 == 2:
                if len(tried) > 1:
                    now, (_, until) = _now_s(), self._forms.get(request.key, (form, 0.0))
                    self._forms[request.key] = form, until if now < until else now + FORM_S
                return response
            complaint, failed = await self._read_refusal(response, request, key)
            if request.route:
                return [failed]
            if answer := read_written(complaint, tools=bool(request.tools)):
                return answer
            room = _find_room(complaint.message, form.find_limit(request), request, lowered)
            if room is not None:
                request, lowered = replace(request, max_tokens=room), lowered + 1
                continue
            wanted = form.learn(response.status, complaint, shaped, lowers=not lowered)
            lowered += wanted.tokens_max != form.tokens_max
            if wanted in tried or not await large(request.body_bytes, self._differs, request, form, wanted):
                return [failed]
            form = wanted
            tried.add(form)

    def _recall_form(self, key: str) -> UpstreamForm:
        form, until = self._forms.get(key, (self._as_written, 0.0))
        return form if _now_s() < until else self._as_written

    async def _send(
        self, request: ChatRequest, key: str, deadline: float, form: UpstreamForm
    ) -> aiohttp.ClientResponse | Failed:
        try:
            body = await large(request.body_bytes, self._write_body, request, form)
        except (ValueError, TypeError, RecursionError):
            return self._build_failed(Fault.BAD_REQUEST, "can't be sent this request: it is not plain JSON")
        try:
            async with asyncio.timeout_at(min(_now_s() + max(self._connect_s, self._idle_s), deadline)):
                self._client = self._client or self._endpoint.open_session(self._connect_s)
                return await self._client.post(
                    self._endpoint.find_route(request.route or CHAT),
                    data=body,
                    headers=self._endpoint.build_headers(key),
                    allow_redirects=False,
                )
        except aiohttp.ConnectionTimeoutError as cause:  # a TimeoutError too
            return self._build_failed(*_explain_error(cause))
        except TimeoutError:
            if _now_s() >= deadline:
                return self._build_failed(Fault.DEADLINE, "ran out of the request's time")
            return self._build_failed(Fault.FIRST_TOKEN_TIMEOUT, "sent nothing in time")
        except Exception as cause:
            return self._build_failed(*_explain_error(cause))

    def _write_body(self, request: ChatRequest, form: UpstreamForm | None = None) -> bytes:
        if request.route:
            return build_passed_body(request, self._model)
        return chat_body(request, self._model, form or self._as_written)

    def _differs(self, request: ChatRequest, form: UpstreamForm, wanted: UpstreamForm) -> bool:
        return self._write_body(request, form) != self._write_body(request, wanted)

    def _open_reader(self, request: ChatRequest, key: str, bound: ThoughtBound | None) -> ChatReader | PassedReader:
        clean = self._endpoint.build_redactor(key)
        if request.route:
            return PassedReader(self._name, clean, request.extra)
        # Where the answer must be JSON, with a piece missing it is other data, or none.
        strict = request.response_format is not None and request.response_format.get("type") != "text"
        return ChatReader(
            self._name,
            clean,
            partial(self._write_body, request),
            logprobs=request.top_logprobs is not None,
            strict=strict,
            bound=bound,
            left_out=self._recall_form(request.key).list_left_out(request),
            names=[tool["function"]["name"] for tool in request.tools],
        )

    async def _next(
        self, inbox: Inbox, reader: ChatReader | PassedReader, deadline: float, not_before: float
    ) -> list[Event]:
        """Return the events of the next reads; silence and a lost connection are events too."""
        try:
            async with asyncio.timeout_at(min(_now_s() + (TAIL_S if reader.finishing else self._idle_s), deadline)):
                data = await inbox.take(not_before)
        except TimeoutError:
            if _now_s() >= deadline:
                return reader.fail(Fault.DEADLINE, "ran out of the request's time")
            return reader.fail(Fault.IDLE_TIMEOUT, f"was silent for {self._idle_s:g} s")
        except Exception as cause:
            if isinstance(cause.__cause__, ContentEncodingError):
                return reader.fail(Fault.PROTOCOL, "sent bytes that can't be decompressed")
            return reader.end(cut=True)
        return await large(len(data), reader.feed, data) if data else await large(reader.held_bytes, reader.end)

    async def _read_refusal(
        self, response: aiohttp.ClientResponse, request: ChatRequest, key: str
    ) -> tuple[UpstreamComplaint, Failed]:
        with closing(response):
            complaint = read_error_body(await _read_error_body(response))
        if target := _find_target(response):
            complaint = replace(complaint, message=f"it redirects to {target}: is its base_url right?")
        complaint = complaint.redact(self._endpoint.build_redactor(key))
        failed = translate_complaint(
            self._name,
            complaint,
            status=response.status,
            retry_after_s=read_retry_after_s(response.headers, datetime.now(UTC)),
            write_asked=partial(self._write_body, request),
        )
        if request.route and failed.status in _NO_ROUTE:
            words = f"{failed.message}: its API has no {request.route}, or not for this model"
            failed = replace(failed, fault=Fault.UNSUPPORTED, message=words, param="model")
        return complaint, failed

    def _find_problem(self, key: str) -> str:
        return "it is closed" if self._closed else self._endpoint.find_problem(key)

    def _build_failed(self, fault: Fault, words: str, usage: Usage | None = None) -> Failed:
        return Failed(fault=fault, message=f"tier {self._name} {words}", usage=usage)


def _find_room(words: str, limit: int | None, request: ChatRequest, lowered: int) -> int | None:
    """Return how many tokens to ask for in the place of `limit`; None where it isn't what was refused."""
    if limit is None or lowered >= _LOWERED_MAX or (lowered and not leaves_uncounted(words)):
        return None
    return find_room(words, limit, named=request.max_tokens_named, body_bytes=request.body_bytes)


def _find_target(response: aiohttp.ClientResponse) -> str:
    """Find where a redirect leads, without what may be secret there; empty where the response is none."""
    if response.status // 100 == 3 and (location := response.headers.get("Location")):
        with suppress(ValueError):
            target = response.url.join(URL(location))
            return f"{target.origin()}{target.raw_path}"
    return ""


def _explain_error(cause: Exception) -> tuple[Fault, str, Usage | None]:
    """Explain an error before the headers, without its text, which may name hosts and header values, and say what it
    cost: nothing where nobody was reached, else nobody knows."""
    match cause:
        case aiohttp.ConnectionTimeoutError():
            return Fault.CONNECT_TIMEOUT, "didn't take the request in time", Usage()
        case aiohttp.ClientConnectorError() | aiohttp.ClientProxyConnectionError():
            return Fault.CRASHED, "can't be reached: no connection to its server", Usage()
        case ValueError():
            return Fault.UNAVAILABLE, "is unavailable: its base_url or its headers can't be used", Usage()
        case aiohttp.ClientError() | OSError():
            return Fault.CRASHED, "closed the connection before it answered", None
        case _:
            return Fault.SERVER_ERROR, f"could not be called ({type(cause).__name__})", None


async def _read_error_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError):  # the status alone says enough
        async with asyncio.timeout(_ERROR_BODY_S):
            async for data in response.content.iter_any():
                body += data
                if len(body) >= _ERROR_BODY_BYTES_MAX:
                    break
    return bytes(body[:_ERROR_BODY_BYTES_MAX])


def _now_s() -> float:
    return asyncio.get_running_loop().time()
