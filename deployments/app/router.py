"""The Router: the graph's ingress. It has the routes, and makes of each chat a run; `reliability` decides what to do
next.

    body -> Dialect.parse -> Run -> (judge) -> drive -> Exchange -> client; on every way out: `Account.close`, once

One replica holds handles to all tiers and a link to the state actor, and no state that must outlive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Caller
from deployments.api.admin import Insight
from deployments.api.body import Bodies, parse_body
from deployments.api.dialect import Dialect
from deployments.api.exchange import Exchange
from deployments.api.headers import deadline_of, is_local_only, request_id_of
from deployments.api.metrics_route import MetricsRoute, find_endpoints
from deployments.api.middleware import MiddlewareApp, find_ending
from deployments.api.models import count_prompt, filter_for, is_held_off, make_page, model_list, readiness
from deployments.api.openai_chat import ChatCall
from deployments.api.openai_render import CHAT
from deployments.api.openai_responses.stored_record import NeedsRecall
from deployments.api.openai_responses.stored_responses import StoredResponses, StoredRoutes
from deployments.api.openapi.openapi_document import list_docs_routes
from deployments.api.overview import Overview
from deployments.api.responses import build_error_handlers, json_response
from deployments.app.keep_awake import KeepAwake
from deployments.app.router_parts import COUNTED, DIALECTS, WORKER_IMPORTS, LiveConfig, collect_facts
from deployments.app.stopping import Stopping
from deployments.config.app_config import AppConfig
from deployments.graph.replica import bind_to_node
from deployments.graph.scale_to_zero import bypass_cold, extend_timeouts, find_cold
from deployments.graph.status_poll import TierWatch
from deployments.memory.view import MemoryView
from deployments.models.calibrations import find_calibration
from deployments.models.needs import plan_of
from deployments.reports.account import Account, RequestMetrics
from deployments.reports.incidents import note_memory
from deployments.reports.traces import Traces
from deployments.request.compacting import drive_compacted
from deployments.request.drive import drive
from deployments.request.idempotency import KeptRequest, find_kept
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.judge import advise
from deployments.request.passthrough import forward, restrict_to_hosted
from deployments.request.policy import build_expected, chain_for, chain_of, hold_of, note_unread
from deployments.request.run_record import Run
from deployments.state.client import RequestState, State, ray_finder
from deployments.telemetry import flush_logs
from deployments.ui.control_room import ControlRoom
from deployments.work.large_work import collect_less, large
from deployments.work.turns import Asker
from deployments.work.worker_pool import Workers
from reliability.answer.estimate import prompt_bytes
from reliability.confidence import ModelCalibration
from reliability.context_edits import apply_edits
from reliability.memory.pressure import Level
from reliability.summaries import order_plainly, place_restored
from reliability.types import Event, TierState

_NS_PER_S = 1_000_000_000
# Where Claude Code looks at its start whether anybody is there.
_ROOTS = ("/", "/api/hello")
_LOCAL_ONLY = "the request is local-only: leave X-MLX-Stack-Local-Only out where it may leave this machine"
_KEY_STAYS = "this API key may not use the cloud: one without the flag local-only may"


class Router:
    """The ingress deployment. `handles` maps tier names to the handles of their deployments."""

    def __init__(self, config: AppConfig, handles: Mapping[str, DeploymentHandle]) -> None:
        bind_to_node()
        self._facts = collect_facts(config, handles)
        self._live = LiveConfig(config, self._facts)
        app, names, plan = serve.get_replica_context().app_name, tuple(self._facts.tiers), plan_of(config)
        self._stopping = Stopping(KeepAwake(config.server.keep_awake))
        contexts = {name: tier.context_tokens for name, tier in config.tiers.items()}
        self._watch = TierWatch(self._facts.tiers, self._facts.kinds, contexts)
        self._memory = None if plan is None else MemoryView(plan, app)  # None without leases
        self._state = State(ray_finder(app, config.state), self._live.state_limits())
        self._stored = StoredResponses(self._state, lambda: self._watch.context_tokens_max)
        self._overview = Overview(
            state=self._state,
            watch=self._watch,
            running=self._stopping.list_running,
            stopping=lambda: self._stopping.begun,
            memory=self._memory,
            tiers=names,
            cloud=self._facts.cloud,
            config=lambda: self._live.now,
        )
        chat = partial(self._answer, CHAT)
        self._room = ControlRoom(access=lambda: self._live.access, overview=self._overview, chat=chat)
        self._workers = Workers(imports=WORKER_IMPORTS)
        self._metrics, self._traces = RequestMetrics(), Traces(config.telemetry)
        slots = config.server.max_ongoing_requests
        self._bodies = Bodies(slots // 2, of_key_max=slots * 7 // 8)
        self._clock = MonotonicClock()
        self._jitter = random.Random()
        self._started_s = int(time.time())

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Apply a changed `user_config`, a patch to `reliability` and `server`; see `deployments.graph.reconfigure`."""
        self._live.apply(user_config)
        self._state.limits = self._live.state_limits()

    # -- what whoever runs the server may ask, by the handle ---------------------------------------------------

    async def ask_tiers(self) -> list[dict[str, Any]]:
        """Ask the tiers for their status now: `TierStatus`, each as a mapping."""
        return [asdict(status) for status in await self._watch.ask()]

    async def stop_taking(self) -> int:
        """Refuse new requests from now on; return how many are running."""
        return self._stopping.begin()

    async def drain(self, within_s: float) -> int:
        """Let the running requests end within this time, cut the rest, and tell the state; return how many were cut."""
        cut = await self._stopping.drain(within_s)
        await self._state.close()
        flush_logs()
        return cut

    # -- the app -----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None, None]:
        """Find or make the state actor before the first request; let it hear everything before this replica ends."""
        self._watch.start()
        await self._state.start()
        chores = (note_memory(self._memory, self._state.note), self._overview.share_on(), self._stopping.awake.run())
        beside = [asyncio.create_task(chore) for chore in chores]
        collect_less()
        yield
        for task in beside:
            task.cancel()
        if self._memory is not None:
            await self._memory.close()
        await self._workers.close()
        await self._watch.close()
        await self._stored.close()
        await self._state.close()
        await self._traces.close()

    def __serve_build_asgi_app__(self) -> Starlette:
        """Build the ASGI app that Serve runs; called once per replica."""
        routes = [
            Route("/health", self.health),
            Route("/ready", self.ready),
            *(Route(path, self.root) for path in _ROOTS),
            *(Route(path, partial(self._count_tokens, spoken), methods=["POST"]) for path, spoken in COUNTED.items()),
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.model),
            *(Route(path, partial(self._answer, spoken), methods=["POST"]) for path, spoken in DIALECTS.items()),
            *list_docs_routes(lambda: self._live.access),
            *StoredRoutes(self._stored, self._identify_caller, self._admit).routes(),
            *Insight(self._overview, lambda: self._live.access, self._admit).routes(),
            *MetricsRoute(self._overview, lambda: self._live.access, find_endpoints).routes(),
            self._room.mount(),
        ]
        return MiddlewareApp(
            lambda: self._live.access,
            routes=routes,
            exception_handlers=build_error_handlers(DIALECTS),
            lifespan=self._lifespan,
        )

    # -- routes ------------------------------------------------------------------------------------------------

    async def root(self, request: Request) -> Response:
        """Answer that something is here, and where the rest is; to a browser with the control room."""
        if "text/html" in request.headers.get("accept", ""):  # a person, and no agent
            return await self._room.show_now(request)
        return json_response({"name": "mlx-stack-serve", "models": "/v1/models", "ready": "/ready", "docs": "/docs"})

    async def health(self, _: Request) -> Response:
        """Answer that this replica is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Report which tiers can answer; 503 while none of the chain can. Who has no key where keys are needed learns
        only that. Raises ApiError: `invalid_api_key`: a key was sent, and it is wrong."""
        caller = self._live.access.viewer(request.client.host if request.client else None, request.headers)
        statuses = await self._watch.ask()
        chain = self._live.now.reliability.escalation.chain
        memory = None if self._memory is None else self._memory.summary()
        state, patch = self._state, self._live.refused_patch
        body = readiness(statuses, chain, patch, state.health, state_actor=state.condition, memory=memory)
        return json_response(filter_for(body, caller), status=200 if body["ready"] else 503)

    async def models(self, request: Request) -> Response:
        """List tiers, aliases and `auto`, with what stands behind each."""
        self._identify_caller(request)
        return json_response(make_page(await self._list_models()))

    async def model(self, request: Request) -> Response:
        """Report one of the entries of `models`, or what a pattern of the aliases makes of a name."""
        self._identify_caller(request)
        wanted = request.path_params["model"]
        known = {m["id"]: m for m in await self._list_models()}
        if wanted not in known:
            starts_at = chain_for(self._live.now, self._facts.tiers, wanted)[0]
            known[wanted] = known[starts_at] | {"id": wanted, "display_name": wanted, "starts_at": starts_at}
        return json_response(known[wanted])

    async def _answer(self, spoken: Dialect, request: Request, caller: Caller | None = None) -> Response:
        """Answer one request of a dialect, streamed or not; `caller`: of a page of the control room."""
        caller = caller or self._identify_caller(request)
        started_ns = self._clock.now_ns()
        raw = await self._read_body(request, caller)
        call = await self._read_call(spoken, request, raw, caller)
        run = await large(call.request.body_bytes, self._make_run, call, caller, is_local_only(request.headers))
        kept = await find_kept(self._state, spoken.name, request.headers, raw, run)
        state = RequestState(
            self._state,
            key=run.key,
            session=run.request.session_id,
            parent=run.request.parent,
            request_id=run.request.request_id,
            wants_window=run.expected.wants_window,
            complete=run.expected.shown.complete if run.expected.shown is not None else 0,
            trail=call.trail,
        )
        account = Account(run=run, state=state, started_ns=started_ns, traceparent=request.headers.get("traceparent"))
        exchange = Exchange(
            dialect=spoken,
            call=call,
            run=run,
            events=self._drive(account, kept),
            report=lambda: account.report(self._clock.now_ns(), self._facts.prices),
            close=lambda: self._close(account),
            keepalive_s=self._live.now.server.keepalive_s,
            keep=lambda written: self._stored.keep(call, run, written),
            kept=kept,
        )
        return await exchange.respond()

    async def _count_tokens(self, spoken: Dialect, request: Request) -> Response:
        caller = self._identify_caller(request)
        call = await self._read_call(spoken, request, await self._read_body(request, caller), caller)
        tier = self._facts.tiers[chain_for(self._live.now, self._facts.tiers, call.model)[0]]
        counted_request, edited = await large(call.request.body_bytes, apply_edits, call.request, call.edits or ())
        counted = await count_prompt(tier, counted_request)
        if call.edits is not None:
            whole = counted["input_tokens"] + sum(cleared.tokens for cleared in edited)
            counted["context_management"] = {"original_input_tokens": whole}
        return json_response({**spoken.counted, **counted}, headers=spoken.id_headers(call.request.request_id))

    async def _read_body(self, request: Request, caller: Caller) -> bytes:
        own, ending = self._live.now.server, find_ending(request.scope)
        most, first_s, key = own.body_bytes_max, own.body_s, self._name_shared(caller)
        return await self._bodies.read(request, bytes_max=most, first_s=first_s, ending=ending, key=key)

    def _name_shared(self, caller: Caller) -> str:
        """Name the key of the caller where there are several, among which memory is shared."""
        return caller.name if self._live.access.shared else ""

    async def _read_call(self, spoken: Dialect, request: Request, raw: bytes, caller: Caller) -> ChatCall:
        """Parse a body; where it goes on from stored responses, with those."""
        parse = partial(
            parse_body,
            self._workers,
            raw=raw,
            headers=request.headers,
            key=caller.name,
            request_id=request_id_of(request.headers),
            tokens_max=self._live.now.reliability.token_budget.max_output_tokens,
            timeout_s=deadline_of(request.headers, self._live.now.server.deadline_s),
        )
        ending = find_ending(request.scope)
        try:
            call = await parse(parse=spoken.parse)
        except NeedsRecall as need:
            recalled = await self._stored.recall(caller.name, need, ending)
            call = await parse(parse=partial(spoken.parse, recalled=recalled), beside=recalled.size)
        await self._bodies.hold_values(call.request, ending=ending, key=self._name_shared(caller))
        return call

    def _identify_caller(self, request: Request) -> Caller:
        return self._live.access.identify(request)

    async def _admit(self, request: Request, size: int) -> Caller:
        """Identify who reads; count the request and an answer of `size` bytes for its key until it is taken."""
        caller, ending = self._identify_caller(request), find_ending(request.scope)
        self._bodies.take_slot(self._name_shared(caller), ending)
        await self._stored.budget.reserve(caller.name, size, ending)
        return caller

    # -- one chat request --------------------------------------------------------------------------------------

    def _make_run(self, call: ChatCall, caller: Caller, local_only: bool) -> Run:
        """Make the record of a call's run. It waits for nothing, and may be made on another thread."""
        request = replace(call.request, messages=tuple(place_restored(call.request.messages)))
        stays = "" if caller.allow_cloud else _KEY_STAYS
        if local_only:
            stays = _LOCAL_ONLY
        expected = build_expected(self._live.now, request, call.toolbox, call.form)
        request, edited = apply_edits(request, call.edits or ())
        limits = self._live.limits
        known, ready = self._find_calibration, self._can_stand_in
        chain = chain_of(self._live.now, self._facts.tiers, call.model, request, known, ready)
        if expected.ordered is not None:
            is_local = self._facts.kinds.get(chain[0]) == "mlx"
            request = order_plainly(request, self._watch.context_tokens.get(chain[0]) if is_local else None)
        run = Run(
            request=request,
            expected=expected,
            chain=chain,
            limits=replace(limits, shorten=limits.shorten or call.shorten),
            edited=edited,
            compaction=call.compaction,
            deadline_ns=self._clock.now_ns() + int(request.timeout_s * _NS_PER_S),
            key=caller.name,
            hold=hold_of(self._live.now, expected, stream=call.stream),
            stays=stays,
            prompt_bytes=prompt_bytes(request.messages, request.tools),
            level=self._observe_memory(None)[0],
            notes=(*call.notes, *note_unread(request, chain, self._facts.kinds)),
        )
        return restrict_to_hosted(run, self._facts.kinds) if request.route else run

    def _observe_memory(self, tier: str | None) -> tuple[Level, int]:
        """Return the memory level of a tier's nodes, or of all, and for how many nanoseconds it has been so."""
        observed = None if self._memory is None else self._memory.level(tier)
        return (Level.UNKNOWN, 0) if observed is None else (observed.level, observed.sustained_ns)

    def _find_calibration(self, tier: str) -> ModelCalibration | None:
        status, config = self._watch.known.get(tier), self._live.now.reliability.escalation.confidence
        return None if status is None else find_calibration(status, config.calibrations)

    async def _drive(self, account: Account, kept: KeptRequest | None) -> AsyncGenerator[list[Event], None]:
        cold = find_cold(account.run.chain, self._facts.scalable, self._facts.tiers, self._can_stand_in)
        ports = Ports(
            tiers={**self._facts.tiers, **bypass_cold(cold, self._facts.tiers)},
            timeouts=self._live.waits | extend_timeouts(cold, self._facts.scalable, self._live.waits),
            clock=self._clock,
            jitter=self._jitter.random,
            admission=account.state,
            cloud=self._facts.cloud,
            deferring=self._facts.deferring,
            foreign=frozenset(name for name, kind in self._facts.kinds.items() if kind == "hosted"),
            text_only=frozenset(name for name, kind in self._facts.kinds.items() if kind == "mlx"),
            context_tokens=self._watch.context_tokens,
            memory=self._observe_memory,
            calibration=self._find_calibration,
            large=large,
            elsewhere=partial(self._workers.run, asker=Asker(account.run.key, judges=True)),
        )
        judge = self._live.now.reliability.circuit_breaker
        walk = drive if account.run.compaction is None else drive_compacted  # a layer less for each batch
        walk = forward if account.run.request.route else walk
        if judge.enabled and walk is not forward and not (kept and kept.replays):
            account.advice = await advise(account.run, ports, judge)
        told = walk(account.run, ports)
        told = kept.tell(account.run, self._clock, account.state.adopt, told) if kept else told
        try:
            async with contextlib.aclosing(self._stopping.pass_on(account.run, told)) as batches:
                async for batch in batches:
                    if account.run.finish is not None:
                        # In the same turn as the settle, before anything is sent: a Router that is killed between the
                        # two would leave a call that is paid and that no report tells of.
                        self._close(account)
                    yield batch
        finally:
            self._close(account)

    def _can_stand_in(self, name: str) -> bool:
        status = self._watch.known.get(name)
        well = status is not None and status.state is TierState.READY and not is_held_off(self._state.health.get(name))
        return well and name not in self._facts.cloud and self._facts.tiers[name].warm

    def _close(self, account: Account) -> None:
        account.close(
            self._clock.now_ns(),
            prices=self._facts.prices,
            statuses=self._watch.known,
            keep_text=self._live.now.reliability.incidents.keep_text,
            metrics=self._metrics,
            traces=self._traces,
        )

    async def _list_models(self) -> list[dict[str, Any]]:
        aliases, chain = self._live.now.server.aliases, self._live.now.reliability.escalation.chain
        return model_list(await self._watch.ask(), aliases, chain, self._started_s, self._state.health)
