"""Tiers that do what their dice say: good answers in every dress, flaws, faults, silence."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from reliability.types import (
    CallDelta,
    ChatRequest,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Reasoning,
    Started,
    Text,
    TierState,
    TierStatus,
    Usage,
)
from tests.support.renderings import tool

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (tool("get_weather", PARAMETERS),)
# What a call may come to, good first. Swarm: a world switches many of the others off, and draws weights for the rest.
GOOD = ("text", "call", "call_in_text", "bare_call", "fenced_call", "text_and_call", "thought")
NATIVE = (
    "call", "text_and_call", "text_and_bad_call", "announced", "invented", "wrong_type", "same_calls", "repeat",
    "text_and_repeat",
)  # fmt: skip
BAD = (
    "malformed", "invented", "wrong_type", "cut_call", "text_and_bad_call", "empty", "announced", "chant", "blank",
    "same_calls", "repeat", "text_and_repeat",
    "no_start", "crash", "cut", "stall", "hang", "slow", "throttled", "error", "unavailable",
    "loading", "too_long", "auth", "no_end", "wrong_request",
)  # fmt: skip


@dataclass
class SimTier:
    """One tier of a world. `weights` are those of `BAD`; what is left of 1 is good."""

    name: str
    rng: random.Random
    weights: dict[str, float]
    calls: int = 0
    active: int = 0
    healed: bool = False
    trace: Callable[[str], None] = field(default=lambda _: None, repr=False)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer one call. Every text and every argument carries the number of the call that wrote it."""
        self.calls += 1
        mark = f"{self.name}{self.calls}"
        act = self._draw(bool(request.tools))
        self.trace(f"{self.name} call {self.calls} {act}")
        self.active += 1
        try:
            async for batch in Play(self.rng, mark, request).play(act):
                yield batch
        finally:
            self.active -= 1

    async def status(self) -> TierStatus:
        return TierStatus(name=self.name, kind="sim", state=TierState.READY)

    async def close(self) -> None:
        """Nothing to free."""

    def _draw(self, tools: bool) -> str:
        bad = {} if self.healed else self.weights
        drawn = self.rng.random()
        for act, weight in bad.items():
            drawn -= weight
            if drawn < 0:
                return act
        return self.rng.choice(GOOD if tools else ("text", "thought"))


class Play:
    """How one call goes."""

    def __init__(self, rng: random.Random, mark: str, request: ChatRequest) -> None:
        self.rng, self.mark, self.request = rng, mark, request
        self.call = {"name": "get_weather", "arguments": {"city": f"City of {mark}"}}

    async def play(self, act: str) -> AsyncGenerator[list[Event], None]:
        if act in STATUS:
            await asyncio.sleep(0.001)
            yield [STATUS[act]]
            return
        if act == "no_start":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.rng.random() * 0.05)
        yield [Started()]
        await asyncio.sleep(200.0 if act == "slow" else self.rng.random())
        if act == "hang":
            await asyncio.get_running_loop().create_future()
        if act == "crash":
            yield [Failed(fault=Fault.CRASHED, message="crashed")]
            return
        for events in self._pieces(act):
            await asyncio.sleep(self.rng.random() * 0.1)
            yield events
        if act == "stall":
            await asyncio.get_running_loop().create_future()
        if act == "cut":
            yield [Failed(fault=Fault.CRASHED, message="cut")]
        elif act != "no_end":
            yield [self._finish(act)]

    def _finish(self, act: str) -> Finish:
        reason = FinishReason.TOOL_CALLS if act in NATIVE else FinishReason.STOP
        if act == "cut_call":
            reason = FinishReason.LENGTH
        usage = Usage(prompt_tokens=self.rng.randrange(10, 200), completion_tokens=self.rng.randrange(1, 100))
        return Finish(reason=reason, usage=None if self.rng.random() < 0.1 else usage)

    def _pieces(self, act: str) -> list[list[Event]]:
        written = json.dumps(self.call)
        prose = f"Well, {self.mark} says: let me see. "
        texts = {
            "call_in_text": f"<tool_call>\n{written}\n</tool_call>",
            "bare_call": written,
            "fenced_call": f"```json\n{written}\n```",
            "malformed": f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{self.mark}</tool_call>',
            "cut_call": f"{prose}<tool_call>{written[: self.rng.randrange(5, len(written) - 5)]}",
            "empty": " ",
            "announced": "",
            "blank": " \n" * 400,
            "chant": prose * 400,
            "stall": prose,
            "cut": prose,
            "no_end": prose,
        }
        native = {
            "call": [self.call],
            "text_and_call": [self.call],
            "invented": [{"name": "get_wether_data", "arguments": {"city": self.mark}}],
            "wrong_type": [{"name": "get_weather", "arguments": {"city": 5}}],
            "text_and_bad_call": [{"name": "get_weather", "arguments": "{"}],
            "same_calls": [self.call] * 5,
            "repeat": [self._last_call()],
            "text_and_repeat": [self._last_call()],
        }
        out: list[list[Event]] = []
        if act == "thought":
            out.append([Reasoning(f"{self.mark} thinks. ")])
        if act in native:
            if act.startswith("text_and"):
                out += self._cut(prose)
            return out + [self._delta(i, call) for i, call in enumerate(native[act])]
        return out + self._cut(texts.get(act, f"{prose}It is {self.mark} degrees."))

    def _last_call(self) -> dict[str, object]:
        """What the agent did last: the looping model does it again."""
        for message in reversed(self.request.messages):
            for call in message.get("tool_calls") or ():
                return {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        return self.call

    def _cut(self, text: str) -> list[list[Event]]:
        out: list[list[Event]] = []
        while text:
            size = self.rng.randrange(1, 40) if len(text) < 1000 else 400
            out.append([Text(text[:size])])
            text = text[size:]
        return out

    def _delta(self, index: int, call: dict[str, object]) -> list[Event]:
        arguments = call["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        half = self.rng.randrange(len(text) + 1)
        return [
            CallDelta(index=index, id=f"id-{self.mark}", name=str(call["name"]), arguments=text[:half]),
            CallDelta(index=index, arguments=text[half:]),
        ]


STATUS = {
    "throttled": Failed(fault=Fault.OVERLOADED, message="full", retry_after_s=7.0, status=429),
    "error": Failed(fault=Fault.SERVER_ERROR, message="500", status=500),
    "unavailable": Failed(fault=Fault.UNAVAILABLE, message="no model"),
    "loading": Failed(fault=Fault.LOADING, message="loading", retry_after_s=5.0),
    "too_long": Failed(fault=Fault.CONTEXT_LENGTH, message="too long"),
    "auth": Failed(fault=Fault.AUTH, message="401", status=401),
    "wrong_request": Failed(fault=Fault.BAD_REQUEST, message="400", status=400),
}
