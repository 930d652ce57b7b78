"""One call to one tier: read its stream under the timeouts, let pass what may pass, and judge what came.

    tier's events -> timeouts -> guard (repetition while it decodes) -> gate -> client
                                                                          `-> held -> judge, at the end

`Reading` is the state of one attempt; `read` the generator that moves it on. Whatever happens, `Reading.end` says how
the stream ended (None: the reader left), and `Reading.record()` what the walk has to know. The tier's stream is closed
on every way out, which stops the generation.

A tier that breaks off after a silence of half its timeout has stalled: upstreams and proxies have timeouts of their
own, and theirs may ring first. To ask it again would cost as much time once more, so it counts as the timeout that it
nearly was, and another tier is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from deployments.config_tiers import Timeouts
from deployments.ports import Clock, Tier
from deployments.request.event_sizes import chars_of, cut_to, written_max
from deployments.request.patience import limit_of, struck_by, unless_stalled
from deployments.request.spending import Spending
from deployments.work.judging import Elsewhere, settled
from deployments.work.large_work import Large, at_once
from reliability import loops
from reliability.answer import gate as gates
from reliability.answer.gate import Gate, Hold
from reliability.answer.judgement import Expected, Judged, judge, settle_text
from reliability.answer.logprobs import WaitingLogprobs
from reliability.faults import TRAITS, Ran
from reliability.loops import Kind, Loop, Scan
from reliability.types import (
    Attempt,
    ChatRequest,
    Counted,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Flaw,
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


@dataclass(slots=True, kw_only=True)
class Reading:
    """The state of one attempt. `text_committed`: an earlier attempt's text stands before the client already, so this
    one's text is held and dropped. `output_cap`: how many tokens the tier may write. `logprobs`: None where the client
    hasn't asked for them. `kept`: what the event that convicted a loop brought, where nothing had left before it.
    `history_bytes`: of what the answer is held against.

    `trusted`: what the tier says of its tokens is its own count. `progress` hears what the attempt has cost so far;
    `prompt_most` bounds the tokens of its prompt. `reported`: what the tier said that it had cost, where that can't be.
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
    scan: Scan = field(init=False)
    thought: Scan = field(init=False)
    loop: Loop | None = None
    lead: str = ""
    sent: list[str] = field(default_factory=list)
    kept: tuple[Event, ...] = ()
    last: tuple[Event, ...] = ()
    logprobs: WaitingLogprobs | None = None
    accepted: bool = False
    ttft_ns: int | None = None
    reported: Usage | None = None
    end: Finish | Failed | None = None
    judged: Judged | None = None

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.expected.toolbox.tools]
        hold = Hold.ALL if self.text_committed else self.hold
        self.scan = self.thought = loops.open_scan(calls=bool(names))
        self.spending = Spending(
            prompt_bytes=self.prompt_bytes,
            output_cap=self.output_cap,
            prompt_most=self.prompt_most,
            progress=self.progress,
            trusted=self.trusted,
        )
        self.gate = gates.open_gate(names, partial(settle_text, toolbox=self.expected.toolbox), hold)

    @property
    def text_out(self) -> bool:
        """Whether text of this attempt stands before the client."""
        return bool(self.sent)

    @property
    def phase(self) -> str:
        """The timeout that runs: until the tier has taken the request, until its first word, between two."""
        if self.ttft_ns is not None:
            return "idle_s"
        return "first_token_s" if self.accepted else "connect_s"

    def take(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch, and tell what it has cost; return what may leave now."""
        out = self.look(batch, now_ns)
        self.say_progress()
        return out

    def say_progress(self) -> None:
        """Tell what the attempt has cost so far, unless it is over. On the event loop only."""
        if self.end is None and self.loop is None:
            self.spending.say_progress()

    def look(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch; return what may leave now. The attempt is over where the tier says so, where it goes round in
        circles, and where it has surely written more than it was allowed: not every server obeys its cap."""
        out: list[Event] = []
        most = written_max(self.output_cap)
        for at, event in enumerate(batch):
            match event:
                case Started():
                    self.accepted = True
                case Counted(usage=usage):
                    self.spending.counted = usage
                case Logprobs(tokens=tokens):
                    if self.logprobs is not None:
                        self.logprobs.add(tokens)
                case Finish() | Failed():
                    self.end = event
                case _:
                    out += self._content(cut_to(event, most - self.spending.written_bytes), now_ns)
                    if self.spending.written_bytes > most:
                        self.end = Finish(reason=FinishReason.LENGTH)
            if self.end is not None or self.loop is not None:
                self._count(batch[at + 1 :])
                break
        return out + self._told_with(out)

    def size_with(self, batch: Sequence[Event]) -> int:
        """About how many characters are looked at when this batch is taken: what it brings, and what the gate holds
        and may ask about again."""
        return OPEN_WEIGHT * self.gate.open_chars + WEIGHT * sum(map(chars_of, batch))

    @property
    def size(self) -> int:
        """About how many bytes are looked at when the answer is judged: beside it, the history that it may repeat."""
        return WEIGHT * self.spending.written_bytes + self.history_bytes

    def _count(self, unread: Sequence[Event]) -> None:
        """What the tier has counted is told last, often behind the word at which it was stopped."""
        for event in unread:
            self.spending.write(event)
            if isinstance(event, Counted | Finish) and event.usage is not None:
                self.spending.counted = event.usage

    def _told_with(self, events: Sequence[Event]) -> list[Event]:
        """What the tokens of these events were worth, where the client has asked for it."""
        return [] if self.logprobs is None else self.logprobs.leave_with(events)

    def _content(self, event: Event, now_ns: int) -> tuple[Event, ...]:
        if self.ttft_ns is None:
            self.ttft_ns = now_ns - self.started_ns
        self.spending.write(event)
        self._guard(event)
        self.gate, out = gates.step(self.gate, event)
        if self.loop is not None and not self.sent:
            self.kept = out
            return ()
        return self._sent(out)

    def _sent(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """These leave: all but white space that no word stands before yet. It would commit the answer to an attempt
        that has said nothing; many models write a line end before a call, or behind their thoughts."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Text):
                text = self.lead + event.text
                if not self.sent and (not text or text.isspace()):
                    self.lead = text
                    continue
                self.lead = ""
                self.sent.append(text)
                out.append(Text(text))
            else:
                out.append(event)
        return tuple(out)

    def _guard(self, event: Event) -> None:
        """Look for repetition inside the answer while it decodes."""
        if self.expected.loops is None:
            return
        if isinstance(event, Text):
            self.scan, self.loop = loops.step(self.scan, event.text)
        elif isinstance(event, Reasoning):
            self.thought, self.loop = loops.step(self.thought, event.text)

    def finish(self) -> list[Event]:
        """The stream is over: settle the gate and judge the answer. Returns what may still leave: nothing of an
        attempt that failed, since what hasn't left yet is another tier's to say, and nothing where no text has left
        before, since then all of it is still to be judged."""
        question = self.settle()
        return [] if question is None else self.answered(question())

    def settle(self) -> Question | None:
        """The first half of `finish`: the question whether the answer is good; None where there is none to judge."""
        if self.loop is not None and self.end is None:
            self.end = Finish(reason=FinishReason.STOP if self._calls_loop else FinishReason.LENGTH)
        if not isinstance(self.end, Finish):
            return None
        usage, self.reported = self._spent()
        if usage is not self.end.usage:
            self.end = replace(self.end, usage=usage)
        _, out, held = gates.finish(self.gate)
        out = self.kept + out
        if self.sent:
            out = self._sent(out)
        else:
            held, out = ((Text(self.lead),) if self.lead else ()) + out + held, ()
        self.last = out
        return partial(
            judge,
            self.expected,
            held,
            self.end,
            sent="".join(self.sent),
            text_committed=self.text_committed,
            attempt=self.number,
            stopped=self._calls_loop,
        )

    def answered(self, judged: Judged) -> list[Event]:
        """The second half: take the judgement; what may still leave."""
        self.judged = judged
        if isinstance(self.end, Finish) and self.end.damaged and (judged.calls or judged.violations):
            return self._refuse_damaged(self.end.usage)
        said = self._told_with(self.last)
        self._say_the_rest(judged)
        return [*self.last, *said]

    def _refuse_damaged(self, usage: Usage | None) -> list[Event]:
        """Its calls are whole as far as one can see, and need not be what was meant."""
        words = f"tier {self.tier} sent an answer of which a piece was lost: its tool calls can't be trusted"
        self.end, self.judged = Failed(fault=Fault.PROTOCOL, message=words, usage=usage), None
        return []

    def _say_the_rest(self, judged: Judged) -> None:
        """What the tokens of the text that is delivered at the end were worth; those of calls aren't told."""
        if self.text_committed or self.logprobs is None:
            return
        told = self.logprobs.leave_with(judged.events) if judged.calls else self.logprobs.rest()
        if told:
            self.judged = replace(judged, events=(*judged.events, *told))

    @property
    def _calls_loop(self) -> bool:
        return self.loop is not None and self.loop.kind is Kind.ANSWER_CALLS

    @property
    def _called(self) -> bool:
        """Whether it was stopped for calls that are some: what is quoted, or only thought, is a text in circles."""
        return self._calls_loop and self.judged is not None and bool(self.judged.calls or self.judged.violations)

    @property
    def _has_good_calls(self) -> bool:
        """Whole and valid calls count, whatever the model went on to babble behind them."""
        return self.judged is not None and self.judged.flaw is None and bool(self.judged.calls)

    def record(self, now_ns: int, *, granted: bool = True) -> Attempt:
        """The attempt's record. Without an end it is the client that left. `granted`: nobody who should have been asked
        was silent."""
        failed = self.end if isinstance(self.end, Failed) else None
        flaw, detail = self._flaw()
        usage, reported = self._spent()
        return Attempt(
            tier=self.tier,
            ran=self.ran,
            fault=failed.fault if failed else None,
            flaw=flaw,
            detail=failed.message if failed else detail,
            status=failed.status if failed else None,
            param=failed.param if failed else None,
            retry_after_s=failed.retry_after_s if failed else None,
            usage=usage,
            ttft_ns=self.ttft_ns,
            elapsed_ns=now_ns - self.started_ns,
            text_out=self.text_out,
            calls_held=bool(self.judged and self.judged.calls),
            cancelled=self.end is None,
            granted=granted,
            reported=self.reported or reported,
        )

    def _flaw(self) -> tuple[Flaw | None, str]:
        if self.loop is not None and not self._called and not self._has_good_calls:
            if self.judged is not None and not self.judged.raw_text.strip():
                return Flaw.EMPTY, f"tier {self.tier} was stopped: it wrote nothing but white space"
            return Flaw.CYCLE, f"tier {self.tier} was stopped: it repeated itself"
        if self.judged is None or self.judged.flaw is None:
            return None, ""
        if self.judged.loop is not None:
            return self.judged.flaw, self.judged.detail
        return self.judged.flaw, f"tier {self.tier}: {self.judged.detail}"

    @property
    def ran(self) -> bool:
        """Whether the tier did any work: it wrote something, or cost something, or its fault says so."""
        if self.ttft_ns is not None or self.usage.total_tokens > 0:
            return True
        ran = TRAITS[self.end.fault].ran if isinstance(self.end, Failed) else Ran.RAN
        return ran is Ran.RAN or (ran is Ran.IF_STARTED and self.accepted)

    @property
    def usage(self) -> Usage:
        """What the attempt has cost; see `deployments.request.spending`."""
        return self._spent()[0]

    def _spent(self) -> tuple[Usage, Usage | None]:
        return self.spending.spent(self.end, accepted=self.accepted)


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
            timeout_s, limit = limit_of(phase, timeouts, began_ns - reading.started_ns, deadline_ns - began_ns)
            patience = asyncio.timeout(timeout_s)
            try:
                async with patience:
                    batch = await anext(stream)
            except TimeoutError:
                batch = [struck_by(limit, reading.tier, timeouts)]
            except StopAsyncIteration:
                batch = [Failed(fault=Fault.CRASHED, message=f"tier {reading.tier} broke off its answer")]
            now_ns = clock.now_ns()
            if isinstance(batch[-1], Failed):
                # A stream that is cancelled may say that it broke before it hears why.
                struck = struck_by(limit, reading.tier, timeouts) if patience.expired() else None
                batch = [*batch[:-1], struck or unless_stalled(batch[-1], phase, now_ns - began_ns, timeouts)]
            out = await large(reading.size_with(batch), reading.look, batch, now_ns)
            reading.say_progress()
            if out:
                yield out
    question = await large(reading.size, reading.settle)
    if question is None:
        return
    left_s = (deadline_ns - clock.now_ns()) / NS_PER_S
    out = reading.answered(await settled(question, partial(large, reading.size), elsewhere, left_s))
    if out:
        yield out
