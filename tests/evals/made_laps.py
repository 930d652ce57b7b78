"""Loops made from a run: some of its turns once more, with other ids, another key order and meters in their results."""

import json
import random
import uuid
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Run = dict[str, Any]
Meter = Callable[[str, random.Random, int], str]


def _in_json(field: str, value: Callable[[random.Random, int], Any]) -> Meter:
    def add(text: str, dice: random.Random, lap: int) -> str:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = text
        body = dict(parsed) if isinstance(parsed, dict) else {"result": parsed}
        items = [*body.items(), (field, value(dice, lap))]
        dice.shuffle(items)
        return json.dumps(dict(items))

    return add


def _in_text(template: str, value: Callable[[random.Random, int], Any]) -> Meter:
    return lambda text, dice, lap: template.format(text=text, value=value(dice, lap))


def _moment(dice: random.Random, lap: int) -> str:
    day, hour, second = dice.randint(1, 28), dice.randint(0, 23), dice.randint(0, 59)
    return f"2026-03-{day:02}T{hour:02}:{lap:02}:{second:02}.{lap:03}Z"


def _uuid(dice: random.Random, lap: int) -> str:
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))


def _clock(dice: random.Random, lap: int) -> str:
    return f"{dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{lap:02}"


METERS: dict[str, Meter] = {
    "none": lambda text, dice, lap: text,
    "json duration_ms": _in_json("duration_ms", lambda d, lap: d.randint(1, 900)),
    "json elapsed (s, float)": _in_json("elapsed", lambda d, lap: round(d.random() * 9, 3)),
    "json took": _in_json("took", lambda d, lap: f"{d.randint(2, 999)}ms"),
    "json timestamp": _in_json("timestamp", _moment),
    "json ts (epoch)": _in_json("ts", lambda d, lap: 1_760_000_000 + d.randint(0, 9_999_999)),
    "json requestId (uuid)": _in_json("requestId", _uuid),
    "json execution_count": _in_json("execution_count", lambda d, lap: lap + 1),
    "json pid": _in_json("pid", lambda d, lap: d.randint(100, 99_999)),
    "text took": _in_text("{text}\n(took {value}s)", lambda d, lap: round(d.random() * 5, 2)),
    "text completed in ms": _in_text("{text}\nCompleted in {value} ms", lambda d, lap: d.randint(3, 999)),
    "text clock": _in_text("[{value}] {text}", _clock),
    "text moment": _in_text("{value} INFO {text}", _moment),
    "text request id": _in_text("{text}\nrequest id: {value}", _uuid),
    "text shell line": _in_text("bash: line {value}: warning\n{text}", lambda d, lap: d.randint(10, 99_999)),
}


def laps_of(messages: list[Message], period: int, dice: random.Random) -> tuple[int, list[Message]] | None:
    """(where they begin, messages) of `period` turns with calls and all their results, no user between."""
    starts = [i for i, m in enumerate(messages) if m.get("tool_calls")]
    dice.shuffle(starts)
    for start in starts:
        turns: list[Message] = []
        count = 0
        for message in messages[start:]:
            if message["role"] == "assistant":
                count += 1
            if count > period or message["role"] not in ("assistant", "tool"):
                break
            turns.append(message)
        answers = [m for m in turns if m["role"] == "assistant"]
        results = sum(m["role"] == "tool" for m in turns)
        asked = sum(len(m.get("tool_calls") or []) for m in answers)
        complete = len(answers) == period and all(m.get("tool_calls") for m in answers) and results == asked
        if complete and len({_name_calls(m) for m in answers} - {""}) in (period, 0):
            return start, turns
    return None


def _name_calls(answer: Message) -> str:
    """The calls of an answer without thoughts: a lap in which the same is asked twice is two laps."""
    asked = [call["function"] for call in answer["tool_calls"] if call["function"]["name"] != "think"]
    return json.dumps([(call["name"], call["arguments"]) for call in asked]) if asked else ""


def lap(turns: list[Message], meter: Meter, dice: random.Random, number: int) -> list[Message]:
    """The turns once more: other ids, another key order, other meters."""
    fresh: list[Message] = json.loads(json.dumps(turns))
    ids: dict[str, str] = {}
    for message in fresh:
        for call in message.get("tool_calls") or []:
            ids[call["id"]] = call["id"] = f"call_{dice.getrandbits(48):x}"
            call["function"]["arguments"] = _reordered(call["function"]["arguments"], dice)
        if message["role"] == "tool":
            message["tool_call_id"] = ids.get(message["tool_call_id"], "call_unknown")
            message["content"] = meter(str(message["content"]), dice, number)
        elif isinstance(message.get("content"), str):
            message["content"] = f"Let me look at it once more, try {dice.randint(0, 999)}."
    return fresh


def _reordered(arguments: str, dice: random.Random) -> str:
    try:
        items = list(json.loads(arguments).items())
    except ValueError:
        return f" {arguments}\n"
    dice.shuffle(items)
    return json.dumps(dict(items), indent=dice.choice([None, 1, 2]))
