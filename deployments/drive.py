"""One request from start to end: the one loop of the program.

    while True: match decide(situation): Call -> attempt | Accept -> done | Refuse -> done

`drive` asks the core what to do, does it, and writes down what came of it. It imports no Ray, no HTTP and no clock, so
the simulator runs this very code. The `Run` that it is given is the record of the request: whoever reads the stream
may look at it at any moment (for the headers, say), and only `drive` writes to it.

Within one attempt text passes at once, which is the text commit point, and the parts of tool calls are held until the
attempt has ended well, which is the call commit point. Before both, an attempt that breaks leaves no trace and another
tier answers. Reasoning is no part of the answer and commits nothing. For a client that doesn't stream (`hold_all`)
everything is held until the attempt has ended well, so every break can be mended.

What must never happen: events of two attempts mixed in one answer, a part of a call that isn't whole, a stream that is
left open when the client goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import cast

from deployments.config import Timeouts
from deployments.ports import Clock, Tier
from reliability.escalation import Accept, Call, Limits, Refuse, Situation, decide, reason_of
from reliability.types import (
    Attempt,
    CallDelta,
    ChatRequest,
    Event,
    Failed,
    Fault,
    Finish,
    Reason,
    Started,
    Text,
)

__all__ = ["Ports", "Run", "drive"]

NS_PER_S = 1_000_000_000
# Said by a tier before it has done any work.
NOTHING_RAN = frozenset({Fault.UNAVAILABLE, Fault.LOADING, Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world, as `drive` needs it. `jitter` returns a number in [0, 1)."""

    tiers: Mapping[str, Tier]
    timeouts: Mapping[str, Timeouts]
    clock: Clock
    jitter: Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Run:
    """The record of one request. `chain` begins with the tier that it starts at; `deadline_ns` is a moment of `clock`.

    `tier` is the tier that is answering, or that was asked last. At the end either `finish` or `refusal` is set; both
    are None where the client left.
    """

    request: ChatRequest
    chain: tuple[str, ...]
    limits: Limits
    deadline_ns: int
    hold_all: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    tier: str | None = None
    finish: Finish | None = None
    refusal: Refuse | None = None

    @property
    def escalation(self) -> tuple[str, Reason] | None:
        """The tier that the request started at and why it left it, or None where it is still there."""
        started_at = self.chain[0]
        if self.tier in (None, started_at):
            return None
        last = next(a for a in reversed(self.attempts) if a.tier == started_at)
        return started_at, reason_of(last)

    @property
    def retries(self) -> int:
        """Calls to tiers beyond the first that really ran."""
        return max(0, sum(1 for a in self.attempts if a.ran) - 1)


async def drive(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Answer `run.request`: yield what may leave for the client, and leave the outcome in `run`.

    The events are `Text`, `Reasoning` and `CallDelta`; the `Finish` stands in `run.finish`. Raises nothing for faults.
    """
    while True:
        match decide(_situation(run, ports)):
            case Call() as call:
                await _wait(call.wait_ns)
                run.tier = call.tier
                async with aclosing(_attempt(run, ports)) as events:
                    async for batch in events:
                        yield batch
            case Accept():
                return
            case Refuse() as refusal:
                run.refusal = refusal
                return


def _situation(run: Run, ports: Ports) -> Situation:
    return Situation(
        chain=run.chain,
        attempts=tuple(run.attempts),
        remaining_ns=run.deadline_ns - ports.clock.now_ns(),
        limits=run.limits,
        jitter=ports.jitter(),
    )


async def _wait(wait_ns: int) -> None:
    if wait_ns > 0:
        await asyncio.sleep(wait_ns / NS_PER_S)


@dataclass(slots=True)
class _Recording:
    """What is known of the attempt that runs now. What is in `held` leaves when the attempt has ended well."""

    tier: str
    started_ns: int
    hold_all: bool
    held: list[Event] = field(default_factory=list)
    accepted: bool = False
    ttft_ns: int | None = None
    text_out: bool = False
    end: Finish | Failed | None = None

    def take(self, batch: list[Event], now_ns: int) -> list[Event]:
        """Read one batch; return what may leave now."""
        out: list[Event] = []
        for event in batch:
            if isinstance(event, Started):
                self.accepted = True
                continue
            if isinstance(event, (Finish, Failed)):
                self.end = event
                break
            if self.ttft_ns is None:
                self.ttft_ns = now_ns - self.started_ns
            hold = self.hold_all or isinstance(event, CallDelta)
            (self.held if hold else out).append(event)
            self.text_out = self.text_out or (not hold and isinstance(event, Text))
        return out

    def attempt(self, now_ns: int, *, calls_out: bool) -> Attempt:
        """The attempt's record. Without an end it is the client that left."""
        failed = self.end if isinstance(self.end, Failed) else None
        ran = self.accepted or self.ttft_ns is not None or failed is None or failed.fault not in NOTHING_RAN
        return Attempt(
            tier=self.tier,
            ran=ran and not (failed is not None and failed.fault is Fault.CONNECT_TIMEOUT),
            fault=failed.fault if failed else None,
            detail=failed.message if failed else "",
            status=failed.status if failed else None,
            param=failed.param if failed else None,
            retry_after_s=failed.retry_after_s if failed else None,
            usage=self.end.usage if self.end else None,
            ttft_ns=self.ttft_ns,
            elapsed_ns=now_ns - self.started_ns,
            text_out=self.text_out,
            calls_out=calls_out,
            cancelled=self.end is None,
        )


async def _attempt(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """One call to `run.tier`. The attempt is written down whatever happens, once."""
    tier = cast(str, run.tier)
    recording = _Recording(tier, ports.clock.now_ns(), run.hold_all)
    calls_out = False
    try:
        async with aclosing(_events(run, ports, recording)) as events:
            async for out in events:
                yield out
        if isinstance(recording.end, Finish):
            run.finish = recording.end
            calls_out = any(isinstance(event, CallDelta) for event in recording.held)
            if recording.held:
                yield recording.held
    finally:
        run.attempts.append(recording.attempt(ports.clock.now_ns(), calls_out=calls_out))


async def _events(run: Run, ports: Ports, recording: _Recording) -> AsyncGenerator[list[Event], None]:
    """The tier's events under the timeouts, until its last one. A stream that just stops is a crash."""
    remaining_s = (run.deadline_ns - ports.clock.now_ns()) / NS_PER_S
    request = replace(run.request, timeout_s=max(0.0, remaining_s))
    async with aclosing(ports.tiers[recording.tier].stream(request)) as stream:
        while recording.end is None:
            limit = _limit(run, ports, recording)
            try:
                async with asyncio.timeout(limit.timeout_s):
                    batch = await anext(stream)
            except TimeoutError:
                recording.end = Failed(fault=limit.fault, message=limit.words)
            except StopAsyncIteration:
                recording.end = Failed(fault=Fault.CRASHED, message=f"tier {recording.tier} broke off its answer")
            else:
                out = recording.take(batch, ports.clock.now_ns())
                if out:
                    yield out


@dataclass(frozen=True, slots=True)
class _Limit:
    """The timeout that strikes first, and what it means."""

    timeout_s: float
    fault: Fault
    words: str


def _limit(run: Run, ports: Ports, recording: _Recording) -> _Limit:
    tier = f"tier {recording.tier}"
    timeouts = ports.timeouts[recording.tier]
    now_ns = ports.clock.now_ns()
    left_s = (run.deadline_ns - now_ns) / NS_PER_S
    total_s = timeouts.total_s - (now_ns - recording.started_ns) / NS_PER_S
    if recording.ttft_ns is not None:
        words = f"{tier} was silent for {timeouts.idle_s:g} s (idle_s)"
        phase = _Limit(timeouts.idle_s, Fault.IDLE_TIMEOUT, words)
    elif recording.accepted:
        words = f"{tier} gave no token within {timeouts.first_token_s:g} s (first_token_s)"
        phase = _Limit(timeouts.first_token_s, Fault.FIRST_TOKEN_TIMEOUT, words)
    else:
        words = f"{tier} has no replica that took the request within {timeouts.connect_s:g} s (connect_s)"
        phase = _Limit(timeouts.connect_s, Fault.CONNECT_TIMEOUT, words)
    total = _Limit(total_s, Fault.TOTAL_TIMEOUT, f"{tier} was not done within {timeouts.total_s:g} s (total_s)")
    deadline = _Limit(left_s, Fault.TOTAL_TIMEOUT, "the request's deadline passed")
    return min(phase, total, deadline, key=lambda limit: limit.timeout_s)
