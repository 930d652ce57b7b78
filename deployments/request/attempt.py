"""One call to one tier: read its stream under the timeouts, let pass what may pass, and judge what came.

`read` moves an `AttemptState` on; its `end` says how the stream ended (None: the reader left). The stream is always
closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from deployments.request.accounting import Accounting, compute_bytes_max, count_chars, cut_event
from deployments.request.delivery import AnswerScan, Delivery
from deployments.request.interfaces import Ports
from deployments.request.timeouts import NS_PER_S, next_batch
from deployments.work.worker_pool import Busy, make_judgement
from reliability.answer import gate as gates
from reliability.answer.gate import Gate, Stopped
from reliability.answer.judgement import Expected, Judged, judge
from reliability.answer.thoughts import pass_on
from reliability.attempt import UNMEASURED, Attempt
from reliability.confidence import Gauge
from reliability.faults import TRAITS, Ran
from reliability.loops import Kind, describe_loop, find_repetition
from reliability.prefix import LostPrefix
from reliability.tools.turns import RESULT_ALONE
from reliability.types import (
    CallDelta,
    ChatRequest,
    Counted,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Flaw,
    Hold,
    Logprobs,
    Prefilled,
    Reasoning,
    Started,
    Text,
)

# Looking at what a model wrote takes so many times as long as reading what a client sent; even more, in pieces.
_WEIGHT, _LOOK_WEIGHT = 4, 16
_HEAD_CHARS = 64
# Before a replica has taken the request: nothing is known of its queue.
NOT_TAKEN = Prefilled(tokens=0, of_tokens=0, left_s=0.0, waits_behind=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What one attempt is to do. `text_committed`: an earlier attempt's text stands before the client, so this one's is
    dropped. `history_bytes`: of what the answer is held against. `begun`: the text before the client that it continues;
    `seam`: how many characters stand there; `answer_cap`: the tokens of the whole answer, with `begun`. `logprobs`: the
    client has asked for them. `gauge` measures its calls. `last`: no tier stands behind this one in the chain."""

    tier: str
    number: int
    expected: Expected
    hold: Hold
    text_committed: bool
    started_ns: int
    history_bytes: int = 0
    begun: str = ""
    seam: int | None = None
    answer_cap: int = 0
    logprobs: bool = False
    gauge: Gauge | None = None
    last: bool = False


class AttemptState:
    """The state of one attempt. `bytes_max`: what it may write at most before it is cut. `lost`: as of `Started`."""

    def __init__(self, plan: AttemptPlan, spending: Accounting) -> None:
        self.plan, self.spending, begun = plan, spending, plan.begun
        self.bytes_max = compute_bytes_max(spending.output_cap)
        self.scan = AnswerScan(plan.expected)
        hold = Hold.ALL if plan.text_committed else plan.hold
        self.delivery = Delivery(plan.expected, hold, begun, logprobs=plan.logprobs)
        self.head, self.cut_in_call = "", False  # of its text; whether it broke off in a call
        self.ttft_ns: int | None = None
        self.end: Finish | Failed | None = None
        self.judged: Judged | None = None
        self.lost: LostPrefix | None = None
        self.prefill: Prefilled | None = NOT_TAKEN  # as of the tier's last report
        self.confidence = UNMEASURED
        if begun:  # it is read first
            self.scan.continue_text(begun)
            left = compute_bytes_max(plan.answer_cap or spending.output_cap) - len(begun.encode("utf-8", "replace"))
            self.bytes_max = min(self.bytes_max, max(0, left))

    @property
    def prefilling(self) -> Prefilled | None:
        """How far the tier has read the prompt, or what that waits for, where it takes long, until the first token."""
        return self.prefill if self.ttft_ns is None and self.end is None else None

    def note_prefill(self, prefill: Prefilled) -> bool:
        """Note how far the tier has read the prompt. Return whether the wait begins anew: no other tier could answer
        sooner."""
        last, self.prefill = self.prefill, prefill
        read = prefill.waits_behind is None and (last is None or prefill.tokens > last.tokens)
        return read and self.plan.last

    @property
    def phase(self) -> str:
        """The timeout that runs: until the tier has taken the request, until its first token, between two."""
        if self.ttft_ns is not None:
            return "idle_s"
        return "first_token_s" if self.spending.accepted else "connect_s"

    def report_progress(self) -> None:
        """Report what the attempt has cost so far, unless it is over. On the event loop only."""
        if self.end is None and self.scan.loop is None:
            self.spending.report_progress()

    def look(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch; return what may leave now. The attempt also ends where it loops or is over its cap."""
        out: list[Event] = []
        logprobs = self.delivery.logprobs
        for at, event in enumerate(batch):
            match event:
                case Started(lost=lost):
                    self.spending.accepted, self.lost, self.prefill = True, lost, None
                case Counted(usage=usage):
                    self.spending.counted = usage
                case Logprobs(tokens=tokens):
                    if logprobs is not None:
                        logprobs.add(tokens)
                case Finish() | Failed():
                    self.end = event
                case Prefilled():
                    self.prefill = event
                case _:
                    out += self._take_pieces(event, now_ns)
            if self.end is not None or self.scan.loop is not None:
                self.spending.count_unread(batch[at + 1 :])
                break
        return out if logprobs is None else out + logprobs.leave_with(out)

    def size_with(self, batch: Sequence[Event]) -> int:
        """Estimate the characters that are looked at when this batch is taken: its own, and what the gate holds."""
        return _LOOK_WEIGHT * (self.delivery.gate.open_chars + sum(map(count_chars, batch)))

    @property
    def size(self) -> int:
        """The bytes that are looked at when the answer is judged, with the history that it may repeat."""
        return _WEIGHT * self.spending.written_bytes + self.plan.history_bytes

    def _take_pieces(self, event: Event, now_ns: int) -> Sequence[Event]:
        event = cut_event(event, self.bytes_max - self.spending.written_bytes)
        thoughts = self.delivery.thoughts
        if not isinstance(event, (Text, Reasoning)) or self.scan.takes_whole(event, thoughts):  # nearly always
            return self._take_piece(event, now_ns)
        out: list[Event] = []
        pieces = self.scan.split(event, thoughts)
        while self.end is None and self.scan.loop is None and (piece := next(pieces, None)) is not None:
            out += self._take_piece(piece, now_ns)
        self.spending.count_unread(list(pieces))
        return out

    def _take_piece(self, event: Event, now_ns: int) -> Sequence[Event]:
        out = self._take_content(event, now_ns)
        if self.spending.written_bytes > self.bytes_max:
            self.end = Finish(reason=FinishReason.LENGTH)
        return out

    def _take_content(self, event: Event, now_ns: int) -> tuple[Event, ...]:
        delivery = self.delivery
        if self.ttft_ns is None:
            self.ttft_ns = now_ns - self.plan.started_ns
        self.spending.write(event)
        if len(self.head) < _HEAD_CHARS and isinstance(event, Text):
            self.head += event.text[:_HEAD_CHARS]
            if self.plan.expected.toolbox.tools and not self.plan.begun and RESULT_ALONE.match(self.head):
                self.end = Finish(reason=FinishReason.STOP)  # behind a result that it gives itself all is made up
        if isinstance(event, CallDelta):
            self.scan.step(event)
            if self.scan.stopped_for_calls:
                return ()  # the beginning of one more call: those before it are complete
        if delivery.thoughts.passes(event):  # nearly always
            gate, out = gates.step(delivery.gate, event)
            if not isinstance(gate, Stopped):
                if delivery.logprobs is not None:
                    delivery.logprobs.leave_out(event, (event,))
                return self._take_part(event, gate, out)
        released: tuple[Event, ...] = ()
        passed = pass_on(delivery.thoughts, delivery.gate, event)
        for part, gate, out in passed:
            released += self._take_part(part, gate, out)
            if isinstance(gate, Stopped):
                delivery.begin_anew(gate)
                self.scan.restart_text()
        if delivery.logprobs is not None:
            delivery.logprobs.leave_out(event, [part for part, _, _ in passed])
        return released

    def _take_part(self, part: Event, gate: Gate, out: tuple[Event, ...]) -> tuple[Event, ...]:
        delivery = self.delivery
        delivery.gate = gate
        if not isinstance(part, CallDelta):
            self.scan.step(part)
        if self.scan.loop is not None and not delivery.sent and not delivery.delivered:
            delivery.kept += out
            return ()
        return delivery.release(out)

    def settle(self) -> Callable[[], Judged] | None:
        """Settle the gate, when the stream is over; return the question whether the answer is good, if there is one."""
        if self.scan.loop is not None and self.end is None:
            self.end = Finish(reason=FinishReason.STOP if self.scan.stopped_for_calls else FinishReason.LENGTH)
        if not isinstance(self.end, Finish):
            self.cut_in_call = gates.holds_call(self.delivery.gate)
            written, cap = self.spending.count_usage(self.end).completion_tokens, self.spending.output_cap
            if not isinstance(self.end, Failed) or self.cut_in_call or not self.delivery.text_out or written != cap:
                return None
            # It stands as long as it may be: nobody could go on. A longer one says that its tier obeys no cap.
            notes = (f"{self.end.message}, where no tokens were left",)
            self.end = Finish(reason=FinishReason.LENGTH, usage=self.end.usage, notes=notes)
        self.end = self.scan.conclude(self.end)
        usage = self.spending.count_usage(self.end)
        if usage is not self.end.usage:
            self.end = replace(self.end, usage=usage)
        held = self.delivery.settle()
        return partial(
            judge,
            self.plan.expected,
            held,
            self.end,
            sent="".join(self.delivery.sent),
            text_committed=self.plan.text_committed,
            attempt=self.plan.number,
            told=self.delivery.delivered,
            stopped=None if self.scan.stopped_in_arguments else self.scan.loop,
            reasoned=self.scan.reasoned,
        )

    def take_judgement(self, judged: Judged) -> list[Event]:
        """Take the answer to that question; return what may still leave. Nothing leaves of an attempt that failed, nor
        where no text has left before: then all of it is still to be judged."""
        last, logprobs = self.delivery.last, self.delivery.logprobs
        self.judged = judged = self.delivery.drop_delivered(judged)
        if isinstance(self.end, Finish) and self.end.damaged and (judged.calls or judged.violations):
            words = f"tier {self.plan.tier} sent an answer of which a piece was lost: its tool calls can't be trusted"
            failed = Failed(fault=Fault.PROTOCOL, message=words, usage=self.end.usage)
            self.end, self.judged, self.cut_in_call = failed, None, True
            return []
        if logprobs is None:
            return list(last)
        left = logprobs.leave_with(last)
        if not self.plan.text_committed:
            # Those of the text that is delivered at the end; those of calls aren't delivered.
            called = judged.calls or self.plan.expected.find_loads(judged) is not None
            rest = logprobs.leave_with(judged.events) if called else logprobs.rest()
            self.judged = replace(judged, events=(*judged.events, *rest))
        return [*last, *left]

    def measure_confidence(self) -> None:
        """Measure how likely the answer's calls are right. Unlikely ones that were made right before are a loop."""
        gauge, judged, expected = self.plan.gauge, self.judged, self.plan.expected
        if gauge is None or judged is None or not isinstance(self.end, Finish):
            return
        self.confidence = gauge.measure(judged, expected.toolbox, self.end.unsure)
        if expected.loops is None or judged.turn is None or judged.flaw or not gauge.is_unsure(self.confidence):
            return
        if loop := find_repetition(expected.turns, expected.loops, judged.turn):
            self.judged = replace(judged, flaw=Flaw.LOOP, detail=describe_loop(loop), loop=loop)

    def leave_unjudged(self, fault: Fault, words: str) -> None:
        """End the attempt without a judgement: nothing more may leave."""
        usage = self.end.usage if isinstance(self.end, Finish) else None
        message = f"the answer of tier {self.plan.tier} could not be checked: {words}"
        self.end = Failed(fault=fault, message=message, usage=usage)


async def read(
    state: AttemptState, request: ChatRequest, ports: Ports, deadline_ns: int
) -> AsyncGenerator[list[Event], None]:
    """Move `state` on until the tier's last event, a timeout or a loop; yield what may leave at once."""
    tier, started_ns, clock, large = state.plan.tier, state.plan.started_ns, ports.clock, ports.large
    async with aclosing(ports.tiers[tier].stream(request)) as stream:
        while state.end is None and state.scan.loop is None:
            batch = await next_batch(stream, tier, state.phase, ports, started_ns, deadline_ns, state.note_prefill)
            out = await large(state.size_with(batch), state.look, batch, clock.now_ns())
            state.report_progress()
            if out:
                yield out
    question = await large(state.size, state.settle)
    if question is None:
        return
    try:
        left_s = (deadline_ns - clock.now_ns()) / NS_PER_S
        judged = await make_judgement(question, partial(large, state.size), ports.elsewhere, left_s, request.key)
    except Busy as error:
        state.leave_unjudged(Fault.UNJUDGED, str(error))
        return
    except TimeoutError:
        state.leave_unjudged(Fault.DEADLINE, "the request's deadline passed")
        return
    out = state.take_judgement(judged)
    invalid, told = judged.flaw is Flaw.TOOL_CALL_INVALID, getattr(state.end, "unsure", None) is not None
    if state.plan.gauge is not None and (invalid or (judged.calls and told)):
        await large(state.size, state.measure_confidence)
    if out:
        yield out


def record_attempt(state: AttemptState, now_ns: int, *, granted: bool = True) -> Attempt:
    """Write the record of an attempt; without an end the client left. `granted`: an admission, if any, answered."""
    flaw, detail = _find_flaw(state)
    judged = state.judged
    return record_end(
        state.plan.tier,
        state.end,
        state.spending,
        flaw=flaw,
        detail=detail,
        started_ns=state.plan.started_ns,
        ttft_ns=state.ttft_ns,
        elapsed_ns=now_ns - state.plan.started_ns,
        text_out=state.delivery.text_out,
        calls_held=state.cut_in_call or bool(judged and judged.calls),
        granted=granted,
        native_calls=judged.native_calls if judged else 0,
        lost=state.lost,
        seam=state.plan.seam,
        confidence=state.confidence,
        thinking=state.scan.describe_thought(state.end, judged),
        loads=None if judged is None or flaw is not None else state.plan.expected.find_loads(judged),
        leeway=judged.leeway if judged is not None and flaw is judged.flaw else None,
    )


def record_end(
    tier: str, end: Finish | Failed | None, spending: Accounting, *, ttft_ns: int | None, detail: str = "", **more: Any
) -> Attempt:
    """Write the record of an attempt that ended so: whether its tier ran, what it cost, and why it failed."""
    failed = end if isinstance(end, Failed) else None
    usage = spending.count_usage(end)
    # It wrote something, or cost something, or its fault says that it did some work.
    ran = TRAITS[failed.fault].ran if failed else Ran.RAN
    has_run = ran is Ran.RAN or (ran is Ran.IF_STARTED and spending.accepted)
    has_run = has_run or ttft_ns is not None or usage.total_tokens > 0
    return Attempt(
        tier=tier,
        ran=has_run,
        fault=failed.fault if failed else None,
        detail=failed.message if failed else detail,
        status=failed.status if failed else None,
        param=failed.param if failed else None,
        retry_after_s=failed.retry_after_s if failed else None,
        usage=usage,
        ttft_ns=ttft_ns,
        cancelled=end is None,
        reported=spending.reported,
        **more,
    )


def _find_flaw(state: AttemptState) -> tuple[Flaw | None, str]:
    judged, loop, who = state.judged, state.scan.loop, f"tier {state.plan.tier}"
    if judged is not None and state.plan.expected.find_loads(judged) is not None:
        return None, f"{who} asked for the definitions of tools"
    # Stopped inside of a call that it wrote as text: then it is no text that can be cut.
    in_text = loop is not None and loop.kind in (Kind.CYCLE, Kind.WHITESPACE)
    has_broken_call = in_text and judged is not None and judged.flaw is Flaw.TRUNCATED
    if state.scan.stopped_in_arguments or has_broken_call:
        return Flaw.TRUNCATED, f"{who} was stopped: it repeated itself in the arguments of a tool call"
    if loop is not None and not _has_called(state):
        if judged is not None and not judged.raw_text.strip():
            return Flaw.EMPTY, f"{who} was stopped: it wrote nothing but white space"
        return Flaw.CYCLE, f"{who} was stopped: it repeated itself"
    if judged is None or judged.flaw is None:
        doubt = "" if state.plan.gauge is None else state.plan.gauge.explain_doubt(state.confidence)
        return (Flaw.DOUBT, f"tier {state.plan.tier}: {doubt}") if doubt else (None, "")
    return judged.flaw, judged.detail if judged.loop is not None else f"{who}: {judged.detail}"


def _has_called(state: AttemptState) -> bool:
    """Return whether an answer that was stopped has calls that count: it was stopped for its calls, and they aren't
    only quoted; or its calls are complete and valid, whatever the model babbles behind them."""
    judged = state.judged
    if judged is None:
        return False
    if state.scan.stopped_for_calls and (judged.calls or judged.violations):
        return True
    return judged.flaw is None and bool(judged.calls)
