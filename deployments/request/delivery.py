"""What of one attempt's answer leaves for the client at once, what is held until it is judged, and the scans for loops.

An attempt that continues an answer reads the text before the client first, as if it had written that itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from reliability import loops
from reliability.answer import gate as gates
from reliability.answer.answer_head import Head
from reliability.answer.call_scan import CallScan, step_calls
from reliability.answer.estimate import text_bytes, tokens_min
from reliability.answer.gate import Gate, Stopped, reopen_gate
from reliability.answer.judgement import Expected, Judged, settle_text
from reliability.answer.logprobs import WaitingLogprobs
from reliability.answer.thoughts import Thoughts, close
from reliability.loops import Kind, Loop, Scan
from reliability.loops.in_answer import BLOCK, PATIENCE_BYTES
from reliability.loops.repeatable_calls import limit_copies
from reliability.thinking import Thinking, ThoughtEnd
from reliability.types import CallDelta, Event, Failed, Finish, FinishReason, Hold, Reasoning, Text


class Delivery:
    """The way out of one attempt that continues the text `begun`. `thoughts` tells what of its text is reasoning.
    `delivered`: the text that had left before the answer began anew, behind a mark of its reasoning; `sent`: since.
    `kept`: the event in which a loop was detected, where nothing had left before. `last`: what leaves with the
    judgement. `undelivered`: the characters of a continued text that the gate still holds; they have left already.
    `text_out`: text of this attempt stands before the client."""

    def __init__(self, expected: Expected, hold: Hold, begun: str = "", *, logprobs: bool = False) -> None:
        names = [tool.name for tool in expected.toolbox.tools]
        self.gate = gates.open_gate(names, partial(settle_text, toolbox=expected.toolbox), hold)
        self.thoughts = Thoughts(begun=bool(begun))
        self.logprobs = WaitingLogprobs() if logprobs else None
        self.head = Head()
        self.delivered, self.undelivered, self.text_out = "", 0, False
        self.sent: list[str] = []
        self.kept: tuple[Event, ...] = ()
        self.last: tuple[Event, ...] = ()
        if begun:
            self.gate, passed = gates.step(self.gate, Text(begun))
            self.sent = [event.text for event in passed if isinstance(event, Text)]
            if isinstance(self.gate, Stopped):  # a mark stands there as it is
                self.gate, self.delivered, self.sent = Gate(self.gate.rules), begun, []
            self.undelivered = len(begun) - len(self.delivered) - sum(map(len, self.sent))

    def begin_anew(self, gate: Stopped) -> None:
        """Begin the answer anew behind a mark of its reasoning; what has left stays."""
        self.gate, self.delivered, self.sent = reopen_gate(gate), self.delivered + "".join(self.sent), []
        self.head = Head()

    def release(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Let these leave: all but white space and marks before the first word. They would commit the answer to an
        attempt without text; many models write a line end before a call."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Text) and self.sent and not self.undelivered:  # nearly always
                self.sent.append(event.text)
                self.text_out = True
                out.append(event)
            elif isinstance(event, Text):
                head = event.text if self.sent else self.head.take(event.text)
                if head is None:
                    continue
                self.sent.append(head)
                out += self._drop_repeated(Text(head))
            else:
                out.append(event)
        return tuple(out)

    def _drop_repeated(self, event: Text) -> list[Event]:
        text, self.undelivered = event.text[self.undelivered :], max(0, self.undelivered - len(event.text))
        self.text_out = self.text_out or bool(text)
        return [Text(text)] if text else []

    def settle(self) -> tuple[Event, ...]:
        """Close the gate at the end of the answer; return what is held for the judgement."""
        out, held = close(self.thoughts, self.gate)
        out = self.kept + out
        if self.sent:
            out = self.release(out)
        else:
            lead = self.head.text()
            held, out = ((Text(lead),) if lead else ()) + out + held, ()
        self.last = out
        return held

    def drop_delivered(self, judged: Judged) -> Judged:
        """Return the judgement without the text that the client has already."""
        if not self.undelivered:
            return judged
        events: list[Event] = []
        for event in judged.events:
            events += self._drop_repeated(event) if isinstance(event, Text) else [event]
        return replace(judged, events=tuple(events))


_ONE_DIGIT = str.maketrans("123456789", "000000000")
_REASONED_CHARS = 4_000  # of the reasoning, as much as two texts of a conversation are compared by
_WHOLE = "the answer repeats itself ({times} times or more), and its tier ended it by itself: it is delivered whole"


class AnswerScan:
    """How far an answer is scanned for loops, where their rules are on, and for calls, where tools are declared.
    `reasoned`: the beginning of its reasoning, which is the answer where there is nothing else."""

    def __init__(self, expected: Expected) -> None:
        self._enabled, self._tools = expected.loops is not None, bool(expected.toolbox.tools)
        self._counts_on = expected.ordered is not None  # what a summary counts on, it makes up
        copies = limit_copies(expected.order, [tool.name for tool in expected.toolbox.tools])
        self._open = partial(loops.open_scan, calls=self._tools, patient=expected.ordered is None, copies=copies)
        self.text = self.reasoning = self._open()
        self.calls = CallScan(patience=PATIENCE_BYTES, copies=copies)
        self.reasoned = ""
        self.loop: Loop | None = None
        self._thought_pieces = self._thought_bytes = 0  # of its reasoning
        self._scanned: tuple[Scan, str, tuple[Scan, Loop | None]] | None = None

    def takes_whole(self, event: Text | Reasoning, thoughts: Thoughts) -> bool:
        """Return whether the answer isn't stopped within this event, which is scanned for it, and not again when it is
        taken. Reasoning by its marks, as `thoughts` say, may end within."""
        scan = self.text if isinstance(event, Text) else self.reasoning
        if not self._enabled or len(scan.fill) + len(event.text) < BLOCK:
            return True
        if thoughts.thinking and isinstance(event, Text):
            return False
        after = self._read(scan, event.text)
        self._scanned = scan, event.text, after
        return after[1] is None

    def split(self, event: Text | Reasoning, thoughts: Thoughts) -> Iterator[Event]:
        """Split an event where the answer is stopped, so that the place doesn't depend on how it came; the last piece
        is the rest. Text in which reasoning may end is split where it may be stopped."""
        at, size = 0, len(event.text)
        while at < size:
            if self.loop is not None:
                end = size
            elif not (thoughts.thinking and isinstance(event, Text)):
                end = at + self._find_stop(self.text if isinstance(event, Text) else self.reasoning, event.text[at:])
            else:
                end = min(size, at + BLOCK - max(len(self.text.fill), len(self.reasoning.fill)))
            yield type(event)(event.text[at:end])
            at = end

    def step(self, event: Event) -> None:
        """Look for repetition in one more event, unless a loop is found already."""
        if isinstance(event, Reasoning):
            self._thought_pieces += 1
            self._thought_bytes += text_bytes(event.text)
        if not self._enabled or self.loop is not None:
            return
        if isinstance(event, Text):
            self.text, self.loop = self._step(self.text, event.text)
        elif isinstance(event, Reasoning):
            self.reasoning, self.loop = self._step(self.reasoning, event.text)
            self.reasoned = (self.reasoned + event.text)[:_REASONED_CHARS]
        elif isinstance(event, CallDelta):
            self.calls, self.loop = step_calls(self.calls, event.index, event.name or "", event.arguments)

    def _step(self, scan: Scan, text: str) -> tuple[Scan, Loop | None]:
        known = self._scanned
        if known is not None and known[0] is scan and known[1] is text:
            return known[2]
        return self._read(scan, text)

    def _read(self, scan: Scan, text: str) -> tuple[Scan, Loop | None]:
        return loops.step(scan, text.translate(_ONE_DIGIT) if self._counts_on else text)

    def _find_stop(self, scan: Scan, text: str) -> int:
        """Find how much of a piece is read until it is known that the answer repeats itself."""
        at, loop = 0, None
        while loop is None and at < len(text):
            end = at + BLOCK - len(scan.fill)
            scan, loop = self._read(scan, text[at:end])
            at = end
        return min(at, len(text))

    def conclude(self, end: Finish) -> Finish:
        """Judge a repetition at the end of the answer: a runaway if it ran to its limit, whole if its tier ended it."""
        if self.loop is not None:
            return end
        if end.reason is FinishReason.LENGTH:
            written = self.text if self.text.seen.length or self.text.fill else self.reasoning
            self.loop = written.doubtful
            return end
        found = self.text.doubt.loop or self.calls.doubtful
        if found is None:
            return end
        return replace(end, notes=(*end.notes, _WHOLE.format(times=found.repetitions)))

    def describe_thought(self, end: Finish | Failed | None, judged: Judged | None) -> Thinking | None:
        """Describe its reasoning; None where there was none."""
        counted = end.usage.reasoning_tokens if end is not None and end.usage is not None else 0
        # From below: at least one token for each piece, and one for each five bytes.
        tokens = counted or max(self._thought_pieces, tokens_min(self._thought_bytes))
        told = end.thought if isinstance(end, Finish) else None
        if not tokens:
            return None
        answered = judged is not None and (judged.calls or judged.raw_text.strip())
        return Thinking(tokens=tokens, ended=told or (ThoughtEnd.MODEL if answered else None))

    def continue_text(self, begun: str) -> None:
        """Scan the text that the attempt continues, as if it had written that itself."""
        self.text, _ = self._read(self.text, begun)

    def restart_text(self) -> None:
        """Scan the text anew: the answer begins behind a mark of its reasoning."""
        self.text = self._open()

    @property
    def stopped_for_calls(self) -> bool:
        """Whether the answer was stopped since its calls repeated themselves."""
        return self.loop is not None and self.loop.kind is Kind.ANSWER_CALLS

    @property
    def stopped_in_arguments(self) -> bool:
        """Whether it was stopped since the arguments of a native call repeated themselves: then that is no call."""
        return self.calls.loop is not None and not self.stopped_for_calls
