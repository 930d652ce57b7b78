"""A request that is passed on: who is asked, what is held, what is booked, and how it ends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from deployments.config.tier_config import Timeouts
from deployments.request import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.passthrough import forward, restrict_to_hosted
from deployments.request.run_record import Run
from reliability import types
from reliability.escalation.decisions import Call, Decision
from reliability.escalation.policies import decide
from reliability.types import ChatRequest, Event, Fault, Finish, Passed, RefuseCode, Started, Usage, Verdict
from tests.support import run_values
from tests.support.admissions import CONFIG
from tests.support.driving import Listening
from tests.support.refusing import refusal_of
from tests.support.run_values import run_of

HOSTED = {"fast": "hosted", "standard": "hosted"}
USAGE = Usage(prompt_tokens=11, completion_tokens=7)
END = Finish(reason=types.FinishReason.STOP, usage=USAGE)
NS = 1_000_000_000


class PlayedTier:
    """A tier that plays lists of events, one play a request; None waits for ever. It keeps what it was asked."""

    def __init__(self, *plays: list[list[Event] | None]) -> None:
        self.plays = list(plays)
        self.asked: list[ChatRequest] = []
        self.closed = 0

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        self.asked.append(request)
        try:
            for batch in self.plays.pop(0):
                if batch is None:
                    await asyncio.get_running_loop().create_future()
                else:
                    yield batch
        finally:
            self.closed += 1

    async def status(self) -> types.TierStatus:
        raise AssertionError("nobody asks")

    async def close(self) -> None:
        pass


def listen() -> Listening:
    return Listening(MonotonicClock(), CONFIG)


def request_of(route: str = "/completions", **extra: Any) -> ChatRequest:
    messages = ({"role": "user", "content": "Once upon"},)
    extra = {"prompt": "Once upon"} | extra
    return run_values.request_of("", messages=messages, tools=(), max_tokens=16, route=route, extra=extra)


def prepare(tiers: dict[str, Any], ledger: Any, timeouts: Any = None, **changes: Any) -> tuple[Run, Ports]:
    """A request, and what it runs with."""
    clock = MonotonicClock()
    changes = {"request": request_of(), "prompt_bytes": 25, "deadline_ns": clock.now_ns() + 30 * NS} | changes
    ports = Ports(
        tiers=tiers,
        timeouts=dict.fromkeys(tiers, timeouts or Timeouts()),
        clock=clock,
        jitter=lambda: 0.0,
        admission=ledger,
        cloud=frozenset({"standard"}),
        foreign=frozenset(tiers),
        context_tokens={"fast": 1000},
    )
    return run_of(**changes, chain=tuple(tiers)), ports


def ask(tiers: dict[str, Any], *, ledger: Any = None, **changes: Any) -> tuple[Run, list[list[Event]]]:
    """One request from start to end."""
    run, ports = prepare(tiers, ledger, **changes)

    async def main() -> list[list[Event]]:
        async with aclosing(forward(run, ports)) as batches:
            return [batch async for batch in batches]

    return run, asyncio.run(main())


def good(*pieces: bytes) -> list[list[Event] | None]:
    return [[Started()], *([Passed(piece, len(piece))] for piece in pieces), [END]]


def broken(fault: Fault, *pieces: bytes, **more: Any) -> list[list[Event] | None]:
    return [*good(*pieces)[:-1], [types.Failed(fault=fault, message="it broke", **more)]]


def data_of(batches: list[list[Event]]) -> list[bytes]:
    return [event.data for batch in batches for event in batch if isinstance(event, Passed)]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_passed_on_and_booked(stream):
    """The prompt goes to the tier once, in its own field. The pieces leave in their order, the grant is settled once
    with the upstream's own count, and the run is finished before an answer that isn't streamed leaves."""
    ledger, tier = listen(), PlayedTier(good(b"one", b"two"))
    run, batches = ask({"fast": tier}, ledger=ledger, request=request_of(stream=stream))

    assert (tier.asked[0].messages, tier.asked[0].extra["prompt"]) == ((), "Once upon")
    assert data_of(batches) == [b"one", b"two"]
    assert len(batches) == (2 if stream else 1)
    assert ledger.verdicts == [(Verdict.SUCCESS, USAGE)]
    assert run.finish.usage == USAGE
    assert (run.tier, run.refusal, tier.closed) == ("fast", None, 1)


def test_another_tier_stands_in_for_a_fault():
    """What a tier had sent of an answer that isn't streamed is dropped; the next tier's is given."""
    tiers = {"fast": PlayedTier(*[broken(Fault.CRASHED, b"half")] * 2), "standard": PlayedTier(good(b"whole"))}
    run, batches = ask(tiers)

    assert data_of(batches) == [b"whole"]
    assert [a.tier for a in run.attempts] == ["fast", "fast", "standard"]
    assert [a.fault for a in run.attempts] == [Fault.CRASHED, Fault.CRASHED, None]
    assert run.escalation is not None


def test_a_stream_that_has_begun_is_nobody_elses():
    """After the first piece a fault ends the answer."""
    tiers = {"fast": PlayedTier(broken(Fault.CRASHED, b"half")), "standard": PlayedTier(good(b"whole"))}
    run, batches = ask(tiers, request=request_of(stream=True))

    assert data_of(batches) == [b"half"]
    assert run.refusal.code is RefuseCode.BROKEN_STREAM
    assert tiers["standard"].asked == []


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("pieces", [(), (b"half",)])
@pytest.mark.parametrize("stream", [False, True])
def test_nothing_is_asked_of_it_that_it_does_not_do(monkeypatch, fault, pieces, stream):
    """Law: with whatever limits a chat would have, a request that is passed on is only ever called again: no attempt
    goes on with another's pieces, and none follows one that has left."""
    decided: list[Decision] = []
    monkeypatch.setattr(drive, "decide", lambda situation: decided.append(decide(situation)) or decided[-1])
    request = request_of(stream=stream)
    limits = replace(run_of(request).limits, continuations_max=8, cheap="fast", shorten=True, reasks_max=3)
    limits = restrict_to_hosted(run_of(request, limits=limits), HOSTED).limits
    tiers = {name: PlayedTier(*[broken(fault, *pieces)] * 9) for name in HOSTED}
    _, batches = ask(tiers, request=request, limits=limits)

    asked = [decision for decision in decided if isinstance(decision, Call)]
    assert asked == [Call(tier=call.tier, wait_ns=call.wait_ns) for call in asked]
    assert data_of(batches) == (list(pieces) if stream else [])
    assert len(asked) == 1 or not (stream and pieces)


def test_a_request_that_is_wrong_is_refused_at_once():
    """The upstream's own words and field reach the client, and no other tier is asked."""
    wrong = broken(Fault.BAD_REQUEST, status=400, param="suffix")
    tiers = {"fast": PlayedTier(wrong), "standard": PlayedTier(good(b"whole"))}
    run, _ = ask(tiers)

    assert (run.refusal.code, run.refusal.param) == (RefuseCode.BAD_REQUEST, "suffix")


def test_a_request_that_must_stay_never_leaves():
    """A tier in the cloud isn't called, and the refusal says why."""
    tier = PlayedTier(good(b"whole"))
    run, _ = ask({"standard": tier}, stays="the request is local-only")

    assert tier.asked == []
    assert run.refusal.code is RefuseCode.CLOUD_BARRED
    assert "local-only" in run.refusal.message


@pytest.mark.parametrize(("route", "asked"), [("/completions", 0), ("/embeddings", 1)])
def test_a_prompt_that_fits_no_context_is_not_sent(route, asked):
    """Inputs of embeddings are read one by one, so all of them together need fit nowhere."""
    tier = PlayedTier(good(b"whole"))
    run, _ = ask({"fast": tier}, request=request_of(route), prompt_bytes=10_000)

    assert len(tier.asked) == asked
    assert run.refusal is None or run.refusal.param == "prompt"


def test_a_budget_that_is_spent_rejects_the_call():
    """The reservation is that of a chat: prompt and output together."""
    ledger, tier = listen(), PlayedTier(good(b"whole"))
    run, _ = ask({"fast": tier}, ledger=ledger, prompt_bytes=5_000, request=request_of("/embeddings"))

    assert (ledger.requests[0].prompt_tokens, ledger.requests[0].output_tokens) == (2_500, 16)
    assert tier.asked == []
    assert run.refusal.code is RefuseCode.BUDGET


@pytest.mark.parametrize("stream", [False, True])
def test_silence_ends_at_its_timeout(stream):
    """A stream has a first token's time; what isn't streamed is silent until it is complete and has the total."""
    tier = PlayedTier([[Started()], None])
    timeouts = Timeouts(connect_s=0.05, first_token_s=0.05, idle_s=0.05, total_s=0.1)
    run, _ = ask({"fast": tier}, timeouts=timeouts, request=request_of(stream=stream))

    assert [a.fault for a in run.attempts] == [Fault.FIRST_TOKEN_TIMEOUT if stream else Fault.TOTAL_TIMEOUT]
    assert tier.closed == 1


async def test_a_client_that_leaves_ends_the_call():
    """The tier's stream is closed, and the grant is settled with what was counted so far, as nobody's fault."""
    ledger = listen()
    counted = Usage(prompt_tokens=11, completion_tokens=3)
    tier = PlayedTier([[Started()], [Passed(b"one", 3), types.Counted(counted)], None])
    run, ports = prepare({"fast": tier}, ledger, request=request_of(stream=True))
    async with aclosing(forward(run, ports)) as batches:
        await anext(batches)

    assert tier.closed == 1
    assert ledger.verdicts == [(Verdict.IGNORED, counted)]
    assert run.attempts[0].cancelled


@pytest.mark.parametrize(("count", "believed"), [(7 * 3, True), (10**15, False)])
def test_a_count_that_cannot_be_is_not_believed(count, believed):
    """As in a chat; with `best_of` the cap is that of all the answers that the upstream has made."""
    usage = Usage(prompt_tokens=11, completion_tokens=count)
    end = Finish(reason=types.FinishReason.STOP, usage=usage)
    tier = PlayedTier([[Started()], [Passed(b"one two three four", 18)], [end]])
    run, _ = ask({"fast": tier}, request=request_of(best_of=3))

    assert (run.attempts[0].usage.completion_tokens == count) is believed
    assert (run.attempts[0].reported is None) is believed


def test_the_chain_is_its_hosted_tiers():
    """Tiers of other kinds are passed over, and the report says so; a budget leads to none of them."""
    run = restrict_to_hosted(run_of(request_of()), {"fast": "mlx", "standard": "hosted"})

    assert run.chain == ("standard",)
    assert run.limits.cheap is None
    assert run.notes == ("only hosted tiers have /completions: passed over fast (mlx)",)
    assert restrict_to_hosted(run_of(request_of()), HOSTED).notes == ()


@pytest.mark.parametrize(
    ("route", "kinds", "words"),
    [
        ("/completions", {"fast": "mlx", "standard": "scripted"}, "tiers fast (mlx), standard (scripted) do not"),
        ("/completions", {"fast": "mlx", "standard": "mlx"}, "POST /v1/chat/completions"),
        ("/embeddings", {"fast": "mlx", "standard": "mlx", "premium": "hosted"}, "as `model`: premium"),
        ("/embeddings", {"fast": "mlx", "standard": "mlx"}, "none is configured"),
    ],
)
def test_a_chain_without_a_hosted_tier_refuses_by_name(route, kinds, words):
    """The error names the tiers, their kinds, and what to do."""
    refused = refusal_of(restrict_to_hosted, run_of(request_of(route)), kinds)
    assert (refused.code, refused.param) == ("unsupported", "model")
    assert words in refused.message
