"""A repeated request is told the same answer, in every dialect: over the state actor itself, in virtual time.

    one Router ──▶ state actor ◀── another Router            a tier that writes a word each `WORD_S`

A Router that is killed speaks no more: its link ends, and what it ran stops.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from deployments.api.dialect import Dialect
from deployments.api.exchange import Exchange
from deployments.config_tiers import Timeouts
from deployments.dialects import DIALECTS
from deployments.errors import ApiError
from deployments.ports import Ports
from deployments.reports.report import report_of
from deployments.request.drive import drive
from deployments.request.idempotency import find_kept
from deployments.request.run_record import Run
from deployments.state.client import RequestState, State
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.answer.estimate import prompt_bytes
from reliability.answer.gate import Hold
from reliability.answer.judgement import expect
from reliability.escalation.decisions import Limits
from reliability.loops import LoopConfig
from reliability.steps import Steps
from reliability.tools import CheckConfig
from reliability.types import ChatRequest, Event, Reason
from tests.sim.clock import VirtualClock
from tests.sim.clock import run as play
from tests.unit.deployments.state.test_client import Near, config

WORDS = [f"w{number} " for number in range(20)]  # in the cap of an answer
TEXT = "".join(WORDS)
WORD_S = 0.4
CALL = {"tool_call": {"name": "f", "arguments": {"a": 1}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"idempotency-key": "n1"}
ASKED = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": ASKED,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    },
    "/v1/messages": {"messages": ASKED, "max_tokens": 500, "tools": [{"name": "f", "input_schema": SCHEMA}]},
    "/v1/responses": {"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
}
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
    """What a client was told so far."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: str = ""
    run: Run | None = None

    @property
    def text(self) -> str:
        return "".join(_read_texts(self.raw))

    @property
    def calls(self) -> set[str]:
        """The ids of the calls in it."""
        return {part.split('"')[0] for part in self.raw.replace("toolu_", "call_").split('"call_')[1:]}


def _read_texts(raw: str) -> Iterator[str]:
    if not raw.startswith("{"):
        for line in raw.splitlines():
            frame = json.loads(line[6:]) if line.startswith("data: {") else {}
            yield from (choice["delta"].get("content") or "" for choice in frame.get("choices") or ())
            delta = frame.get("delta")
            is_text = frame.get("type") == "response.output_text.delta"
            yield delta if is_text else (delta.get("text", "") if isinstance(delta, dict) else "")
        return
    body = json.loads(raw)
    yield from (choice["message"]["content"] or "" for choice in body.get("choices", ()))
    yield from (part.get("text", "") for part in body.get("content") or ())
    for one in body.get("output", ()):
        yield from (part["text"] for part in one.get("content", ()))


class Router:
    """One Router replica, as far as a chat needs it."""

    def __init__(self, near: Near, tier: Writer) -> None:
        self.near, self.tier = _Wire(near), tier
        self.state = State(self.near.find, config())
        self.clock = VirtualClock()

    async def kill(self) -> None:
        """It speaks no more."""
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
        """Answer one request as the Router does."""
        spoken: Dialect = DIALECTS[path]
        raw = orjson.dumps(BODIES[path] | {"stream": stream} | more)
        try:
            call = spoken.parse(raw, headers, request_id="r", tokens_max=500, timeout_s=300, steps=Steps(10**9))
            told.run = run = self._make_run(call.request, call.toolbox, stream, limits or {})
            kept = await find_kept(self.state, spoken.name, headers, raw, run)
        except ApiError as error:
            told.status, told.raw = error.status, str(error)
            return told
        port = self.state.request(key="k", session=run.request.session_id, request_id="r")
        answer = drive(run, self._make_ports(port))
        if kept is not None:
            answer = kept.tell(run, self.clock, port.adopt, answer)
        response: Any = await Exchange(
            dialect=spoken,
            call=call,
            run=run,
            events=answer,
            report=lambda: report_of(run),
            close=lambda: None,
            keepalive_s=1000.0,
            kept=kept,
        ).respond()
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

    def __init__(self, near: Near) -> None:
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
    near: Near
    tasks: list[asyncio.Task[Told]] = field(default_factory=list)

    def begin(self, router: Router, **more: Any) -> Told:
        """Begin a request beside."""
        told = Told()
        self.tasks.append(asyncio.create_task(router.answer(told, **more)))
        return told

    def spent(self, told: Told) -> int:
        """What the session of a request was charged."""
        assert told.run is not None
        return int(self.near.actor.budget("k", told.run.request.session_id)["spent_tokens"])


def in_world(folder: Path, go: Callable[[World], Any]) -> None:
    """Play it; at the end nothing is reserved."""

    async def main() -> None:
        near, tier = Near(folder), Writer()
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


@each_dialect
@each_way
def test_a_finished_answer_is_told_again(tmp_path, path, stream):
    """Law: by any Router, from its start, with the same calls, a header and a note; no tier is asked and nothing is
    charged."""

    async def go(world: World) -> None:
        first = await world.one.answer(Told(), path, stream=stream)
        await asyncio.sleep(2)
        spent = world.spent(first)
        again = await world.other.answer(Told(), path, stream=stream)
        await asyncio.sleep(2)

        assert (first.text, again.text) == (TEXT, TEXT)
        assert first.calls == again.calls
        assert first.calls
        assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
        assert again.headers["x-mlx-stack-session"] == first.headers["x-mlx-stack-session"]
        assert again.headers["x-mlx-stack-tier"] == "fast"
        assert "told again" in report_of(again.run)["notes"][0]
        assert len(world.tier.asked) == 1
        assert world.spent(first) == world.spent(again) == spent > 0

    in_world(tmp_path, go)


@each_dialect
@each_way
def test_a_running_answer_is_followed(tmp_path, path, stream):
    """Law: a repeat is told what there is, then the rest as it comes; one call to the tier, charged once."""

    async def go(world: World) -> None:
        first = world.begin(world.one, path=path, stream=stream)
        await asyncio.sleep(5 * WORD_S)
        again = world.begin(world.other, path=path, stream=stream)
        await asyncio.sleep(5 * WORD_S)
        if stream:
            assert again.text.startswith("w0 w1 ")
            assert len(again.text) < len(TEXT)
        await asyncio.gather(*world.tasks)

        assert (first.text, again.text) == (TEXT, TEXT)
        assert first.calls == again.calls
        assert again.headers["idempotent-replayed"] == "true"
        assert len(world.tier.asked) == 1

    in_world(tmp_path, go)


@each_dialect
@pytest.mark.parametrize("killed", [True, False])
def test_a_stream_that_had_stopped_goes_on(tmp_path, path, killed):
    """Law: whether its Router died or its client left, the repeat is told the whole answer from its start, to the
    letter; the tier writes only the rest, and that is what is charged beside what had left before."""

    async def go(world: World) -> None:
        world.begin(world.one, path=path)
        await asyncio.sleep(12 * WORD_S)
        if killed:
            await world.one.kill()
        world.tasks[0].cancel()
        await asyncio.sleep(1)
        again = await world.other.answer(Told(), path)
        begun = world.tier.asked[1].begun

        assert again.text == TEXT
        assert again.calls
        assert begun
        assert TEXT.startswith(begun)
        assert 5 < len(begun.split()) <= 12
        assert report_of(again.run)["continued"]
        assert [a["seam"] for a in report_of(again.run)["attempts"]] == [None, len(begun)]
        assert again.run.request.max_tokens < 500
        third = await world.other.answer(Told(), path)
        assert (third.text, third.calls, len(world.tier.asked)) == (TEXT, again.calls, 2)

    in_world(tmp_path, go)


def test_a_follower_goes_on_where_the_other_stopped(tmp_path):
    """Law: who follows an answer when its Router dies gets the rest in the same stream, without a word twice."""

    async def go(world: World) -> None:
        world.begin(world.one)
        await asyncio.sleep(5 * WORD_S)
        again = world.begin(world.other)
        await asyncio.sleep(5 * WORD_S)
        await world.one.kill()
        world.tasks[0].cancel()
        await world.tasks[1]

        assert again.text == TEXT
        assert len(world.tier.asked) == 2
        assert ": continued by tier fast at character" in again.raw

    in_world(tmp_path, go)


def test_a_follower_outlives_the_state(tmp_path):
    """Law: where the state is away, who has been told words is told the rest of them, by an attempt of its own."""

    async def go(world: World) -> None:
        world.begin(world.one)
        await asyncio.sleep(5 * WORD_S)
        again = world.begin(world.other)
        await asyncio.sleep(5 * WORD_S)
        await world.other.kill()
        await world.tasks[1]

        assert again.text == TEXT

    in_world(tmp_path, go)


def test_what_was_not_streamed_runs_anew(tmp_path):
    """Law: of a whole answer nothing had left; the repeat is answered all the same."""

    async def go(world: World) -> None:
        world.begin(world.one, stream=False)
        await asyncio.sleep(12 * WORD_S)
        world.tasks[0].cancel()
        again = await world.other.answer(Told(), stream=False)
        assert (again.text, world.tier.asked[1].begun) == (TEXT, "")

    in_world(tmp_path, go)


def test_without_seams_it_runs_anew(tmp_path):
    """Law: `continuations_max: 0` holds for repeats, too."""

    async def go(world: World) -> None:
        world.begin(world.one)
        await asyncio.sleep(12 * WORD_S)
        world.tasks[0].cancel()
        await asyncio.sleep(1)
        again = await world.other.answer(Told(), limits={"continuations_max": 0})
        assert (again.text, world.tier.asked[1].begun) == (TEXT, "")

    in_world(tmp_path, go)


@each_dialect
@each_way
def test_a_failed_answer_is_not_kept(tmp_path, path, stream):
    """Law: the repeat of a request that ended in an error runs anew."""

    async def go(world: World) -> None:
        world.tier.fails = True
        first = await world.one.answer(Told(), path, stream=stream)
        await asyncio.sleep(1)
        world.tier.fails = False
        again = await world.other.answer(Told(), path, stream=stream)
        assert (first.status >= 500, again.text) == (True, TEXT)
        assert "idempotent-replayed" not in again.headers

    in_world(tmp_path, go)


@each_dialect
def test_another_body_is_a_422(tmp_path, path):
    """Law: a name that was another body's is refused in words that name the header, and nothing runs."""

    async def go(world: World) -> None:
        await world.one.answer(Told(), path)
        other = await world.other.answer(Told(), path, temperature=0.5)
        assert other.status == 422
        assert "Idempotency-Key" in other.raw
        assert len(world.tier.asked) == 1

    in_world(tmp_path, go)


@each_way
def test_the_second_try_of_an_sdk(tmp_path, stream):
    """Law: count 0 always runs anew; a later one takes over what a dead Router ran, and never what a client still
    reads; an answer that has left is let go."""

    async def go(world: World) -> None:
        def tries(count: int) -> dict[str, str]:
            return {"x-stainless-retry-count": str(count)}

        world.begin(world.one, stream=stream, headers=tries(0))
        await asyncio.sleep(12 * WORD_S)
        beside = await world.other.answer(Told(), stream=stream, headers=tries(1))
        assert (beside.text, world.tier.asked[1].begun) == (TEXT, "")  # the first one's client was still there
        await world.tasks[0]
        await asyncio.sleep(2)
        assert world.near.actor.stats()["kept_answers"] == 0

        world.begin(world.one, stream=stream, headers=tries(0))
        await asyncio.sleep(12 * WORD_S)
        await world.one.kill()
        world.tasks[1].cancel()
        again = await world.other.answer(Told(), stream=stream, headers=tries(1))
        assert again.text == TEXT
        assert bool(world.tier.asked[3].begun) is stream

    in_world(tmp_path, go)


def test_a_silent_state_costs_no_answer(tmp_path):
    """Law: where the state can't be asked, a named request runs as one without a name."""

    async def go(world: World) -> None:
        await world.one.kill()
        assert (await world.one.answer(Told())).text == TEXT

    in_world(tmp_path, go)


def test_a_request_without_a_name_tells_the_state_nothing(tmp_path):
    """Law: neither header, no record."""

    async def go(world: World) -> None:
        told = await world.one.answer(Told(), headers={})
        assert told.text == TEXT
        assert world.near.actor.stats()["kept_answers"] == 0

    in_world(tmp_path, go)


def test_the_end_goes_with_what_it_cost(tmp_path):
    """Law: no step brings the settlement of an answer without its end, so a Router that dies is paid and told, or
    neither."""

    async def go(world: World) -> None:
        steps: list[Any] = []
        call = world.one.near.call

        async def hear(method: str, *args: Any) -> Any:
            if method == "step":
                steps.append([type(one).__name__ for one in args[0].items])
            return await call(method, *args)

        world.one.near.call = hear  # type: ignore[method-assign]
        await world.one.answer(Told())
        await asyncio.sleep(2)
        assert [("KeptItem" in step) for step in steps if "SettlementItem" in step] == [True]

    in_world(tmp_path, go)
