"""What a call reads is what is reserved, weighed and charged for it: a re-ask's prompt is longer than the client's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from deployments.interfaces import Ports
from deployments.request.drive import drive
from deployments.request.run_record import Run
from deployments.telemetry import MonotonicClock
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.admission.admit import Grant, Rejection
from reliability.admission.request import AdmissionRequest
from reliability.answer.estimate import prompt_bytes, tokens_max, tokens_min
from reliability.types import ChatRequest, Event, Fault, Flaw, Usage, Verdict
from tests.sim.world import SimAdmission
from tests.unit.deployments.request.test_drive import ANSWERS, CHAIN, TOOLS, make_ports, make_run, names

LONG_CALL = {"tool_call": {"name": "g", "arguments": {"a": "word " * 700}}}


class Listening(SimAdmission):
    """Writes down what is asked and what is settled."""

    requests: list[AdmissionRequest]
    spent_by: list[Usage | None]

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        self.requests.append(request)
        return await super().admit(request)

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        self.spent_by.append(usage)
        super().settle(grant, verdict, usage, retry_after_s)


class Overheard(ScriptedTier):
    """Remembers what it was sent, and never says what it has counted."""

    sent: list[ChatRequest]

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        self.sent.append(request)
        async for batch in super().stream(request):
            yield [replace(event, usage=None) if hasattr(event, "usage") else event for event in batch]


def asked(
    scripts: dict[str, Any], *, size: int | None = None, **ports: Any
) -> tuple[Run, Listening, list[ChatRequest]]:
    """Drive one request; return what was asked of the admission, and what was sent to the tiers."""

    async def go() -> tuple[Run, Listening, list[ChatRequest]]:
        clock, sent = MonotonicClock(), []
        tiers = {name: Overheard(name=name, script=script) for name, script in scripts.items()}
        run = make_run(tuple(tiers), clock, retries=2)
        run.prompt_bytes = prompt_bytes(run.request.messages, TOOLS) if size is None else size
        made: Ports = replace(make_ports(tiers, clock), **ports)
        admission = Listening(made.admission.rng, clock, made.admission.config)
        admission.requests, admission.spent_by = [], []
        for tier in tiers.values():
            tier.sent = sent
        async for _ in drive(run, replace(made, admission=admission)):
            pass
        return run, admission, sent

    return asyncio.run(go())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names)
@example(("invented",))
@example(("invented", "written-badly", "good"))
def test_what_is_reserved_is_the_prompt_that_is_sent(chosen):
    """With the failed answer in it, and the words of the correction; and so is the estimate that stands where no tier
    says what it has read."""
    scripts = {tier: [{"answer": ANSWERS[name][0]}] for tier, name in zip(CHAIN, chosen, strict=False)}
    run, admission, sent = asked(scripts)
    read = [tokens_max(prompt_bytes(request.messages, request.tools)) for request in sent]

    assert [request.prompt_tokens for request in admission.requests] == read
    estimates = zip(run.attempts, read, strict=True)
    assert all(a.usage.prompt_tokens in (0, tokens) for a, tokens in estimates if a.usage and not a.usage.exact)


def test_the_size_that_is_known_is_not_counted_again():
    """A long history is walked once, when the request comes in: the first call, and a resample, read no more."""
    _, admission, sent = asked({"fast": [{"answer": ANSWERS["empty"][0]}]}, size=123_456)

    assert [request.prompt_tokens for request in admission.requests] == [tokens_max(123_456)] * 3
    assert len({request.messages for request in map(_hashable, sent)}) == 1


def _hashable(request: ChatRequest) -> ChatRequest:
    return replace(request, messages=tuple(str(message) for message in request.messages))


def test_a_correction_that_can_not_fit_is_not_sent():
    """The client's prompt fits the tier and the correction doesn't: the next tier is asked, and no work is wasted."""
    room = tokens_min(prompt_bytes(({"role": "user", "content": "hi"},), TOOLS)) + 50
    scripts = {"fast": [{"answer": [LONG_CALL]}], "standard": [{"answer": "good"}]}
    run, _, sent = asked(scripts, context_tokens={"fast": room})

    assert [(a.tier, a.flaw or a.fault) for a in run.attempts] == [
        ("fast", Flaw.TOOL_CALL_INVALID),
        ("fast", Fault.CONTEXT_LENGTH),
        ("standard", None),
    ]
    assert len(sent) == 2


@pytest.mark.parametrize("cap", [7, 5000])
def test_the_grant_still_bounds_the_answer(cap):
    """What may be written is settled after the prompt is known: the smaller of what was asked for and granted."""

    class Small(SimAdmission):
        async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
            granted = await super().admit(request)
            return replace(granted, output_cap=cap) if isinstance(granted, Grant) else granted

    async def go() -> list[ChatRequest]:
        clock = MonotonicClock()
        tier = Overheard(name="fast", script=[{"answer": ANSWERS["invented"][0]}])
        tier.sent = []
        ports = make_ports({"fast": tier}, clock)
        small = Small(ports.admission.rng, clock, ports.admission.config)
        async for _ in drive(make_run(("fast",), clock), replace(ports, admission=small)):
            pass
        return tier.sent

    sent = asyncio.run(go())

    assert [request.max_tokens for request in sent] == [min(cap, 2000)] * 2
    assert all(0 < request.timeout_s <= 30 for request in sent)
