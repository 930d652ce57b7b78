"""A request that is no chat, from start to end: it is passed on to a hosted tier's own route, and so is the answer.

    while True: match decide(situation): Call -> attempt | Accept -> deliver | Refuse -> done

The loop is that of `drive`, and so is everything around an attempt: who may be called (breakers, budgets, the cloud),
what it is charged, when it is asked again and which tier comes next. What is missing is what makes chat reliable:
nothing looks into the answer, so there are faults and no flaws. An answer that isn't streamed is held until it is
complete, so that another tier may still give it; the first piece of one that is streamed is its commit point.

What must never happen: pieces of two attempts in one answer, a grant that stays open, a stream that is left open when
the client goes, a request that reaches a tier that isn't hosted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from deployments.errors import ApiError
from deployments.ports import Ports
from deployments.request.drive import admit, bind_progress, build_situation, rule_out, settle, wait
from deployments.request.patience import convert_stall, fail_by_timeout, find_limit
from deployments.request.run_record import Run
from deployments.request.spending import Spending
from reliability.admission.admit import Grant
from reliability.answer.estimate import prompt_tokens_most
from reliability.escalation.decisions import Accept, Call, Refuse
from reliability.escalation.policies import decide
from reliability.faults import TRAITS, Ran
from reliability.types import Attempt, ChatRequest, Counted, Event, Failed, Fault, Finish, Passed, Started

__all__ = ["forward", "restrict_to_hosted"]

NS_PER_S = 1_000_000_000


def restrict_to_hosted(run: Run, kinds: Mapping[str, str]) -> Run:
    """Restrict a run to the hosted tiers of its chain.

    Raises:
        ApiError: `unsupported`: there is none.
    """
    chain = tuple(tier for tier in run.chain if kinds[tier] == "hosted")
    others = [f"{tier} ({kinds[tier]})" for tier in run.chain if tier not in chain]
    if not chain:
        raise ApiError("unsupported", _describe_missing(run.request.route, others, kinds), param="model")
    notes = (f"only hosted tiers have {run.request.route}: passed over {', '.join(others)}",) if others else ()
    # A budget leads no request to the cheap tier: it may be none of these.
    return replace(run, chain=chain, limits=replace(run.limits, cheap=None), notes=(*run.notes, *notes))


def _describe_missing(route: str, others: Collection[str], kinds: Mapping[str, str]) -> str:
    who = f"tier {next(iter(others))} does" if len(others) == 1 else f"tiers {', '.join(others)} do"
    hosted = ", ".join(tier for tier, kind in kinds.items() if kind == "hosted")
    instead = f"name one of these as `model`: {hosted}" if hosted else "none is configured"
    chat = " or ask POST /v1/chat/completions, which every tier answers" if route == "/completions" else ""
    return f"{who} not answer {route}, which only hosted tiers do: {instead},{chat}".rstrip(",")


async def forward(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Answer `run.request`: yield what may leave for the client, and leave the outcome in `run`.

    The events are `Passed`; the `Finish` stands in `run.finish`. Raises nothing for faults.
    """
    while True:
        match decide(build_situation(run, ports)):
            case Call() as call:
                await wait(call.wait_ns)
                run.tier = call.tier
                passing = _Passing(tier=call.tier, stream=bool(run.request.extra.get("stream")))
                async with aclosing(_call(run, passing, ports)) as batches:
                    async for batch in batches:
                        yield batch
            case Accept():
                # The answer of the attempt that was made last: there are no flaws to choose among.
                run.finish = passing.end if isinstance(passing.end, Finish) else None
                if passing.held:
                    yield list(passing.held)
                return
            case Refuse() as refusal:
                run.refusal = refusal
                return


@dataclass(slots=True, kw_only=True)
class _Passing:
    """One attempt. `held`: an answer that isn't streamed, until it is complete. `end` None: the reader left."""

    tier: str
    stream: bool
    started_ns: int = 0
    accepted: bool = False
    ttft_ns: int | None = None
    sent: bool = False
    held: list[Event] = field(default_factory=list)
    end: Finish | Failed | None = None

    @property
    def phase(self) -> str:
        """The timeout that runs. What isn't streamed is silent until it is complete."""
        if not self.accepted:
            return "connect_s"
        if not self.stream:
            return "total_s"
        return "first_token_s" if self.ttft_ns is None else "idle_s"


async def _call(run: Run, passing: _Passing, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Make one admitted call. The attempt is written down and the grant settled whatever happens, once."""
    size = run.prompt_bytes
    # The inputs of embeddings are read one by one: all of them together need fit no context.
    ruled_out = rule_out(run, passing.tier, 0 if run.request.route == "/embeddings" else size, ports)
    granted = ruled_out or await admit(run, passing.tier, size, ports)
    if isinstance(granted, Attempt):
        run.attempts.append(replace(granted, param="prompt" if granted.param else None))
        run.judgements.append(None)
        return
    request = _bound_request(run, granted, ports)
    passing.started_ns = ports.clock.now_ns()
    spending = Spending(
        prompt_bytes=size,
        output_cap=request.max_tokens,
        prompt_most=partial(prompt_tokens_most, (run.request.messages,)),
        progress=bind_progress(granted, ports),
        trusted=passing.tier not in ports.foreign,
    )
    try:
        async with aclosing(_read(run, passing, spending, request, ports)) as batches:
            async for batch in batches:
                yield batch
    finally:
        _write_down(run, passing, spending, granted, ports)


def _bound_request(run: Run, grant: Grant | None, ports: Ports) -> ChatRequest:
    """Bound the request by the time that is left and the tokens that were granted. What is only to be measured stays
    here."""
    request = run.request
    remaining_s = max(0.0, (run.deadline_ns - ports.clock.now_ns()) / NS_PER_S)
    cap = request.max_tokens if grant is None else min(request.max_tokens, grant.output_cap)
    return replace(request, timeout_s=remaining_s, max_tokens=cap, messages=())


async def _read(
    run: Run, passing: _Passing, spending: Spending, request: ChatRequest, ports: Ports
) -> AsyncGenerator[list[Event], None]:
    """Read the tier's stream to its last event or a timeout; yield what may leave at once."""
    timeouts = ports.timeouts[passing.tier]
    async with aclosing(ports.tiers[passing.tier].stream(request)) as stream:
        while passing.end is None:
            now_ns = ports.clock.now_ns()
            timeout_s, limit = find_limit(
                passing.phase, timeouts, now_ns - passing.started_ns, run.deadline_ns - now_ns
            )
            try:
                async with asyncio.timeout(timeout_s):
                    batch = await anext(stream)
            except TimeoutError:
                end = fail_by_timeout(limit, passing.tier, timeouts)
                batch = [convert_stall(end, passing.phase, ports.clock.now_ns() - now_ns, timeouts)]
            except StopAsyncIteration:
                batch = [Failed(fault=Fault.CRASHED, message=f"tier {passing.tier} broke off its answer")]
            out = _take(passing, spending, batch, ports.clock.now_ns())
            spending.report_progress()
            run.counted = spending.counted or run.counted
            if out:
                yield out


def _take(passing: _Passing, spending: Spending, batch: list[Event], now_ns: int) -> list[Event]:
    """Take one batch; return what may leave now."""
    out: list[Event] = []
    for event in batch:
        match event:
            case Started():
                passing.accepted = True
            case Counted(usage=usage):
                spending.counted = usage
            case Passed():
                spending.write(event)
                out.append(event)
            case Finish() | Failed():
                passing.end = event
            case _:
                raise AssertionError("an answer that is passed on has no other events")
    if out and passing.ttft_ns is None:
        passing.ttft_ns = now_ns - passing.started_ns
    if not passing.stream:
        passing.held += out
        return []
    passing.sent |= bool(out)
    return out


def _write_down(run: Run, passing: _Passing, spending: Spending, grant: Grant | None, ports: Ports) -> None:
    failed = passing.end if isinstance(passing.end, Failed) else None
    usage, reported = spending.count_usage(passing.end, accepted=passing.accepted)
    ran = TRAITS[failed.fault].ran if failed else Ran.RAN
    attempt = Attempt(
        tier=passing.tier,
        ran=passing.ttft_ns is not None or ran is Ran.RAN or (ran is Ran.IF_STARTED and passing.accepted),
        fault=failed.fault if failed else None,
        detail=failed.message if failed else "",
        status=failed.status if failed else None,
        param=failed.param if failed else None,
        retry_after_s=failed.retry_after_s if failed else None,
        usage=usage,
        started_ns=passing.started_ns,
        ttft_ns=passing.ttft_ns,
        elapsed_ns=ports.clock.now_ns() - passing.started_ns,
        text_out=passing.sent,
        cancelled=passing.end is None,
        granted=grant is not None or ports.admission is None,
        reported=reported,
    )
    run.attempts.append(attempt)
    run.judgements.append(None)
    if isinstance(passing.end, Finish):
        # What was booked is what the report says.
        passing.end = replace(passing.end, usage=usage)
    settle(attempt, grant, ports)
