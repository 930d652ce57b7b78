"""Requests that are driven without a server, in virtual time: the run, its tiers, and what came of it."""

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any

from deployments.config.app_config import RouterConfig, ServerConfig
from deployments.config.tier_config import Timeouts
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.policy import hold_of
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.admission.admit import AdmissionConfig
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.answer.judgement import expect
from reliability.config import ReliabilityConfig
from reliability.escalation.decisions import Limits
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import CallDelta, ChatRequest, Event, Hold, Reason, Usage, Verdict
from tests.sim.clock import VirtualClock
from tests.sim.clock import run as play
from tests.sim.world import SimAdmission
from tests.support.tier_asking import text_of as text_of

CHAIN = ("fast", "standard", "premium")
QUICK = Timeouts(connect_s=1, first_token_s=0.05, idle_s=0.05, total_s=5)
CALL = {"tool_call": {"name": "f", "arguments": {"a": 1}}}

# Answers by name: the steps, and whether they end well.
ANSWERS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "good": ([{"text": "good from {{tier}}"}], True),
    "call": ([{"text": "text of {{tier}} "}, CALL], True),
    "empty": ([{"text": "", "delay_s": 0}], False),
    "bad-call": ([{"text": "text of {{tier}} "}, {"tool_call": {"name": "f", "arguments": "{"}}], False),
    "invented": ([{"tool_call": {"name": "g", "arguments": {}}}], False),
    "written": ([{"raw": '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'}], True),
    "written-badly": ([{"raw": 'Sure. <tool_call>{"name": "f", "argu'}], False),
    "500": ([{"status": 500}], False),
    "400": ([{"status": 400}], False),
    "429": ([{"status": 429, "retry_after_s": 60}], False),
    "cut": ([{"cut": True}], False),
    "break": ([{"text": "half of {{tier}} "}, {"cut": True}], False),
    "break-call": ([{"text": "half of {{tier}} "}, CALL, {"cut": True}], False),
    "think-cut": ([{"reasoning": "hm"}, {"cut": True}], False),
    "hang": ([{"silence": True}], False),
    "stall": ([{"text": "half of {{tier}} "}, {"silence": True}], False),
    "none": ([{"unavailable": "no model"}], False),
    "chant": ([{"text": "It begins. " + "And it goes on like this. " * 500}], True),
    "blank": ([{"raw": " " * 600}], False),
    "lead-cut": ([{"raw": "\n\n"}, {"cut": True}], False),
    "lead-blank": ([{"raw": " \n"}], False),
    "lead-invented": ([{"raw": '\n<tool_call>{"name": "g", "arguments": {}}</tool_call>'}], False),
    "lead-call": ([{"raw": "\n"}, CALL], True),
    "half": ([{"raw": '<tool_call>{"name": "g\\ud83d", "arguments": {}}</tool_call>'}], False),
    "json-chant": ([{"raw": "{" + '"and": "so it goes on", ' * 600}], True),
    "mark": ([{"raw": "<|im_st"}, {"raw": "art|>"}], False),
    "mark-good": ([{"raw": "<|im_start|>assist"}, {"raw": "ant\nGood words"}], True),
    "mark-call": ([{"raw": "<|im_start|>"}, CALL], True),
    "call-and-chant": ([CALL, {"text": "And it goes on like this. " * 500}], True),
}

TOOLS = ({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}},)


def make_run(chain: tuple[str, ...], clock: MonotonicClock, *, hold_all: bool = False, retries: int = 1) -> Run:
    """A request with one tool, for the given chain."""
    messages = ({"role": "user", "content": "hi"},)
    return Run(
        request=ChatRequest(
            request_id="r", session_id="s", messages=messages, max_tokens=2000, timeout_s=30, tools=TOOLS
        ),
        expected=expect(messages, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig(), loops=LoopConfig()),
        chain=chain,
        limits=Limits(retries_max=retries, reasks_max=retries, attempts_max=16, escalate_on=frozenset(Reason)),
        deadline_ns=clock.now_ns() + 30 * 10**9,
        hold=Hold.ALL if hold_all else Hold.TOOL_CALLS,
    )


def show(
    messages: Sequence[Any], tools: Sequence[Any] = TOOLS, *, stream: bool = False, **fields: Any
) -> Callable[[Run], None]:
    """A change of a run: it shows these messages and tools, under all checks, and its request these `fields`."""

    def change(run: Run) -> None:
        box, choice = build_toolbox(tools), fields.get("tool_choice")
        run.request = replace(run.request, messages=tuple(messages), tools=tuple(tools), **fields)
        run.expected = expect(
            run.request.messages, box, id_seed="r", tool_choice=choice, checks=CheckConfig(), loops=LoopConfig()
        )
        if stream:
            config = RouterConfig(reliability=ReliabilityConfig(), server=ServerConfig())
            run.hold = hold_of(config, run.expected, stream=True)

    return change


def make_ports(tiers: dict[str, ScriptedTier], clock: MonotonicClock) -> Ports:
    # These walks are all faults: the retry budget of a healthy server would end them.
    config = AdmissionConfig(retries=RetryBudgetLimits(floor=1000))
    return Ports(
        tiers=tiers,
        timeouts=dict.fromkeys(tiers, QUICK),
        admission=SimAdmission(random.Random(0), clock, config),
        clock=clock,
        jitter=lambda: 0.0,
    )


def calls_of(events: list[Event]) -> list[tuple[str | None, str]]:
    return [(e.name, e.arguments) for e in events if isinstance(e, CallDelta)]


def say(text: str) -> list[dict[str, Any]]:
    """The steps of an answer that comes in small pieces."""
    return [{"raw": text[at : at + 3]} for at in range(0, len(text), 3)]


def scripted(scripts: dict[str, Any]) -> dict[str, ScriptedTier]:
    return {name: ScriptedTier(name=name, script=script) for name, script in scripts.items()}


def drive_once(
    tiers: dict[str, ScriptedTier],
    change: Callable[[Run], None] = lambda run: None,
    *,
    hold_all: bool = False,
    retries: int = 1,
    walk: Callable[[Run, Ports], AsyncGenerator[list[Event], None]] = drive,
    **ports: Any,
) -> tuple[Run, list[Event]]:
    """Drive one request over these tiers, which stop, and whose grants are settled. In virtual time: no busy machine
    makes a tier look silent. `change` the run before; `ports`: other ones than those of `make_ports`."""

    async def go() -> tuple[Run, list[Event]]:
        clock = VirtualClock()
        run, made = make_run(tuple(tiers), clock, hold_all=hold_all, retries=retries), make_ports(tiers, clock)
        change(run)
        events = [event async for batch in walk(run, replace(made, **ports)) for event in batch]
        assert all(tier.active == 0 for tier in tiers.values())
        assert made.admission.state.grants.count == 0
        return run, events

    return play(go())


def tell_in_turn(
    names: Sequence[str], answers: Sequence[list[dict[str, Any]]], *, obeys: bool = True, **rule: Any
) -> tuple[dict[str, ScriptedTier], list[ChatRequest]]:
    """Tiers that give these answers one after another, whoever is asked, the last one for ever; and what they are
    asked. `obeys`: they keep to the cap of an answer."""
    left, asked = list(answers), list[ChatRequest]()

    class Tier(ScriptedTier):
        async def stream(self, request: ChatRequest) -> Any:
            asked.append(request)
            answer = left.pop(0) if len(left) > 1 else left[0]
            teller = ScriptedTier(name=self._name, script=[rule | {"answer": answer}])
            async for events in teller.stream(request if obeys else replace(request, max_tokens=10**6)):
                yield events

    return {name: Tier(name=name, script=[]) for name in names}, asked


class Listening(SimAdmission):
    """An admission that writes down what it is asked, and what is settled."""

    def __init__(self, clock: MonotonicClock, config: AdmissionConfig) -> None:
        super().__init__(random.Random(0), clock, config)  # type: ignore[arg-type]
        self.requests: list[AdmissionRequest] = []
        self.verdicts: list[tuple[Verdict, Usage | None]] = []

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        self.requests.append(request)
        return await super().admit(request)

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        self.verdicts.append((verdict, usage))
        super().settle(grant, verdict, usage, retry_after_s)
