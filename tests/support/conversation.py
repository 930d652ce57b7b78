"""Conversations as agents have them, and what the loop detector says of them."""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from reliability.loops import Loop, LoopConfig, Stage, answer_turn, find_loop, read_turns

Message = dict[str, Any]
CONFIG = LoopConfig()
USER: Message = {"role": "user", "content": "Please do the task."}
Laps = Sequence[list[Message]]


def ask(name: str, arguments: Any = None, call_id: str = "c1", text: str | None = None) -> Message:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def told(content: Any, call_id: str = "c1") -> Message:
    text = content if isinstance(content, str) else json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def acted(name: str, arguments: Any = None, result: Any = "done") -> list[Message]:
    return [ask(name, arguments), told(result)]


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def loop_at(messages: list[Message], answer: Message, config: LoopConfig = CONFIG) -> Loop | None:
    return find_loop(read_turns(messages), config, answer_turn(answer))


def judge_laps(before: list[Message], laps: Laps, *at: int) -> list[Stage | None]:
    """The stages at the first answers of some laps behind these messages, the first lap being 1."""
    found = (loop_at([*before, *chain(*laps[: lap - 1])], laps[lap - 1][0]) for lap in at)
    return [loop and loop.stage for loop in found]


def stages(messages: list[Message], config: LoopConfig = CONFIG) -> list[Stage | None]:
    """The stage at every answer of the conversation, each judged before its result is known."""
    found = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            loop = loop_at(messages[:index], message, config)
            found.append(loop.stage if loop else None)
    return found


def quiet(messages: list[Message], config: LoopConfig = CONFIG) -> bool:
    return all(stage is None for stage in stages(messages, config))
