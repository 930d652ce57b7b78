"""The record of one request, from its arrival to its end: `drive` writes to it, everybody else reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deployments.request.attempt import AttemptState
from reliability.admission.request import Load
from reliability.answer.judgement import Expected, Judged
from reliability.attempt import Attempt
from reliability.context_edits import Cleared
from reliability.escalation.decisions import Limits, Refuse
from reliability.escalation.policies import reason_of
from reliability.loops import Loop
from reliability.memory.pressure import Level
from reliability.summaries import Compaction, end_summary
from reliability.types import ChatRequest, Event, Fault, Finish, FinishReason, Hold, Reason, Reasoning, Text, Usage

NOTHING_YET = Usage(exact=False)


@dataclass(slots=True, kw_only=True)
class Run:
    """The record of one request. `chain` begins with the tier it starts at; `deadline_ns` is a moment of the clock.
    `tier`: that answers, or was asked last. At the end `finish` or `refusal` is set; neither where the client left.
    `judgements` stand beside `attempts`, None where there was no complete answer; `judged`: the last one, at the end
    the answer's. `loop`: that the request was found in. `stays`: why the request may not leave the machine.
    `prompt_bytes`: of what a model reads of `request`. `notes`: what was asked for and has no effect here. `counted`:
    the tokens that the answering tier has counted; `current`: the attempt that ran last. `delivered`, `reasoning`: the
    pieces that have left for the client, without the circles that another attempt has gone on behind;
    `delivered_chars`: with them; `thinker`: the attempt that thought last. `warnings`: the budget's windows that are
    nearly full; `level`: the cluster's memory level; `silent`: a call ran without a grant. `compaction`: when a summary
    is to stand for the conversation; `summary`: the one that does; `summarized`: what it took. `edited`: what the
    client's edits have cleared. `whole`: the messages before they were shortened; `shortened`: how many results were
    left out, in the last of so many `shortenings`; `passed_over`: the attempts before. `loader`: the tool behind which
    tiers may defer tools, "" where they can't, None until one asks; `loaded`: its calls and results, as messages."""

    request: ChatRequest
    expected: Expected
    chain: tuple[str, ...]
    limits: Limits
    deadline_ns: int
    key: str = ""
    hold: Hold = Hold.TOOL_CALLS
    stays: str = ""
    prompt_bytes: int = 0
    notes: tuple[str, ...] = ()
    attempts: list[Attempt] = field(default_factory=list)
    judgements: list[Judged | None] = field(default_factory=list)
    tier: str | None = None
    judged: Judged | None = None
    loop: Loop | None = None
    warnings: tuple[Load, ...] = ()
    level: Level = Level.UNKNOWN
    silent: bool = False
    counted: Usage = NOTHING_YET
    current: AttemptState | None = None
    delivered: list[str] = field(default_factory=list)
    delivered_chars: int = 0
    reasoning: list[str] = field(default_factory=list)
    thinker: int = -1
    edited: Sequence[Cleared] = ()
    compaction: Compaction | None = None
    summary: str = ""
    summarized: Usage = NOTHING_YET
    whole: tuple[Mapping[str, Any], ...] = ()
    shortened: int = 0
    shortenings: int = 0
    passed_over: int = 0
    loader: str | None = None
    loaded: tuple[Mapping[str, Any], ...] = ()
    finish: Finish | None = None
    refusal: Refuse | None = None

    def note_out(self, events: Sequence[Event]) -> None:
        """Write down what leaves for the client."""
        texts = [event.text for event in events if isinstance(event, Text)]
        self.delivered += texts
        self.delivered_chars += sum(map(len, texts))
        self.reasoning += [event.text for event in events if isinstance(event, Reasoning)]

    def part_thoughts(self, events: Sequence[Event], attempt: int | None = None) -> list[Event]:
        """Mark where the thought of one attempt begins behind another's. `attempt`: whose it is, the next one's if not
        said."""
        first = next((event for event in events if isinstance(event, Reasoning)), None)
        if first is None:
            return list(events)
        number = len(self.attempts) if attempt is None else attempt
        behind = bool(self.reasoning) and self.thinker != number
        self.thinker = number
        return [replace(event, anew=True) if behind and event is first else event for event in events]

    def end_summary(self, events: list[Event]) -> list[Event]:
        """Complete a summary that the client ordered. One that was cut isn't continued."""
        if self.expected.ordered is None or self.finish is None or self.judged is None:
            return events
        events = end_summary(events, self.expected.ordered)
        self.judged = replace(self.judged, events=tuple(events))
        if self.finish.reason is FinishReason.LENGTH:
            self.finish = replace(self.finish, reason=FinishReason.STOP)
        return events

    def count_answer(self, number: int, finish: Finish) -> Finish:
        """Count all of an answer of which this attempt wrote the end: the completions whose text stands, and the prompt
        alone."""
        wrote = [one for at, one in enumerate(self.attempts) if one.text_out or at == number]
        counts = [one.usage for one in wrote if one.usage is not None]
        if self.attempts[number].seam is None or finish.usage is None or not counts:
            return finish
        usage = replace(
            min(counts, key=lambda count: count.prompt_tokens),
            completion_tokens=sum(count.completion_tokens for count in counts),
            reasoning_tokens=sum(count.reasoning_tokens for count in counts),
            exact=all(count.exact for count in counts),
        )
        return replace(finish, usage=usage)

    @property
    def escalation(self) -> tuple[str, Reason] | None:
        """The tier that the request started at and why it left it, or None where it is still there."""
        started_at = self.chain[0]
        if self.tier in (None, started_at):
            return None
        left = [a for a in self.attempts if a.tier == started_at]
        # That no second call was left for the tier says when it was left; what was wrong with its answer says why.
        causes = [a for a in left if a.fault is not Fault.RETRY_BUDGET] or left
        return started_at, reason_of(causes[-1])

    @property
    def retries(self) -> int:
        """Calls to tiers beyond the first that really ran."""
        return max(0, sum(1 for a in self.attempts if a.ran) - 1)
