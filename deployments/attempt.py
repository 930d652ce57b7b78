"""One call to one tier: read its stream under the timeouts, let pass what may pass, and judge what came.

    tier's events -> timeouts -> guard (repetition while it decodes) -> gate -> client
                                                                          `-> held -> judge, at the end

`Reading` is the state of one attempt; `read` the generator that moves it on. Whatever happens, `Reading.end` says how
the stream ended (None: the reader left), and `Reading.record()` what the walk has to know. The tier's stream is closed
on every way out, which stops the generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from deployments.config import Timeouts
from deployments.ports import Clock, Tier
from reliability import gate as gates
from reliability import loops
from reliability.answer import Expected, Judged, judge, settle_text
from reliability.estimate import text_bytes, tokens_max, tokens_min
from reliability.gate import Gate, Hold
from reliability.logprobs import WaitingLogprobs
from reliability.loops import Kind, Loop, Scan
from reliability.types import (
    Attempt,
    CallDelta,
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

NS_PER_S = 1_000_000_000
CALL_BYTES = 64  # a tool call's name and the markers around it
# What an answer of so many tokens can't be longer than: SmolLM2's tokenizer has 10 bytes a token in formal English, 11
# in deeply indented code, and an answer of a few tokens may be a few long words.
TOKEN_BYTES_MOST = 16
OVERRUN_BYTES = 256
NOTHING_SPENT = Usage()
# Said by a tier before it has done any work.
NOTHING_RAN = frozenset({Fault.UNAVAILABLE, Fault.LOADING, Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH})


@dataclass(slots=True, kw_only=True)
class Reading:
    """The state of one attempt. `text_committed`: an earlier attempt's text stands before the client already, so this
    one's text is held and dropped. `output_cap`: how many tokens the tier may write. `logprobs`: None where the client
    hasn't asked for them. `kept`: what the event that convicted a loop brought, where nothing had left before it."""

    tier: str
    number: int
    expected: Expected
    hold: Hold
    text_committed: bool
    started_ns: int
    output_cap: int
    prompt_bytes: int = 0
    gate: Gate = field(init=False)
    scan: Scan = field(init=False)
    thought: Scan = field(init=False)
    loop: Loop | None = None
    lead: str = ""
    sent: list[str] = field(default_factory=list)
    kept: tuple[Event, ...] = ()
    logprobs: WaitingLogprobs | None = None
    accepted: bool = False
    ttft_ns: int | None = None
    counted: Usage | None = None
    written_bytes: int = 0
    end: Finish | Failed | None = None
    judged: Judged | None = None
    ended_ns: int = 0

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.expected.toolbox.tools]
        hold = Hold.ALL if self.text_committed else self.hold
        self.scan = self.thought = loops.open_scan(calls=bool(names))
        self.gate = gates.open_gate(names, partial(settle_text, toolbox=self.expected.toolbox), hold)

    @property
    def text_out(self) -> bool:
        """Whether text of this attempt stands before the client."""
        return bool(self.sent)

    def take(self, batch: Sequence[Event], now_ns: int) -> list[Event]:
        """Read one batch; return what may leave now. The attempt is over where the tier says so, where it goes round in
        circles, and where it has surely written more than it was allowed: not every server obeys its cap."""
        out: list[Event] = []
        for at, event in enumerate(batch):
            match event:
                case Started():
                    self.accepted = True
                case Counted(usage=usage):
                    self.counted = usage
                case Logprobs(tokens=tokens):
                    if self.logprobs is not None:
                        self.logprobs.add(tokens)
                case Finish() | Failed():
                    self.end = event
                case _:
                    out += self._content(event, now_ns)
                    if self.written_bytes > self.output_cap * TOKEN_BYTES_MOST + OVERRUN_BYTES:
                        self.end = Finish(reason=FinishReason.LENGTH)
            if self.end is not None or self.loop is not None:
                self._count(batch[at + 1 :])
                break
        return out + self._told_with(out)

    def _count(self, unread: Sequence[Event]) -> None:
        """What the tier has counted is told last, often behind the word at which it was stopped."""
        for event in unread:
            if isinstance(event, Counted | Finish) and event.usage is not None:
                self.counted = event.usage

    def _told_with(self, events: Sequence[Event]) -> list[Event]:
        """What the tokens of these events were worth, where the client has asked for it."""
        return [] if self.logprobs is None else self.logprobs.leave_with(events)

    def _content(self, event: Event, now_ns: int) -> tuple[Event, ...]:
        if self.ttft_ns is None:
            self.ttft_ns = now_ns - self.started_ns
        self.written_bytes += _size(event)
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
        if self.loop is not None and self.end is None:
            self.end = Finish(reason=FinishReason.STOP if self._calls_loop else FinishReason.LENGTH)
        if not isinstance(self.end, Finish):
            return []
        if self.end.usage is None:
            self.end = replace(self.end, usage=self.usage)
        _, out, held = gates.finish(self.gate)
        out = self.kept + out
        if self.sent:
            out = self._sent(out)
        else:
            held, out = ((Text(self.lead),) if self.lead else ()) + out + held, ()
        self.judged = judge(
            self.expected,
            held,
            self.end,
            sent="".join(self.sent),
            text_committed=self.text_committed,
            attempt=self.number,
        )
        said = self._told_with(out)
        self._say_the_rest(self.judged)
        return [*out, *said]

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
        return Attempt(
            tier=self.tier,
            ran=self.ran,
            fault=failed.fault if failed else None,
            flaw=flaw,
            detail=failed.message if failed else detail,
            status=failed.status if failed else None,
            param=failed.param if failed else None,
            retry_after_s=failed.retry_after_s if failed else None,
            usage=self.usage,
            ttft_ns=self.ttft_ns,
            elapsed_ns=now_ns - self.started_ns,
            text_out=self.text_out,
            calls_held=bool(self.judged and self.judged.calls),
            cancelled=self.end is None,
            granted=granted,
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
        """Whether the tier did any work: not where it said at once that it can't, and not where nobody took it."""
        if isinstance(self.end, Failed) and self.end.fault is Fault.CONNECT_TIMEOUT:
            return False
        worked = self.accepted or self.ttft_ns is not None
        return worked or not isinstance(self.end, Failed) or self.end.fault not in NOTHING_RAN

    @property
    def usage(self) -> Usage:
        """What the attempt has cost: as the tier says, else as it has counted on the way, else an estimate from above
        of what it read and wrote. An API that refuses with a status has cost nothing. Where a replica died on its work,
        it may have written all that it was allowed; where the client left before the tier's first word, the call was on
        its way, and its prompt may have been read."""
        told = self.end.usage if self.end else None
        lost = isinstance(self.end, Failed) and self.end.lost and self.accepted
        if told is not None or (self.counted is not None and not lost):
            return told or self.counted or NOTHING_SPENT
        if isinstance(self.end, Failed) and not self.written_bytes:
            refused = self.end.status is not None or self.end.fault in NOTHING_RAN
            if refused or not self.accepted:
                return NOTHING_SPENT
        return Usage(
            prompt_tokens=tokens_max(self.prompt_bytes),
            completion_tokens=max(self.output_cap, self._written_tokens) if lost else self._written_tokens,
            exact=False,
        )

    @property
    def _written_tokens(self) -> int:
        """An estimate from above, but not above what the tier was allowed and so reserved, unless it has surely
        written more."""
        return min(tokens_max(self.written_bytes), max(self.output_cap, tokens_min(self.written_bytes)))


async def read(
    reading: Reading, tier: Tier, request: ChatRequest, timeouts: Timeouts, clock: Clock, deadline_ns: int
) -> AsyncGenerator[list[Event], None]:
    """Move `reading` on until the tier's last event, a timeout or a loop; yield what may leave at once."""
    async with aclosing(tier.stream(request)) as stream:
        while reading.end is None and reading.loop is None:
            timeout_s, limit = _limit(reading, timeouts, clock.now_ns(), deadline_ns)
            try:
                async with asyncio.timeout(timeout_s):
                    batch = await anext(stream)
            except TimeoutError:
                reading.end = _struck(limit, reading.tier, timeouts)
            except StopAsyncIteration:
                reading.end = Failed(fault=Fault.CRASHED, message=f"tier {reading.tier} broke off its answer")
            else:
                out = reading.take(batch, clock.now_ns())
                if out:
                    yield out
    out = reading.finish()
    if out:
        yield out


def _size(event: Event) -> int:
    """The bytes that a model has written for this event."""
    match event:
        case Text(text) | Reasoning(text):
            return text_bytes(text)
        case CallDelta(name=name, arguments=arguments):
            return text_bytes(arguments) + (CALL_BYTES if name else 0)
    return 0


def _limit(reading: Reading, timeouts: Timeouts, now_ns: int, deadline_ns: int) -> tuple[float, str]:
    """The timeout that strikes first, in seconds from now, and its name."""
    phase = "connect_s"
    if reading.ttft_ns is not None:
        phase = "idle_s"
    elif reading.accepted:
        phase = "first_token_s"
    total_s = timeouts.total_s - (now_ns - reading.started_ns) / NS_PER_S
    left_s = (deadline_ns - now_ns) / NS_PER_S
    return min(
        (getattr(timeouts, phase), phase), (total_s, "total_s"), (left_s, "deadline"), key=lambda limit: limit[0]
    )


def _struck(limit: str, tier: str, timeouts: Timeouts) -> Failed:
    """What it means that this timeout struck."""
    if limit == "deadline":
        return Failed(fault=Fault.TOTAL_TIMEOUT, message="the request's deadline passed")
    fault, words = {
        "idle_s": (Fault.IDLE_TIMEOUT, "was silent for"),
        "first_token_s": (Fault.FIRST_TOKEN_TIMEOUT, "gave no token within"),
        "connect_s": (Fault.CONNECT_TIMEOUT, "has no replica that took the request within"),
        "total_s": (Fault.TOTAL_TIMEOUT, "was not done within"),
    }[limit]
    return Failed(fault=fault, message=f"tier {tier} {words} {getattr(timeouts, limit):g} s ({limit})")
