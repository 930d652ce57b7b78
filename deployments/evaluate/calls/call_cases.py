"""Function-calling cases, drawn from a seed: the same seed gives the same cases on every machine.

    one tool       a request, and the tool that it needs
    several tools  the same, among all tools, in one order (so a prompt cache has read them once)
    conversation   earlier turns; then one more request, or one that needs an earlier result
    no tool        a request, and tools that are all for something else

In each case one call is right; in the last kind, none. `""` among an argument's values means that the argument may be
missing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reliability.answer.estimate import prompt_bytes

CITIES = ("Paris", "Oslo", "Lisbon", "Nairobi", "Toronto", "Kyoto", "Quito", "Dublin", "Hanoi", "Perth")
_PEOPLE = ("Ann", "Boris", "Chiara", "Deepak", "Elif", "Femi", "Greta", "Hugo")
WORDS = ("invoice", "timeout", "password", "deprecated", "rollback", "checksum", "quota", "handshake")
FOLDERS = ("src", "docs", "tests", "config", "scripts")


def declare_tools(path: Path) -> dict[str, dict[str, Any]]:
    """Declare the tools of a YAML file, by name; an argument with `optional` isn't required."""
    found = {}
    for name, properties in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        words, optional = properties.pop("does"), {key for key in properties if properties[key].pop("optional", False)}
        required = [key for key in properties if key not in optional]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        found[name] = {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}
    return found


TOOLS = declare_tools(Path(__file__).with_name("call_tools.yaml"))
_CURRENCIES = TOOLS["convert_currency"]["function"]["parameters"]["properties"]["source"]["enum"]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What is asked for, and the call that is right: each argument with the values that count."""

    words: str
    tool: str
    arguments: Mapping[str, list[Any]]


_ASKED = (
    *("get_weather", "convert_currency", "search_files", "send_message"),
    *("set_alarm", "triangle_area", "create_ticket", "book_room"),
)


def _draw_request(dice: random.Random) -> _Drawn:
    tool = dice.choice(_ASKED)
    match tool:
        case "get_weather":
            city, days = dice.choice(CITIES), dice.randint(2, 7)
            if dice.random() < 0.5:
                return _Drawn(f"What will the weather be in {city}?", tool, {"city": [city], "days": ["", 1]})
            words = f"Show me the forecast for {city} for the next {days} days."
            return _Drawn(words, tool, {"city": [city], "days": [days]})
        case "convert_currency":
            amount, (source, target) = dice.randint(5, 900), dice.sample(_CURRENCIES, 2)
            words = f"How much is {amount} {source} in {target}?"
            return _Drawn(words, tool, {"amount": [amount], "source": [source], "target": [target]})
        case "search_files":
            word, folder = dice.choice(WORDS), dice.choice(FOLDERS)
            words = f"Which files in the folder {folder} contain the word {word}?"
            return _Drawn(words, tool, {"pattern": [word], "folder": [folder, f"{folder}/", f"./{folder}"]})
        case "send_message":
            names = dice.sample(_PEOPLE, dice.randint(1, 2))
            text = dice.choice(("Lunch at noon", "The build is green", "I am late", "Call me back"))
            words = f'Send the message "{text}" to {" and ".join(names)}.'
            return _Drawn(words, tool, {"to": [names, names[::-1]], "text": [text]})
        case "set_alarm":
            hour, minute = dice.randint(5, 22), dice.choice((0, 10, 15, 30, 45))
            return _Drawn(f"Set an alarm for {hour:02d}:{minute:02d}.", tool, {"hour": [hour], "minute": [minute]})
        case "triangle_area":
            base, height = dice.randint(2, 60), dice.randint(2, 60)
            words = f"A triangle has a base of {base} and a height of {height}. What is its area?"
            return _Drawn(words, tool, {"base": [base], "height": [height]})
        case "create_ticket":
            title = dice.choice(("Printer is broken", "Login page is slow", "Add a dark theme", "Fan is noisy"))
            priority = dice.choice(("low", "normal", "high"))
            words = f'Open a ticket titled "{title}" with {priority} priority.'
            return _Drawn(words, tool, {"title": [title], "priority": [priority]})
        case _:
            size, hour = dice.randint(2, 20), dice.randint(8, 17)
            day = f"2027-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}"
            words = f"Book a room for {size} people on {day} at {hour}:00."
            return _Drawn(words, tool, {"size": [size], "slot": [{"day": day, "hour": hour}]})


NO_TOOL = "no tool"
CATEGORIES = ("one tool", "several tools", "conversation", NO_TOOL)
UNFIT = 3  # tools of a case where none is wanted
_REASONS = {"late": "it is late", "damaged": "it arrived damaged", "unwanted": "I don't want it any more"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCase:
    """One case. `tool`: the one that is wanted, "" where none is. `arguments` has, for each argument, the values that
    count as right; `""` means that it may be missing."""

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
    earlier: list[Mapping[str, Any]] = []
    if category == "conversation":
        earlier, drawn = _draw_conversation(dice)
    else:
        drawn = _draw_request(dice)
    tools = [drawn.tool] if category == "one tool" else list(TOOLS)
    if category == NO_TOOL:
        tools = dice.sample([name for name in TOOLS if name != drawn.tool], UNFIT)
        drawn = _Drawn(drawn.words, "", {})
    return CallCase(
        id=f"{category.replace(' ', '-')}-{seed}-{number}",
        category=category,
        messages=(*earlier, {"role": "user", "content": drawn.words}),
        tools=tuple(TOOLS[one] for one in tools),
        tool=drawn.tool,
        arguments=drawn.arguments,
    )


def _draw_conversation(dice: random.Random) -> tuple[list[Mapping[str, Any]], _Drawn]:
    """Draw one or two earlier turns, and the last request; in half of them it needs what a result has shown."""
    messages: list[Mapping[str, Any]] = []
    for number in range(dice.randint(1, 2)):
        drawn = _draw_request(dice)
        messages += _write_turn(drawn, f"call_{number}", {"status": "ok", "value": dice.randint(2, 99)})
    if dice.random() < 0.5:
        order, reason = f"A-{dice.randint(1000, 9999)}", dice.choice(sorted(_REASONS))
        shown = _Drawn("Which order is open?", "get_order", {"order_id": ["latest"]})
        messages += _write_turn(shown, "call_8", {"order_id": order, "state": "open"})
        words = f"Cancel it, please: {_REASONS[reason]}."
        return messages, _Drawn(words, "cancel_order", {"order_id": [order], "reason": [reason]})
    return messages, _draw_request(dice)


def _write_turn(drawn: _Drawn, call_id: str, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    arguments = {key: values[0] for key, values in drawn.arguments.items() if values[0] != ""}
    function = {"name": drawn.tool, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "user", "content": drawn.words},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)},
        {"role": "assistant", "content": f"Done: {', '.join(f'{key} {value}' for key, value in result.items())}."},
    ]
