"""A rule of a script as what happens, in order: a pure plan of script events.

A plan begins with `Started`, unless the rule breaks before anything is sent, and ends with exactly one `Finish` or
`Failed`, or in silence. A token is a run of up to six word characters, or one other character, with the white space
before it: plausible counts and speeds, the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, translate_complaint
from deployments.tiers.scripted.script import CallSpec, Pace, Rule, Script, ScriptStep, When
from deployments.tiers.stream_matchers import StopCut
from reliability.types import (
    CallDelta,
    ChatRequest,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Started,
    Text,
    Usage,
)

_TOKEN = re.compile(r"\s*\w{1,6}|\s*[^\w\s]|\s+")
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class _ScriptEvent:
    """Wait `delay_s`, then send `events`, if any. `hangs`: then nothing more happens, ever."""

    delay_s: float
    events: list[Event]
    hangs: bool = False


def _split_tokens(text: str, tokens_max: int | None = None) -> list[str]:
    return [match[0] for match in islice(_TOKEN.finditer(text), tokens_max)]


class Facts:
    """What a rule may ask about a request."""

    def __init__(self, request: ChatRequest, tier: str) -> None:
        self.request = request
        self.tier = tier

    @cached_property
    def last_user(self) -> str:
        return next((_read_text(m) for m in reversed(self.request.messages) if m.get("role") == "user"), "")

    @cached_property
    def tool_result(self) -> str | None:
        last = self.request.messages[-1] if self.request.messages else {}
        return _read_text(last) if last.get("role") in ("tool", "function") else None

    @cached_property
    def transcript(self) -> str:
        return "\n".join(_read_text(message) for message in self.request.messages)

    @cached_property
    def turn(self) -> int:
        """1 for the first answer of a conversation."""
        return 1 + sum(1 for message in self.request.messages if message.get("role") == "assistant")

    @cached_property
    def prompt_tokens(self) -> int:
        """The length of the prompt, four characters to a token."""
        given = [*(message.get("tool_calls") for message in self.request.messages), self.request.tools]
        chars = len(self.transcript) + sum(len(json.dumps(one, default=dict)) for one in given if one)
        return (chars + 3) // 4

    @cached_property
    def digest(self) -> str:
        """The same for the same content, whatever the request's id."""
        request = self.request
        asked = [request.messages, request.tools, request.tool_choice, request.response_format, request.seed]
        return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()

    def variable(self, name: str) -> str:
        known = {"last_user": self.last_user, "tool_result": self.tool_result or "", "tier": self.tier}
        return known.get(name, str(self.turn))


def fits(when: When, facts: Facts) -> bool:
    """Return whether all conditions hold."""
    return (
        (when.tier is None or when.tier == facts.tier)
        and (when.turn is None or when.turn == facts.turn)
        and (when.has_tools is None or when.has_tools == bool(facts.request.tools))
        and (when.last_user is None or when.last_user.fits(facts.last_user))
        and (when.tool_result is None or when.tool_result.fits(facts.tool_result))
        and (when.transcript is None or when.transcript.fits(facts.transcript))
    )


class Player:
    """Plays what happens when `rule` answers the request."""

    def __init__(self, script: Script, rule: Rule, facts: Facts) -> None:
        self._paces = (rule, script)
        self._rule = rule
        self._facts = facts
        self._sent_tokens = 0
        self._reasoning_tokens = 0  # of those sent
        self._calls = 0
        self._started = False
        self._finish: FinishReason | None = None  # set where the answer is cut short, but not broken
        self._stop: str | None = None  # the stop sequence that has cut it

    def play(self) -> Iterator[_ScriptEvent]:
        steps = self._rule.answer
        if not (steps and steps[0].breaks):
            self._started = True
            yield _ScriptEvent(self._rule.start_delay_s, [Started()])
        for step in steps:
            if step.breaks:
                late_s = 0.0 if self._started else self._rule.start_delay_s
                yield _ScriptEvent(late_s + step.delay_s, [self._build_break(step)])
                return
            if step.silence:
                yield _ScriptEvent(step.delay_s, [], hangs=True)
                return
            yield from self._play_content(step)
            if self._finish is not None:
                break
        cut = self._rule.cut_after_tokens is not None
        yield _ScriptEvent(0.0, [self._build_cut() if cut else self._build_finish()])

    def _play_content(self, step: ScriptStep) -> Iterator[_ScriptEvent]:
        if step.tool_call is not None:
            yield from self._play_call(step, step.tool_call)
        elif step.reasoning is not None:
            before = self._sent_tokens
            yield from self._send_text(step, self._fill(step.reasoning), Reasoning, step.delay_s)
            self._reasoning_tokens += self._sent_tokens - before
        elif step.refusal is not None:
            yield from self._send_text(step, self._fill(step.refusal), Refusal, step.delay_s)
        else:
            text = self._fill(step.text or "") if step.raw is None else step.raw
            cut = StopCut(self._facts.request.stop)
            text = cut.feed(text) + cut.flush()
            yield from self._send_text(step, text, Text, step.delay_s)
            if cut.found is not None and self._finish is None:
                self._finish, self._stop = FinishReason.STOP, cut.found

    def _play_call(self, step: ScriptStep, call: CallSpec) -> Iterator[_ScriptEvent]:
        if not self._cap_tokens(1):
            return
        index, self._calls = self._calls, self._calls + 1
        self._sent_tokens += 1  # the name
        call_id = call.id if call.id is not None else f"call_{self._facts.digest[:16]}{index}"
        yield _ScriptEvent(step.delay_s, [CallDelta(index=index, id=call_id, name=call.name)])
        is_text = isinstance(call.arguments, str)
        arguments = call.arguments if is_text else json.dumps(self._fill_deep(call.arguments), ensure_ascii=False)
        yield from self._send_text(step, arguments, lambda piece: CallDelta(index=index, arguments=piece), 0.0)

    def _send_text(
        self, step: ScriptStep, text: str, event: Callable[[str], Event], delay_s: float
    ) -> Iterator[_ScriptEvent]:
        tokens = _split_tokens(text, self._count_tokens_left() + 1)
        kept = tokens[: self._cap_tokens(len(tokens))]
        self._sent_tokens += len(kept)
        token_s = self._find_pace(step, "token_delay_s") or 0.0
        if not kept:
            yield _ScriptEvent(delay_s, [])
        for piece, count in self._split_chunks(step, kept):
            yield _ScriptEvent(delay_s + token_s * count, [event(piece)])
            delay_s = 0.0

    def _split_chunks(self, step: ScriptStep, tokens: list[str]) -> Iterator[tuple[str, float]]:
        chars = self._find_pace(step, "chunk_chars")
        if chars is None:
            size = int(self._find_pace(step, "chunk_tokens") or 1)
            for start in range(0, len(tokens), size):
                part = tokens[start : start + size]
                yield "".join(part), len(part)
            return
        text = "".join(tokens)
        for start in range(0, len(text), int(chars)):
            piece = text[start : start + int(chars)]
            yield piece, len(tokens) * len(piece) / len(text)

    def _count_tokens_left(self) -> int:
        bounds = (self._facts.request.max_tokens, self._rule.cut_after_tokens)
        return max(0, min(bound for bound in bounds if bound is not None) - self._sent_tokens)

    def _cap_tokens(self, wanted: int) -> int:
        """Return how many of `wanted` tokens may be sent; where that is fewer, the answer ends."""
        left = self._count_tokens_left()
        if left < wanted:
            self._finish = FinishReason.LENGTH
        return min(left, wanted)

    def _find_pace(self, step: ScriptStep, key: str) -> float | None:
        paces: tuple[Pace, ...] = (step, *self._paces)
        if key.startswith("chunk_"):  # the nearest pace that names chunks decides, in whatever unit
            paces = tuple(pace for pace in paces if pace.chunk_tokens or pace.chunk_chars)[:1]
        value: float | None = next((v for pace in paces if (v := getattr(pace, key)) is not None), None)
        return value

    def _fill(self, text: str) -> str:
        return _VARIABLE.sub(lambda match: self._facts.variable(match[1]), text)

    def _fill_deep(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._fill(value)
        if isinstance(value, Mapping):
            return {key: self._fill_deep(inner) for key, inner in value.items()}
        return list(map(self._fill_deep, value)) if isinstance(value, list) else value

    def _build_finish(self) -> Finish:
        reason = self._finish or self._rule.finish
        if reason is None:
            reason = FinishReason.TOOL_CALLS if self._calls else FinishReason.STOP
        usage = None if self._rule.no_usage else self._build_usage()
        return Finish(reason=reason, usage=usage, model=f"scripted/{self._facts.tier}", stop=self._stop)

    def _build_usage(self) -> Usage:
        sent, thought = self._sent_tokens, self._reasoning_tokens
        real = Usage(prompt_tokens=self._facts.prompt_tokens, completion_tokens=sent, reasoning_tokens=thought)
        return replace(real, **self._rule.usage.model_dump(exclude_none=True))

    def _build_cut(self) -> Failed:
        return self._build_failed(Fault.CRASHED, "broke off: the connection was cut")

    def _build_break(self, step: ScriptStep) -> Failed:
        if step.status is not None:
            told = UpstreamComplaint(status=step.status, message=step.message or "", code=step.code, param=step.param)
            wait_s, usage = step.retry_after_s, self._find_spent()
            return translate_complaint(self._facts.tier, told, retry_after_s=wait_s, usage=usage)
        if step.cut:
            return self._build_cut()
        if step.unavailable is not None:
            fault, words = Fault.UNAVAILABLE, f"is unavailable: {step.unavailable}"
        elif step.loading is not None:
            fault, words = Fault.LOADING, "is loading" + ("" if step.loading is True else f": {step.loading}")
        else:
            fault = step.fault or Fault.SERVER_ERROR
            words = step.message or f"failed: {fault.value}"
        return replace(self._build_failed(fault, words), retry_after_s=step.retry_after_s, param=step.param)

    def _build_failed(self, fault: Fault, words: str) -> Failed:
        return Failed(fault=fault, message=f"tier {self._facts.tier} {words}", usage=self._find_spent())

    def _find_spent(self) -> Usage | None:
        return self._build_usage() if self._started else None


def _read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
