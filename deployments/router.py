"""The Router: the graph's ingress. It parses, drives and renders; what to do next is decided in `reliability`.

One Router replica holds handles to all tiers and no state of its own: what must outlive a request goes to the
SessionState actor, in one call after the answer that nobody waits for. Replicas may come and go.

    body -> parse_chat -> Run -> drive -> render -> client
                                   `-> on every way out: report -> SessionState, metrics, log

The status code of a stream is decided by its first event: until then, or until a keep-alive is due, the headers wait,
so a request that no tier can answer gets a real HTTP error. `user_config` patches `reliability` and `server` live.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.config import ROUTER, AppConfig, RouterConfig, Timeouts, check_names, patch
from deployments.drive import Run, drive
from deployments.live import applied
from deployments.plan import chain_for, expected_of, limits_of, unknown_model
from deployments.ports import Ports
from deployments.state.actor import STATE_ACTOR
from deployments.telemetry import MonotonicClock, RequestMetrics, log_error, log_info
from deployments.tiers.handle import HandleTier
from deployments.wire.chat import ChatCall, parse_chat
from deployments.wire.errors import ApiError, from_refusal
from deployments.wire.models import model_list, readiness
from deployments.wire.render import KEEP_ALIVE, Answer, ChunkWriter, sse
from deployments.wire.report import report_headers, report_of, session_header
from deployments.wire.stream import EventStream, paced
from reliability.gate import Hold
from reliability.types import Event, TierState, TierStatus

__all__ = ["Router"]

STATUS_TIMEOUT_S = 2.0
STATE_TIMEOUT_S = 2.0
REQUEST_ID_CHARS_MAX = 128
NS_PER_S = 1_000_000_000


class Router:
    """The ingress deployment. `handles` maps tier names to the handles of their deployments."""

    def __init__(self, config: AppConfig, handles: Mapping[str, DeploymentHandle]) -> None:
        self._base = RouterConfig(reliability=config.reliability, server=config.server)
        self._config = self._base
        self._configured = False
        self._refused_patch: str | None = None
        self._kinds = {name: tier.kind for name, tier in config.tiers.items()}
        self._timeouts = {name: tier.timeouts for name, tier in config.tiers.items()}
        self._tiers = {name: HandleTier(name, handle) for name, handle in handles.items()}
        self._strategies = {name: tier.retry_strategy for name, tier in config.tiers.items()}
        self._clock = MonotonicClock()
        self._jitter = random.Random()
        self._metrics = RequestMetrics()
        self._started_s = int(time.time())

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Apply a changed `user_config`, a patch to `reliability` and `server`; see `deployments.live.applied`."""
        self._config, self._refused_patch = applied(
            self._patched, user_config, self._config, first=not self._configured, at=ROUTER
        )
        self._configured = True

    def _patched(self, change: Mapping[str, Any]) -> RouterConfig:
        config = patch(self._base, change)
        check_names(config, tuple(self._tiers))
        return config

    def __serve_build_asgi_app__(self) -> Starlette:
        """The ASGI app that Serve runs; called once per replica."""
        routes = [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/v1/models", self.models),
            Route("/v1/models/{model}", self.model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/reliability/requests/{request_id}", self.request_report),
            Route("/v1/reliability/sessions/{session:path}", self.session_totals),
        ]
        handlers: dict[Any, Any] = {ApiError: _api_error, HTTPException: _http_error, Exception: _bug}
        return Starlette(routes=routes, exception_handlers=handlers)

    # -- routes ------------------------------------------------------------------------------------------------

    async def health(self, _: Request) -> Response:
        """Alive: this replica answers."""
        return _json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """Which tiers can answer; 503 while none of the chain can."""
        statuses = await self._statuses()
        body = readiness(statuses, self._config.reliability.escalation.chain, self._refused_patch)
        return _json(body, status=200 if body["ready"] else 503)

    async def models(self, _: Request) -> Response:
        """Tiers, aliases and `auto`, with what stands behind each."""
        return _json({"object": "list", "data": await self._models()})

    async def model(self, request: Request) -> Response:
        """One of the above."""
        wanted = request.path_params["model"]
        found = next((m for m in await self._models() if m["id"] == wanted), None)
        if found is None:
            raise unknown_model(self._config, self._tiers, wanted)
        return _json(found)

    async def chat(self, request: Request) -> Response:
        """One chat completion, streamed or not."""
        server = self._config.server
        call = parse_chat(
            await _body(request, server.body_bytes_max),
            request.headers,
            request_id=_request_id(request),
            tokens_max=self._config.reliability.token_budget.max_output_tokens,
            timeout_s=server.deadline_s,
        )
        run = self._run(call)
        if call.stream:
            return await self._streamed(call, run)
        return await self._whole(call, run)

    async def request_report(self, request: Request) -> Response:
        """The report of one finished request."""
        request_id = request.path_params["request_id"]
        report = await self._ask_state("report", request_id)
        if report is None:
            raise ApiError("not_found", f"there is no report of request {request_id!r}")
        return _json(report)

    async def session_totals(self, request: Request) -> Response:
        """What one session has spent."""
        name = request.path_params["session"]
        session = await self._ask_state("session", name)
        if session is None:
            raise ApiError("not_found", f"there is no session {name!r}")
        return _json(session)

    # -- one chat request --------------------------------------------------------------------------------------

    def _run(self, call: ChatCall) -> Run:
        return Run(
            request=call.request,
            expected=expected_of(self._config, call.request, call.toolbox),
            chain=chain_for(self._config, self._tiers, call.model),
            limits=limits_of(self._config, self._strategies),
            deadline_ns=self._clock.now_ns() + int(call.request.timeout_s * NS_PER_S),
            # A client that doesn't stream has seen nothing until the end, so everything can be mended.
            hold=Hold.TOOL_CALLS if call.stream else Hold.ALL,
        )

    def _drive(self, run: Run) -> AsyncGenerator[list[Event], None]:
        server = self._config.server
        timeouts: dict[str, Timeouts] = {name: own or server.timeouts for name, own in self._timeouts.items()}
        ports = Ports(
            tiers=self._tiers,
            timeouts=timeouts,
            clock=self._clock,
            jitter=self._jitter.random,
        )
        return drive(run, ports)

    async def _whole(self, call: ChatCall, run: Run) -> Response:
        answer = Answer(answer_id=_answer_id(), created_s=int(time.time()), legacy_functions=call.legacy_functions)
        try:
            async with contextlib.aclosing(self._drive(run)) as events:
                async for batch in events:
                    answer.take(batch)
        finally:
            self._settle(run)
        if run.finish is None or run.tier is None:
            return _refused(run)
        body = answer.body(run.tier, run.finish)
        return Response(body, media_type="application/json", headers=report_headers(run))

    async def _streamed(self, call: ChatCall, run: Run) -> Response:
        writer = ChunkWriter(answer_id=_answer_id(), created_s=int(time.time()), legacy_functions=call.legacy_functions)
        frames = self._frames(call, run, writer)
        # The first frame waits for the first event, or for the first keep-alive; a refusal yields no frame at all.
        try:
            first = await anext(frames, None)
        except asyncio.CancelledError:
            await frames.aclose()
            raise
        if first is None:
            return _refused(run)
        # Headers that leave before any tier has answered can't say which one will: the last chunk's report does.
        headers = session_header(run) if first is KEEP_ALIVE else report_headers(run)
        return EventStream(_with_first(first, frames), headers=headers | {"cache-control": "no-store"})

    async def _frames(self, call: ChatCall, run: Run, writer: ChunkWriter) -> AsyncGenerator[bytes, None]:
        """The frames of one stream. It yields nothing where the request is refused before anything was sent."""
        begun = False
        try:
            async with contextlib.aclosing(paced(self._drive(run), self._config.server.keepalive_s)) as batches:
                async for batch in batches:
                    begun = True
                    yield KEEP_ALIVE if batch is None else writer.chunks(run.tier or "", batch)
            if run.finish is not None:
                report = report_of(run)
                yield writer.last(run.tier or "", run.finish, report, include_usage=call.include_usage)
            elif run.refusal is not None and begun:
                yield sse(from_refusal(run.refusal).body() | {"mlx_stack": report_of(run)})
        except Exception as error:
            log_error("stream_failed", error, request_id=run.request.request_id)
            yield sse(ApiError("internal_error", "an error inside the server").body())
        finally:
            self._settle(run)

    def _settle(self, run: Run) -> None:
        """Account for a finished request: never waits, never raises into the request."""
        report = report_of(run)
        log_info(
            "request",
            request_id=report["request_id"],
            outcome=report["outcome"],
            tier=report["tier"],
            escalated_from=report["escalated_from"],
            reason=report["escalation_reason"],
            retries=report["retries"],
        )
        try:
            self._metrics.count(report)
            serve.get_deployment_actor(STATE_ACTOR).record.remote(report)
        except Exception as error:
            log_error("settle_failed", error, request_id=run.request.request_id)

    # -- what the other routes ask -----------------------------------------------------------------------------

    async def _statuses(self) -> list[TierStatus]:
        return list(await asyncio.gather(*(self._status(name) for name in self._tiers)))

    async def _status(self, name: str) -> TierStatus:
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                return await self._tiers[name].status()
        except Exception as error:
            reason = f"no replica answers ({type(error).__name__})"
            return TierStatus(name=name, kind=self._kinds[name], state=TierState.UNAVAILABLE, reason=reason)

    async def _models(self) -> list[dict[str, Any]]:
        config = self._config
        return model_list(
            await self._statuses(), config.server.aliases, config.reliability.escalation.chain, self._started_s
        )

    async def _ask_state(self, question: str, key: str) -> Any:
        try:
            async with asyncio.timeout(STATE_TIMEOUT_S):
                return await getattr(serve.get_deployment_actor(STATE_ACTOR), question).remote(key)
        except Exception as error:
            log_error("state_silent", error)
            words = "the state actor doesn't answer; it is restarted within seconds"
            raise ApiError("no_tier_available", words, retry_after_s=5.0) from None


async def _with_first(first: bytes, frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield first
        async for frame in frames:
            yield frame
    finally:
        await frames.aclose()


async def _body(request: Request, bytes_max: int) -> bytes:
    """The body, read no further than its bound."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise ApiError("body_too_large", f"the body is over {bytes_max} bytes (server.body_bytes_max)")
        parts.append(part)
    return b"".join(parts)


def _request_id(request: Request) -> str:
    """The client's `x-request-id`, else the one that Serve has put in its place; Serve also sends it back."""
    given = request.headers.get("x-request-id", "")
    if given.isascii() and given.isprintable() and 0 < len(given) <= REQUEST_ID_CHARS_MAX:
        return given
    return str(uuid.uuid4())


def _answer_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _refused(run: Run) -> Response:
    if run.refusal is None:
        raise AssertionError("a request ends answered or refused")
    error = from_refusal(run.refusal)
    return _json(error.body(), status=error.status, headers=report_headers(run) | error.headers())


def _json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status_code=status, media_type="application/json", headers=headers)


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return _json(error.body(), status=error.status, headers=error.headers())


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, in OpenAI's shape."""
    status = getattr(error, "status_code", 500)
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "internal_error")
    words = {
        "not_found": f"there is no route {request.url.path}",
        "method_not_allowed": "this method isn't allowed here",
    }
    return await _api_error(request, ApiError(code, words.get(code, "an error inside the server")))


async def _bug(request: Request, error: Exception) -> Response:
    log_error("bug", error, request_id=_request_id(request))
    return await _api_error(request, ApiError("internal_error", "an error inside the server"))
