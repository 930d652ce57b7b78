"""An agent as people write them: it asks, runs the tool that it is told to, and asks again with the result.

Only the standard part of the protocol is used, so what helps this agent helps every agent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_asking import WEATHER_TOOLS, Outcome, ask, user
from tests.support.serving import Server


@dataclass
class Agent:
    """One conversation. `tool`: the result of a call, by the number of the lap (from 1)."""

    server: Server
    task: str
    stream: bool
    tool: Callable[[int], str] = lambda _: "It rains."
    options: dict[str, Any] = field(default_factory=dict)
    laps: list[Outcome] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages += user(self.task)

    def lap(self) -> Outcome:
        outcome = ask(self.server, self.messages, stream=self.stream, tools=WEATHER_TOOLS, **self.options)
        self.laps.append(outcome)
        if outcome.choice is not None:
            said = outcome.choice.message
            calls = [{"id": c.id, "type": "function", "function": _function(c)} for c in said.tool_calls or []]
            self.messages.append(
                {"role": "assistant", "content": said.content} | ({"tool_calls": calls} if calls else {})
            )
            results = [{"role": "tool", "tool_call_id": c["id"], "content": self.tool(len(self.laps))} for c in calls]
            self.messages += results
        return outcome

    def run(self, laps_max: int) -> list[Outcome]:
        """Laps until there is no call in the answer, or so many."""
        for _ in range(laps_max):
            if not self.lap().calls:
                break
        return self.laps

    def say(self, text: str) -> Outcome:
        self.messages += user(text)
        return self.lap()


def _function(call: Any) -> dict[str, str]:
    return {"name": call.function.name, "arguments": call.function.arguments}
