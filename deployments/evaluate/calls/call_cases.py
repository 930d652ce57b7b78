"""Function-calling cases, drawn from a seed: the same seed gives the same cases, on every machine.

    one tool       a request, and the tool that it needs
    several tools  the same, among all others
    conversation   earlier questions, calls and results; then one more, or one that needs what a result has shown

One call is right in each. Where there are several tools they are all of them in one order, as an agent sends the same
ones with each request: so a server that keeps prompts has read them once. A case's features (tools, length, turns) are
what the learned chain may start by.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.evaluate.calls.call_recipes import RECIPES, TOOLS, Drawn
from reliability.answer.estimate import prompt_bytes

__all__ = ["CATEGORIES", "CallCase", "draw_cases"]

CATEGORIES = ("one tool", "several tools", "conversation")
REASONS = {"late": "it is late", "damaged": "it arrived damaged", "unwanted": "I don't want it any more"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCase:
    """One case. `arguments` has, for each argument, the values that count as right; `""` means that it may be
    missing."""

    id: str
    category: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    tool: str
    arguments: Mapping[str, list[Any]]

    @property
    def features(self) -> dict[str, int]:
        """What the server knows of the request before anybody has answered it."""
        size = prompt_bytes(self.messages, self.tools)
        return {"tools": len(self.tools), "prompt_bytes": size, "messages": len(self.messages)}


def draw_cases(seed: int, count: int) -> list[CallCase]:
    """Draw the cases, the categories in turn: any number of first ones holds about as many of each."""
    return [_draw(seed, number) for number in range(count)]


def _draw(seed: int, number: int) -> CallCase:
    # Each case has dice of its own: a longer sample begins with the shorter one.
    dice = random.Random(f"{seed}/{number}")
    category = CATEGORIES[number % len(CATEGORIES)]
    name = f"{category.replace(' ', '-')}-{seed}-{number}"
    if category == "conversation":
        return _draw_conversation(dice, name)
    drawn = dice.choice(RECIPES)(dice)
    tools = [drawn.tool]
    if category == "several tools":
        tools = list(TOOLS)
    return CallCase(
        id=name,
        category=category,
        messages=({"role": "user", "content": drawn.words},),
        tools=tuple(TOOLS[one] for one in tools),
        tool=drawn.tool,
        arguments=drawn.arguments,
    )


def _draw_conversation(dice: random.Random, name: str) -> CallCase:
    """Draw a conversation of one or two earlier turns; in half of them the last call needs what a result has shown."""
    messages: list[Mapping[str, Any]] = []
    for number in range(dice.randint(1, 2)):
        drawn = dice.choice(RECIPES)(dice)
        messages += _write_turn(drawn, f"call_{number}", {"status": "ok", "value": dice.randint(2, 99)})
    if dice.random() < 0.5:
        order, reason = f"A-{dice.randint(1000, 9999)}", dice.choice(sorted(REASONS))
        shown = Drawn("Which order is open?", "get_order", {"order_id": ["latest"]})
        messages += _write_turn(shown, "call_8", {"order_id": order, "state": "open"})
        words = f"Cancel it, please: {REASONS[reason]}."
        last = Drawn(words, "cancel_order", {"order_id": [order], "reason": [reason]})
    else:
        last = dice.choice(RECIPES)(dice)
    messages.append({"role": "user", "content": last.words})
    return CallCase(
        id=name,
        category="conversation",
        messages=tuple(messages),
        tools=tuple(TOOLS.values()),
        tool=last.tool,
        arguments=last.arguments,
    )


def _write_turn(drawn: Drawn, call_id: str, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Write a turn that went right: the question, the call, its result and the answer."""
    arguments = {key: values[0] for key, values in drawn.arguments.items() if values[0] != ""}
    function = {"name": drawn.tool, "arguments": json.dumps(arguments)}
    return [
        {"role": "user", "content": drawn.words},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)},
        {"role": "assistant", "content": f"Done: {', '.join(f'{key} {value}' for key, value in result.items())}."},
    ]
