"""One call to one tier: read its stream under the timeouts, let pass what may pass, and judge what came.

    tier's events -> timeouts -> reasoning apart -> gate -> guard (repetition while it decodes) -> client
                                                      `-> held -> judge, at the end

`Reading` is the state of one attempt; `read` the generator that moves it on. Whatever happens,
`Reading.end` says how the stream ended (None: the reader left); what it came to is accounted for in
`attempt_record.py`. The tier's stream is closed on every way out, which stops the generation.

A tier that breaks off after a silence of half its timeout has stalled: upstreams and proxies have
timeouts of their own, and theirs may run out first. To ask it again would cost as much time once
more, so it counts as the timeout that it nearly was, and another tier is asked.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from deployments.config_tiers import Timeouts
from deployments.ports import Clock, Tier
from deployments.request.event_sizes import compute_bytes_max, count_chars, cut_event
from deployments.request.patience import convert_stall, fail_by_timeout, find_limit
from deployments.request.spending import Spending
from deployments.work.judging import Elsewhere, make_judgement
from deployments.work.large_work import Large, at_once
from reliability import loops
from reliability.answer import gate as gates
from reliability.answer.call_scan import CallScan, step_calls
from reliability.answer.gate import Gate, Hold, Stopped
from reliability.answer.judgement import Expected, Judged, judge, settle_text
from reliability.answer.logprobs import WaitingLogprobs
from reliability.answer.thoughts import Thoughts, close, pass_on
from reliability.answer.turn_start import Head, strip_turn_start
from reliability.loops import Kind, Loop, Scan
from reliability.prefix import LostPrefix
from reliability.types import (
    CallDelta,
    ChatRequest,
    Counted,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Logprobs,
    Reasoning,
    Started,
    Text,
    Usage,
)

__all__ = ["Reading", "read"]

Question = Callable[[], Judged]

NS_PER_S = 1_000_000_000
# Looking at what a model wrote takes so many times as long as reading what a client sent; where it may have to be
# looked at again, to settle whether it is a call, even more.
WEIGHT = 4
OPEN_WEIGHT = 16
REASONED_CHARS = 4_000  # of the reasoning, as much as two texts of a conversation are compared by


@dataclass(slots=True, kw_only=True)
class Reading:
    """The state of one attempt. `text_committed`: an earlier attempt's text stands before the client already, so this
    one's text is held and dropped. `output_cap`: how many tokens the tier may write. `logprobs`: None where the client
    hasn't asked for them. `kept`: what the event in which a loop was detected brought, where nothing had left before
    it. `history_bytes`: of what the answer is held against. `text_scan`, `reasoning_scan`: how far its text and its
    reasoning are scanned for loops; `call_scan`: its native calls. `stopped_in_arguments`: the loop stands in the
    arguments of a call, so that what came of it is no call. `reasoned`: the beginning of its reasoning, which is the
    answer where there is nothing else. `thoughts` tells what of its text is reasoning; `told` had left before the
    answer began anew, behind a mark of it, and `sent` since.

    `begun`: the text that it goes on with, which stands before the client and is read first as if it had written that
    itself; as much of it as the gate would have held, `unsaid`, doesn't leave again. `seam`: how many characters stand
    there. `text_out`: text of this attempt stands before the client. `answer_cap`: how many tokens the whole answer may
    have, with `begun`; `bytes_max`: what this attempt may write at most before it is cut.

    `trusted`: what the tier reports of its tokens is its own count. `progress` is called with what the attempt has
    cost so far; `prompt_most` bounds the tokens of its prompt. `reported`: what the tier reported that it had cost,
    where that can't be. `lost`: as of `Started`.
    """

    tier: str
    number: int
    expected: Expected
    hold: Hold
    text_committed: bool
    started_ns: int
    output_cap: int
    prompt_bytes: int = 0
    prompt_most: Callable[[], int] = int
    progress: Callable[[Usage], None] | None = None
    trusted: bool = False
    spending: Spending = field(init=False)
    history_bytes: int = 0
    gate: Gate = field(init=False)
    text_scan: Scan = field(init=False)
    reasoning_scan: Scan = field(init=False)
    call_scan: CallScan = field(default_factory=CallScan)
    reasoned: str = ""
    loop: Loop | None = None
    head: Head = field(default_factory=Head)
    thoughts: Thoughts = field(init=False)
    told: str = ""
    begun: str = ""
    seam: int | None = None
    answer_cap: int = 0
    bytes_max: int = field(init=False)
    unsaid: int = field(init=False, default=0)
    text_out: bool = field(init=False, default=False)
    sent: list[str] = field(default_factory=list)
    kept: tuple[Event, ...] = ()
    last: tuple[Event, ...] = ()
    logprobs: WaitingLogprobs | None = None
    accepted: bool = False
    ttft_ns: int | None = None
    reported: Usage | None = None
    end: Finish | Failed | None = None
    judged: Judged | None = None
    lost: LostPrefix | None = None

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.expected.toolbox.tools]
        self.thoughts = Thoughts(begun=bool(self.begun))
        self.text_scan = self.reasoning_scan = loops.open_scan(calls=bool(names))
        self.spending = Spending(
            prompt_bytes=self.prompt_bytes,
            output_cap=self.output_cap,
            prompt_most=self.prompt_most,
            progress=self.progress,
            trusted=self.trusted,
        )
        hold = Hold.ALL if self.text_committed else self.hold
        self.gate = gates.open_gate(names, partial(settle_text, toolbox=self.expected.toolbox), hold)
        self.bytes_max = compute_bytes_max(self.output_cap)
        if self.begun:
            left = compute_bytes_max(self.answer_cap or self.output_cap) - len(self.begun.encode("utf-8", "replace"))
            self.bytes_max = min(self.bytes_max, max(0, left))
            self.text_scan, _ = loops.step(self.text_scan, self.begun)
            self.gate, passed = gates.step(self.gate, Text(self.begun))
            self.sent = [event.text for event in passed if isinstance(event, Text)]
            if isinstance(self.gate, Stopped):  # a mark stands there as it is
                self.gate, self.told, self.sent = Gate(self.gate.rules), self.begun, []
            self.unsaid = len(self.begun) - len(self.told) - sum(map(len, self.sent))

    @property
    def phase(self) -> str:
        """The timeout that runs: until the tier has taken the request, until its first token, between two."""
        return "idle_s" if self.ttft_ns is not None else "first_token_s" if self.accepted else "connect_s"

    def take(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch, and report what it has cost; return what may leave now."""
        out = self.look(batch, now_ns)
        self.report_progress()
        return out

    def report_progress(self) -> None:
        """Report what the attempt has cost so far, unless it is over. On the event loop only."""
        if self.end is None and self.loop is None:
            self.spending.report_progress()

    def look(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch; return what may leave now. The attempt is over where the tier says so, where it repeats
        itself, and where it has surely written more than it was allowed: not every server obeys its cap."""
        out: list[Event] = []
        most = self.bytes_max
        for at, event in enumerate(batch):
            match event:
                case Started(lost=lost):
                    self.accepted, self.lost = True, lost
                case Counted(usage=usage):
                    self.spending.counted = usage
                case Logprobs(tokens=tokens):
                    if self.logprobs is not None:
                        self.logprobs.add(tokens)
                case Finish() | Failed():
                    self.end = event
                case _:
                    out += self._take_content(cut_event(event, most - self.spending.written_bytes), now_ns)
                    if self.spending.written_bytes > most:
                        self.end = Finish(reason=FinishReason.LENGTH)
            if self.end is not None or self.loop is not None:
                self._count_unread(batch[at + 1 :])
                break
        return out if self.logprobs is None else out + self.logprobs.leave_with(out)

    def size_with(self, batch: Sequence[Event]) -> int:
        """Estimate how many characters are looked at when this batch is taken: its own, and what the gate holds."""
        return OPEN_WEIGHT * self.gate.open_chars + WEIGHT * sum(map(count_chars, batch))

    @property
    def size(self) -> int:
        """About how many bytes are looked at when the answer is judged: beside it, the history that it may repeat."""
        return WEIGHT * self.spending.written_bytes + self.history_bytes

    def _count_unread(self, unread: Sequence[Event]) -> None:
        """Take the rest of a batch into account: a tier's count often comes behind the word at which it was stopped."""
        for event in unread:
            self.spending.write(event)
            if isinstance(event, Counted | Finish) and event.usage is not None:
                self.spending.counted = event.usage

    def _take_content(self, event: Event, now_ns: int) -> tuple[Event, ...]:
        if self.ttft_ns is None:
            self.ttft_ns = now_ns - self.started_ns
        self.spending.write(event)
        if isinstance(event, CallDelta):
            self._guard(event)
            if self.stopped_for_calls:
                return ()  # the beginning of one more call: those before it are complete
        if self.thoughts.passes(event):  # nearly always
            gate, out = gates.step(self.gate, event)
            if not isinstance(gate, Stopped):
                if self.logprobs is not None:
                    self.logprobs.leave_out(event, (event,))
                return self._take_part(event, gate, out)
        released: tuple[Event, ...] = ()
        for part, gate, out in (passed := pass_on(self.thoughts, self.gate, event)):
            released += self._take_part(part, gate, out)
            if isinstance(gate, Stopped):  # the answer begins anew behind it; what has left stays
                self.gate, self.told, self.sent = Gate(gate.rules), self.told + "".join(self.sent), []
                self.head, self.text_scan = Head(), loops.open_scan(calls=bool(self.expected.toolbox.tools))
        if self.logprobs is not None:
            self.logprobs.leave_out(event, [part for part, _, _ in passed])
        return released

    def _take_part(self, part: Event, gate: Gate, out: tuple[Event, ...]) -> tuple[Event, ...]:
        """Take a part of an event that the gate has taken; return what of `out` may leave."""
        self.gate = gate
        if not isinstance(part, CallDelta):
            self._guard(part)
        if self.loop is not None and not self.sent and not self.told:
            self.kept += out
            return ()
        return self._release(out)

    def _release(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Let these leave: all but white space, and the opening of the model's turn, that no word stands before yet.
        It would commit the answer to an attempt without text; many models write a line end before a call."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Text) and self.sent and not self.unsaid:  # nearly always
                self.sent.append(event.text)
                self.text_out = True
                out.append(event)
            elif isinstance(event, Text):
                head = event.text if self.sent else self.head.take(event.text)
                if head is None:
                    continue
                text = head if self.sent else strip_turn_start(head)
                self.sent.append(text)
                out += self._drop_said(Text(text))
            else:
                out.append(event)
        return tuple(out)

    def _drop_said(self, event: Text) -> list[Event]:
        """Drop what an earlier attempt has told the client already."""
        text, self.unsaid = event.text[self.unsaid :], max(0, self.unsaid - len(event.text))
        self.text_out = self.text_out or bool(text)
        return [Text(text)] if text else []

    def _guard(self, event: Event) -> None:
        """Look for repetition inside the answer while it decodes."""
        if self.expected.loops is None or self.loop is not None:
            return
        if isinstance(event, Text):
            self.text_scan, self.loop = loops.step(self.text_scan, event.text)
        elif isinstance(event, Reasoning):
            self.reasoning_scan, self.loop = loops.step(self.reasoning_scan, event.text)
            self.reasoned = (self.reasoned + event.text)[:REASONED_CHARS]
        elif isinstance(event, CallDelta):
            self.call_scan, self.loop = step_calls(self.call_scan, event.index, event.name or "", event.arguments)

    def finish(self) -> list[Event]:
        """Settle the gate and judge the answer, when the stream is over. Returns what may still leave: nothing of an
        attempt that failed, since what hasn't left yet is another tier's to write, and nothing where no text has
        left before, since then all of it is still to be judged."""
        question = self.settle()
        return [] if question is None else self.take_judgement(question())

    def settle(self) -> Question | None:
        """Settle the gate, the first half of `finish`. Returns the question whether the answer is
        good; None where there is none to judge."""
        if self.loop is not None and self.end is None:
            self.end = Finish(reason=FinishReason.STOP if self.stopped_for_calls else FinishReason.LENGTH)
        if not isinstance(self.end, Finish):
            return None
        usage, self.reported = self.count_usage()
        if usage is not self.end.usage:
            self.end = replace(self.end, usage=usage)
        out, held = close(self.thoughts, self.gate)
        out = self.kept + out
        if self.sent:
            out = self._release(out)
        else:
            lead = self.head.text()
            held, out = ((Text(lead),) if lead else ()) + out + held, ()
        self.last = out
        return partial(
            judge,
            self.expected,
            held,
            self.end,
            sent="".join(self.sent),
            text_committed=self.text_committed,
            attempt=self.number,
            told=self.told,
            stopped=None if self.stopped_in_arguments else self.loop,
            reasoned=self.reasoned,
        )

    def take_judgement(self, judged: Judged) -> list[Event]:
        """Take the answer to that question, the second half of `finish`. Returns what may still leave."""
        if self.unsaid:
            events = ([one] if not isinstance(one, Text) else self._drop_said(one) for one in judged.events)
            judged = replace(judged, events=tuple(itertools.chain.from_iterable(events)))
        self.judged = judged
        if isinstance(self.end, Finish) and self.end.damaged and (judged.calls or judged.violations):
            return self._refuse_damaged(self.end.usage)
        logprobs = [] if self.logprobs is None else self.logprobs.leave_with(self.last)
        self._add_last_logprobs(judged)
        return [*self.last, *logprobs]

    def _refuse_damaged(self, usage: Usage | None) -> list[Event]:
        """Refuse an answer whose calls are complete as far as one can see, and need not be what was meant."""
        words = f"tier {self.tier} sent an answer of which a piece was lost: its tool calls can't be trusted"
        self.end, self.judged = Failed(fault=Fault.PROTOCOL, message=words, usage=usage), None
        return []

    def _add_last_logprobs(self, judged: Judged) -> None:
        """Add the logprobs of the text that is delivered at the end; those of calls aren't delivered."""
        if not self.text_committed and self.logprobs is not None:
            logprobs = self.logprobs.leave_with(judged.events) if judged.calls else self.logprobs.rest()
            self.judged = replace(judged, events=(*judged.events, *logprobs))

    @property
    def stopped_for_calls(self) -> bool:
        """Whether it was stopped since its calls repeated themselves."""
        return self.loop is not None and self.loop.kind is Kind.ANSWER_CALLS

    @property
    def stopped_in_arguments(self) -> bool:
        """Whether it was stopped since the arguments of a native call repeated themselves."""
        return self.call_scan.loop is not None and not self.stopped_for_calls

    def count_usage(self) -> tuple[Usage, Usage | None]:
        """Count what the attempt has cost; see `Spending.count_usage`."""
        return self.spending.count_usage(self.end, accepted=self.accepted)


async def read(
    reading: Reading,
    tier: Tier,
    request: ChatRequest,
    timeouts: Timeouts,
    clock: Clock,
    deadline_ns: int,
    large: Large = at_once,
    elsewhere: Elsewhere | None = None,
) -> AsyncGenerator[list[Event], None]:
    """Move `reading` on until the tier's last event, a timeout or a loop; yield what may leave at once. `large` does
    what may take long, and what takes too many steps even so is judged `elsewhere`."""
    async with aclosing(tier.stream(request)) as stream:
        while reading.end is None and reading.loop is None:
            began_ns = clock.now_ns()
            phase = reading.phase
            timeout_s, limit = find_limit(phase, timeouts, began_ns - reading.started_ns, deadline_ns - began_ns)
            patience = asyncio.timeout(timeout_s)
            try:
                async with patience:
                    batch = await anext(stream)
            except TimeoutError:
                batch = [fail_by_timeout(limit, reading.tier, timeouts)]
            except StopAsyncIteration:
                batch = [Failed(fault=Fault.CRASHED, message=f"tier {reading.tier} broke off its answer")]
            now_ns = clock.now_ns()
            if isinstance(batch[-1], Failed):
                # A stream that is cancelled may report that it broke before it learns why.
                end = fail_by_timeout(limit, reading.tier, timeouts) if patience.expired() else batch[-1]
                batch = [*batch[:-1], convert_stall(end, phase, now_ns - began_ns, timeouts)]
            out = await large(reading.size_with(batch), reading.look, batch, now_ns)
            reading.report_progress()
            if out:
                yield out
    question = await large(reading.size, reading.settle)
    if question is None:
        return
    left_s = (deadline_ns - clock.now_ns()) / NS_PER_S
    out = reading.take_judgement(await make_judgement(question, partial(large, reading.size), elsewhere, left_s))
    if out:
        yield out
