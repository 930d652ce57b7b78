"""The signs by which a valid call may be known as right or wrong: small numbers that cost next to nothing.

Of the model: how unsure it was of the tokens of its calls. Of the calls: what of their values stands
nowhere in the conversation, and what of the request stands in none of them. How much each counts is a model's own
(`reliability.confidence.calibration`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reliability.confidence.said import Said, list_leaves, split_words
from reliability.tools import ToolBox
from reliability.types import ToolCall

# The tokens that the model was unsure of: the text of each, and -ln of its probability against the next likeliest.
Unsure = Sequence[tuple[str, float]]
TEXT_CHARS_MAX = 100_000
CALLS_MAX, KEYS_MAX = 16, 64
# Of a request its end is read: what an agent's client puts in front of the user's words tells nothing of the call.
REQUEST_CHARS_MAX = 1_000
NAME = re.compile(r"(?<=[\w,;()] )[A-Z][\w-]+|(?<=[\"'“])[^\"'”]{2,40}(?=[\"'”])")
AND = re.compile(r"\band\b|;|, then\b|\brespectively\b")


def read_signs(
    calls: Sequence[ToolCall], toolbox: ToolBox, texts: Sequence[str], request: str, unsure: Unsure
) -> dict[str, float]:
    """Read the signs of an answer with valid calls. `texts`: those of the conversation, the newest first; `request`:
    what the user has just asked for, "" where the last message is not the user's."""
    arguments = [json.loads(call.arguments) for call in calls]
    return {
        **_read_tokens(calls, unsure),
        **_read_values(calls, arguments, toolbox, Said("\n".join(texts)[:TEXT_CHARS_MAX])),
        **_read_request(calls, arguments, toolbox, request[-REQUEST_CHARS_MAX:]),
    }


def _read_tokens(calls: Sequence[ToolCall], unsure: Unsure) -> dict[str, float]:
    written, telling = _join(calls), [0.0]
    for text, surprise in unsure:
        if text.strip() in written and any(char.isalnum() for char in text):
            telling.append(surprise)
    return {"most_unsure": min(5.0, max(telling)), "unsure": min(15.0, sum(telling))}


def _read_values(
    calls: Sequence[ToolCall], arguments: Sequence[Mapping[str, Any]], toolbox: ToolBox, said: Said
) -> dict[str, float]:
    made_up = {True: 0.0, False: 0.0}
    for call, given in list(zip(calls, arguments, strict=True))[:CALLS_MAX]:
        tool = toolbox.find(call.name)
        schema = tool.parameters if tool is not None else {}
        for key, value in list(given.items())[:KEYS_MAX]:
            known = schema.get("properties", {}).get(key, {})
            if not isinstance(known, Mapping) or known.get("default") != value:
                missing = sum(said.find_missing(leaf) for leaf in list_leaves(value))
                made_up[key in schema.get("required", ())] += missing
    return {"made_up": min(4.0, made_up[True]), "made_up_optional": min(4.0, made_up[False])}


def _read_request(
    calls: Sequence[ToolCall], arguments: Sequence[Any], toolbox: ToolBox, request: str
) -> dict[str, float]:
    used = Said(_join(calls))
    asked = Said(request)
    numbers = sum(not used.has_number(number) for number in asked.numbers)
    names = sum(used.find_missing(name) > 0.5 for name in NAME.findall(request))
    return {
        "named": min(1.0 - asked.find_missing(call.name) for call in calls[:CALLS_MAX]),
        "unused_numbers": min(4.0, float(numbers)),
        "unused_names": min(4.0, float(names)),
        "ands_a_call": min(4.0, len(AND.findall(request)) / len(calls)),
        "length": math.log(1 + len(split_words(request))),
        "tools": math.log(max(1, len(toolbox.tools))),
    }


def _join(calls: Sequence[ToolCall]) -> str:
    return " ".join(f"{call.name} {call.arguments}" for call in calls)[:TEXT_CHARS_MAX]
