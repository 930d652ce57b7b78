"""Hold the thought of a hosted answer to its budget. An upstream that thinks beyond it, or in circles, is left, and the
same one is asked for the answer. So is one whose tokens have all gone into its thought.

    prefill   the thought stands in the text, and the upstream goes on behind a prefill: that is the thought, closed
    off       else: the same request, with thinking switched off in the fields that the upstream may know

Here a chunk of one word is one token, and of more words five characters are: hardly more than there are. A thought is
left `OVER_TOKENS` behind its budget, so one that ends within its budget ends by itself.

Invariants:
- An answer that has begun is never left; one that isn't left passes as it came.
- One more answer is asked for. An upstream that thinks too long again ends its answer without a word, which is a flaw.
- An answer that its tokens have ended is whole. If nothing more is said behind it, it ends as it did.
- What both requests have cost is reported as one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from deployments.tiers.hosted.continuing import Continues, ask_to_go_on, ask_without_thought
from deployments.tiers.thought_watch import ThoughtWatch
from reliability.answer.estimate import PIECE_CHARS_MAX
from reliability.answer.thoughts import Thoughts
from reliability.faults import TRAITS, Ran
from reliability.thinking import ThoughtEnd, leave_room
from reliability.tools.format_reasoning import MESSAGES, REASONING, compile_ends
from reliability.tools.formats import compile_any
from reliability.types import (
    CallDelta,
    ChatRequest,
    Counted,
    Event,
    Failed,
    Finish,
    FinishReason,
    Logprobs,
    Reasoning,
    Refusal,
    Started,
    Text,
    TokenLogprob,
    Usage,
)

OVER_TOKENS = 32  # half of the 64 within which a model is made to answer: a chunk may hold the other half
_CHARS_PER_TOKEN = 5
_OPENER_CHARS_MAX = 160
_OPENERS = [(row, compile_any(row.opens)) for row in (*REASONING, *MESSAGES)]


def _find_closer(thought: str) -> str:
    head = thought.lstrip()[:_OPENER_CHARS_MAX]
    for row, opens in _OPENERS:
        if found := opens.match(head):
            marks = [re.sub(r"\\(.)", r"\1", mark) for mark in (*row.closes, *row.until)]
            marks.insert(0, f"{found[0][0]}/{found[0][1:]}")
            return next((mark for mark in marks if compile_ends(row).fullmatch(mark)), "")
    return ""


@dataclass(slots=True)
class ThoughtBound:
    """The thought of one upstream answer, as it comes. `tokens_max`: its budget; None where it has none. `ended`: why
    the upstream is left. `whole`: how the upstream has ended by itself, within its thought."""

    tokens_max: int | None
    ended: ThoughtEnd | None = None
    whole: Finish | None = None
    _watch: ThoughtWatch = field(default_factory=ThoughtWatch)
    _thoughts: Thoughts = field(default_factory=Thoughts)
    _text: list[str] = field(default_factory=list)
    _words: int = 0  # chunks that may be one token
    _chars: int = 0  # of the other chunks
    _answered: bool = False

    def note(self, events: Sequence[Event]) -> ThoughtEnd | None:
        """Note the events of one chunk; return why the upstream is to be left now, if it is."""
        for event in events:
            if not self._answered:
                self._note(event)
        self.ended = None if self._answered else self._find_end()
        return self.ended

    def note_end(self, end: Event) -> None:
        """Note how the upstream has ended: within its thought, where that has taken all tokens."""
        thinks = self.tokens > 0 and not self._answered and self._can_close
        if self.ended is None and thinks and isinstance(end, Finish) and end.reason is FinishReason.LENGTH:
            self.ended, self.whole = ThoughtEnd.BUDGET, end

    def _note(self, event: Event) -> None:
        parts = self._thoughts.split(event)
        if isinstance(event, Text):
            self._text.append(event.text)
        if isinstance(event, Reasoning) or (isinstance(event, Text) and self._thoughts.thinking):
            self._watch.note((Reasoning(event.text),))
            one_word = len(event.text) <= PIECE_CHARS_MAX and " " not in event.text.strip()
            self._words += one_word
            self._chars += 0 if one_word else len(event.text)
        else:
            self._answered = any(isinstance(part, Text | CallDelta | Refusal) for part in parts)

    def _find_end(self) -> ThoughtEnd | None:
        over = self.tokens_max is not None and self.tokens >= self.tokens_max + OVER_TOKENS
        if not (over or self._watch.circles) or not self._can_close:
            return None
        return ThoughtEnd.BUDGET if over else ThoughtEnd.CIRCLING

    @property
    def _can_close(self) -> bool:
        return not self._thoughts.thinking or bool(_find_closer(self.text))

    @property
    def tokens(self) -> int:
        """How many it has, from below."""
        return self._words + self._chars // _CHARS_PER_TOKEN

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def closing(self) -> str:
        """Return what closes a thought that stands in the text; empty where it came apart from it."""
        return f"\n{_find_closer(self.text)}\n\n" if self._thoughts.thinking else ""


Ask = Callable[[ChatRequest, ThoughtBound], AsyncGenerator[list[Event], None]]


async def hold_to_budget(
    request: ChatRequest, ask: Ask, continues: Continues, *, openrouter: bool
) -> AsyncGenerator[list[Event], None]:
    """Pass on what the upstream answers, and what it answers behind a thought that was ended."""
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + request.timeout_s
    bound, spent = ThoughtBound(request.thinking_tokens_max), Usage()
    async with aclosing(ask(request, bound)) as answer:
        async for events in answer:
            if leave_room(request.max_tokens):
                bound.note_end(events[-1])
            left = isinstance(events[-1], Finish) and bound.ended is not None
            for event in events:
                if isinstance(event, Counted | Finish) and event.usage is not None:
                    spent = event.usage
            if out := events[:-1] if left else events:
                yield out
    if bound.ended is None:
        return
    if closing := _close(bound, request):
        yield closing
    ways = list(_list_ways(request, bound, continues, openrouter))
    for way in ways:
        prefilled = len(way.messages) > len(request.messages)
        second, more = ThoughtBound(request.thinking_tokens_max), way is not ways[-1]
        rest = _Rest(request, bound, second, spent, prefilled=prefilled)
        again = replace(way, timeout_s=max(0.0, deadline_s - now_s()))
        async with aclosing(ask(again, second)) as answer:
            async for events in answer:
                if more and rest.refuses(events):
                    break
                if out := rest.take(events):
                    yield out
            else:
                return


def _close(bound: ThoughtBound, request: ChatRequest) -> list[Event]:
    if not bound.closing:
        return []
    closing: list[Event] = [Text(bound.closing)]
    if request.top_logprobs is not None:  # tokens spell the text
        closing.append(Logprobs((TokenLogprob(bound.closing.encode(), 0.0),)))
    return closing


def _list_ways(
    request: ChatRequest, bound: ThoughtBound, continues: Continues, openrouter: bool
) -> Iterator[ChatRequest]:
    left = max(1, request.max_tokens - bound.tokens, leave_room(request.max_tokens))
    request = replace(request, max_tokens=left)
    if continues == "prefill" and bound.closing.startswith("/", 2):  # others' answers have an opener of their own
        yield ask_to_go_on(replace(request, begun=bound.text + bound.closing), "prefill")
    if not openrouter:
        yield ask_without_thought(request, switches=True)
    yield ask_without_thought(request, named=not openrouter)


class _Rest:
    """What comes behind a thought that was ended (`first`): the answer, without its own thought (`second`). `spent`:
    what was counted until then; `prefilled`: the first thought is part of the prompt."""

    def __init__(
        self, request: ChatRequest, first: ThoughtBound, second: ThoughtBound, spent: Usage, *, prefilled: bool
    ) -> None:
        # With the tokens of a text, no piece of it can be left out.
        self._thoughts = Thoughts(begun=request.top_logprobs is not None)
        self._first, self._second, self._spent = first, second, spent
        self._prefilled_tokens = first.tokens if prefilled else 0
        self._counted = Usage()
        self._begun = self._said = False

    def refuses(self, events: Sequence[Event]) -> bool:
        last = events[-1]
        return not self._begun and isinstance(last, Failed) and TRAITS[last.fault].ran is Ran.IF_STARTED

    def take(self, events: Sequence[Event]) -> list[Event]:
        """Return what of these events goes to the client."""
        out: list[Event] = []
        for event in events:
            match event:
                case Counted(usage=usage):
                    self._counted = usage
                    out.append(Counted(self._add(usage)))
                case Finish() | Failed():
                    out += self._hear(self._thoughts.end())
                    out.append(self._end(event))
                case _:
                    out += self._hear(self._thoughts.split(event))
        out = [event for event in out if not isinstance(event, Started | Reasoning)]
        self._begun = self._begun or bool(out)
        return out

    def _hear(self, events: Sequence[Event]) -> Sequence[Event]:
        for event in events:
            said = event.text.strip() if isinstance(event, Text) else isinstance(event, CallDelta | Refusal)
            self._said = self._said or bool(said)
        return events

    def _end(self, event: Finish | Failed) -> Finish | Failed:
        usage, whole = event.usage or self._counted, self._first.whole
        if whole is not None and not self._said:
            return whole if usage == Usage() else replace(whole, usage=self._add(usage))
        event = replace(event, usage=self._add(usage))
        return replace(event, thought=self._first.ended) if isinstance(event, Finish) else event

    def _add(self, usage: Usage) -> Usage:
        """Add what the thought has cost. Its prompt was the answer's, without the prefill."""
        spent, prompt_tokens = self._spent, max(0, usage.prompt_tokens - self._prefilled_tokens)
        reasoning_tokens = spent.reasoning_tokens or self._first.tokens
        reasoning_tokens += usage.reasoning_tokens or self._second.tokens
        return Usage(
            prompt_tokens=usage.prompt_tokens + (spent.prompt_tokens or prompt_tokens),
            completion_tokens=usage.completion_tokens + spent.completion_tokens,
            cached_tokens=usage.cached_tokens + spent.cached_tokens,
            reasoning_tokens=reasoning_tokens,
            exact=False,
        )
