"""A request that is no chat: it is passed on to a hosted tier's own route, and so is the answer.

The loop and all around an attempt is `drive`'s; nothing looks into the answer, so there are faults and no flaws. The
first piece of a streamed answer is its commit point. Invariants: no answer has pieces of two attempts; no grant stays
open, and no stream when the client goes; no request reaches a tier that isn't hosted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from deployments.errors import ApiError
from deployments.request.accounting import Accounting
from deployments.request.attempt import record_end
from deployments.request.drive import admit, bound_request, open_accounting, rule_out, settle, walk
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from deployments.request.timeouts import next_batch
from reliability.attempt import Attempt
from reliability.escalation.decisions import Call
from reliability.types import ChatRequest, Counted, Event, Failed, Finish, Passed, Started


def restrict_to_hosted(run: Run, kinds: Mapping[str, str]) -> Run:
    """Restrict a run to the hosted tiers of its chain. Raises `ApiError`: `unsupported`: there is none."""
    chain = tuple(tier for tier in run.chain if kinds[tier] == "hosted")
    others = [f"{tier} ({kinds[tier]})" for tier in run.chain if tier not in chain]
    if not chain:
        raise ApiError("unsupported", _describe_missing(run.request.route, others, kinds), param="model")
    notes = (f"only hosted tiers have {run.request.route}: passed over {', '.join(others)}",) if others else ()
    # A budget leads no request to the cheap tier: it may be none of these. No tier goes on with another's pieces.
    limits = replace(run.limits, cheap=None, continuations_max=0)
    return replace(run, chain=chain, limits=limits, notes=(*run.notes, *notes))


def _describe_missing(route: str, others: Collection[str], kinds: Mapping[str, str]) -> str:
    who = f"tier {next(iter(others))} does" if len(others) == 1 else f"tiers {', '.join(others)} do"
    hosted = ", ".join(tier for tier, kind in kinds.items() if kind == "hosted")
    instead = f"name one of these as `model`: {hosted}" if hosted else "none is configured"
    chat = " or ask POST /v1/chat/completions, which every tier answers" if route == "/completions" else ""
    return f"{who} not answer {route}, which only hosted tiers do: {instead},{chat}".rstrip(",")


def forward(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Answer `run.request`: yield `Passed` events; the outcome stands in `run`. Raises nothing for faults."""
    made: list[_Passing] = []

    async def accept(run: Run, number: int, ports: Ports) -> list[Event]:
        # The answer of the attempt that was made last: there are no flaws to choose among.
        run.finish = made[-1].end if isinstance(made[-1].end, Finish) else None
        return made[-1].held

    return walk(run, ports, partial(_call, made), accept)


@dataclass(slots=True, kw_only=True)
class _Passing:
    """One attempt. `held`: an answer that isn't streamed, until it is complete. `end` None: the reader left."""

    tier: str
    stream: bool
    started_ns: int = 0
    ttft_ns: int | None = None
    sent: bool = False
    held: list[Event] = field(default_factory=list)
    end: Finish | Failed | None = None

    def phase(self, *, accepted: bool) -> str:
        """Return the timeout that runs. What isn't streamed is silent until it is complete."""
        if not accepted:
            return "connect_s"
        if not self.stream:
            return "total_s"
        return "first_token_s" if self.ttft_ns is None else "idle_s"

    def take(self, spending: Accounting, batch: list[Event], now_ns: int) -> list[Event]:
        out: list[Event] = []
        for event in batch:
            match event:
                case Started():
                    spending.accepted = True
                case Counted(usage=usage):
                    spending.counted = usage
                case Passed():
                    spending.write(event)
                    out.append(event)
                case Finish() | Failed():
                    self.end = event
                case _:
                    raise AssertionError("an answer that is passed on has no other events")
        if out and self.ttft_ns is None:
            self.ttft_ns = now_ns - self.started_ns
        if not self.stream:
            self.held += out
            return []
        self.sent |= bool(out)
        return out


async def _call(made: list[_Passing], run: Run, call: Call, ports: Ports) -> AsyncGenerator[list[Event], None]:
    passing = _Passing(tier=call.tier, stream=bool(run.request.extra.get("stream")))
    made.append(passing)
    size = run.prompt_bytes
    # The inputs of embeddings are read one by one: all of them together need fit no context.
    ruled_out = rule_out(run, passing.tier, 0 if run.request.route == "/embeddings" else size, ports)
    granted = ruled_out or await admit(run, passing.tier, size, ports)
    if isinstance(granted, Attempt):
        run.attempts.append(replace(granted, param="prompt" if granted.param else None))
        run.judgements.append(None)
        return
    request = bound_request(run, run.request, granted, ports)
    passing.started_ns = ports.clock.now_ns()
    spending = open_accounting(passing.tier, request, size, granted, ports)
    # What is only to be measured stays here.
    stream = _read(run, passing, spending, replace(request, messages=()), ports)
    try:
        async with aclosing(stream) as batches:
            async for batch in batches:
                yield batch
    finally:
        attempt = record_end(
            passing.tier,
            passing.end,
            spending,
            started_ns=passing.started_ns,
            ttft_ns=passing.ttft_ns,
            elapsed_ns=ports.clock.now_ns() - passing.started_ns,
            text_out=passing.sent,
            granted=granted is not None or ports.admission is None,
        )
        run.attempts.append(attempt)
        run.judgements.append(None)
        if isinstance(passing.end, Finish):
            # What was booked is what the report says.
            passing.end = replace(passing.end, usage=attempt.usage)
        settle(attempt, granted, ports)


async def _read(
    run: Run, passing: _Passing, spending: Accounting, request: ChatRequest, ports: Ports
) -> AsyncGenerator[list[Event], None]:
    tier, started_ns = passing.tier, passing.started_ns
    async with aclosing(ports.tiers[tier].stream(request)) as stream:
        while passing.end is None:
            phase = passing.phase(accepted=spending.accepted)
            batch = await next_batch(stream, tier, phase, ports, started_ns, run.deadline_ns)
            out = passing.take(spending, batch, ports.clock.now_ns())
            spending.report_progress()
            run.counted = spending.counted or run.counted
            if out:
                yield out
