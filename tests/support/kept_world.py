"""Two Routers over one state actor, in virtual time: what becomes of a request that is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from deployments.api.exchange import Exchange
from deployments.app.router_parts import DIALECTS
from deployments.config.tier_config import Timeouts
from deployments.errors import ApiError
from deployments.reports.report import report_of
from deployments.request.drive import drive
from deployments.request.idempotency import find_kept
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from deployments.state.client import RequestState, State
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import expect
from reliability.escalation.decisions import Limits
from reliability.loops import LoopConfig
from reliability.steps import Steps
from reliability.tools import CheckConfig
from reliability.types import ChatRequest, Event, Hold, Reason
from tests.clients.record import WIRES
from tests.sim.clock import VirtualClock
from tests.sim.clock import run as play
from tests.support.dialects import ROUTES, write_body
from tests.support.near_actor import NearActor
from tests.support.renderings import tool
from tests.unit.deployments.state.test_client import config

WORDS = [f"w{number} " for number in range(20)]  # in the cap of an answer
TEXT = "".join(WORDS)
WORD_S = 0.4
CALL = {"tool_call": {"name": "f", "arguments": {"a": 1}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"idempotency-key": "n1"}
ASKED = [{"role": "user", "content": "hi"}]
BODIES = {ROUTES[one]: write_body(one, ASKED, [tool("f", SCHEMA)]) for one in ROUTES}
CHAT = "/v1/chat/completions"
PATIENT = Timeouts(connect_s=5, first_token_s=60, idle_s=60, total_s=600)
each_dialect = pytest.mark.parametrize("path", BODIES)
each_way = pytest.mark.parametrize("stream", [True, False])


class Writer(ScriptedTier):
    """Writes the text a word at a time, but for what stands already, then a call; or fails. `asked`: with what."""

    def __init__(self) -> None:
        super().__init__(name="fast", script=[])
        self.asked: list[ChatRequest] = []
        self.fails = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        self.asked.append(request)
        words = [{"text": word, "delay_s": WORD_S} for word in WORDS]
        answer = [{"status": 500}] if self.fails else [*words, CALL]
        async for events in ScriptedTier(name="fast", script=[{"answer": answer}]).stream(request):
            yield events


@dataclass
class Told:
    """What a client was told so far, by an answer to `path`."""

    path: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    run: Run | None = None

    @property
    def text(self) -> str:
        return WIRES[self.path.removeprefix("/v1")].read_answer(self.raw.encode()).text

    @property
    def calls(self) -> set[str]:
        return {part.split('"')[0] for part in self.raw.replace("toolu_", "call_").split('"call_')[1:]}


class Router:
    """One Router replica, as far as a chat needs it."""

    def __init__(self, near: NearActor, tier: Writer) -> None:
        self.near, self.tier = _Wire(near), tier
        self.state = State(self.near.find, config())
        self.clock = VirtualClock()

    async def kill(self) -> None:
        self.near.away = True

    async def answer(
        self,
        told: Told,
        path: str = CHAT,
        *,
        stream: bool = True,
        headers: Any = NAMED,
        limits: Any = None,
        **more: Any,
    ) -> Told:
        told.path, spoken = path, DIALECTS[path]
        raw = orjson.dumps(BODIES[path] | {"stream": stream} | more)
        try:
            call = spoken.parse(raw, headers, request_id="r", tokens_max=500, timeout_s=300, steps=Steps(10**9))
            told.run = run = self._make_run(call.request, call.toolbox, stream, limits or {})
            kept = await find_kept(self.state, spoken.name, headers, raw, run)
        except ApiError as error:
            told.status, told.raw = error.status, str(error)
            return told
        port = RequestState(self.state, key="k", session=run.request.session_id, request_id="r")
        answer = drive(run, self._make_ports(port))
        if kept is not None:
            answer = kept.tell(run, self.clock, port.adopt, answer)
        rest: Any = {"report": lambda: report_of(run), "close": lambda: None, "keepalive_s": 1000.0, "kept": kept}
        response: Any = await Exchange(dialect=spoken, call=call, run=run, events=answer, **rest).respond()
        told.status, told.headers = response.status_code, dict(response.headers)
        if not hasattr(response, "body_iterator"):
            told.raw = response.body.decode()
            if response.background is not None:
                await response.background()
            return told
        try:
            async for frame in response.body_iterator:
                told.raw += frame.decode()
        finally:
            await response._frames.aclose()
        return told

    def _make_run(self, request: ChatRequest, toolbox: Any, stream: bool, limits: dict[str, Any]) -> Run:
        bounds = {"retries_max": 1, "attempts_max": 9, "escalate_on": frozenset(Reason), "continuations_max": 1}
        return Run(
            request=request,
            expected=expect(request.messages, toolbox, id_seed="r", checks=CheckConfig(), loops=LoopConfig()),
            chain=("fast",),
            limits=Limits(**bounds | limits),  # type: ignore[arg-type]
            deadline_ns=self.clock.now_ns() + 300 * 10**9,
            key="k",
            hold=Hold.TOOL_CALLS if stream else Hold.ALL,
            prompt_bytes=prompt_bytes(request.messages, request.tools),
        )

    def _make_ports(self, admission: RequestState) -> Ports:
        tiers, waits = {"fast": self.tier}, {"fast": PATIENT}
        return Ports(tiers=tiers, timeouts=waits, clock=self.clock, jitter=lambda: 0.0, admission=admission)


class _Wire:
    """One Router's way to the actor."""

    def __init__(self, near: NearActor) -> None:
        self._near, self.away = near, False

    async def find(self) -> _Wire:
        return self

    def close(self) -> None:
        pass

    async def call(self, method: str, *args: Any) -> Any:
        if self.away:
            raise ConnectionError("killed")
        return await self._near.call(method, *args)


@dataclass
class World:
    """Two Routers, one state, one tier."""

    one: Router
    other: Router
    tier: Writer
    near: NearActor
    tasks: list[asyncio.Task[Told]] = field(default_factory=list)

    def begin(self, router: Router, **more: Any) -> Told:
        told = Told()
        self.tasks.append(asyncio.create_task(router.answer(told, **more)))
        return told

    def spent(self, told: Told) -> int:
        assert told.run is not None
        return int(self.near.actor.budget("k", told.run.request.session_id)["spent_tokens"])


def in_world(folder: Path, go: Callable[[World], Any]) -> None:
    """Play it; at the end nothing is reserved."""

    async def main() -> None:
        near, tier = NearActor(folder, call_s=0.001), Writer()
        world = World(Router(near, tier), Router(near, tier), tier, near)
        for router in (world.one, world.other):
            await router.state.start()
        await go(world)
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)
        await asyncio.sleep(400)  # whatever a dead Router held has expired
        assert near.actor.stats()["grants"] == 0
        for router in (world.one, world.other):
            await router.state.close()
        near.actor._journal.close()

    play(main())
