"""Give past calls and their results one form: each call of a turn has its own id, and its result names it.

`function_call` and `function` become `tool_calls` and `tool`; a missing or shared id is made of the place; a result
without an id belongs to its turn's next call without one, of its name if it has one. A conversation in this form stays
as it is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

Message = dict[str, Any]
_RESULT = frozenset({"tool", "function"})
Call = tuple[str, str, str]  # the id that the client gave it, its id, its name


class _Waiting:
    """The calls of a turn in lines: of all, of an id that the client gave, of a name. `answered`: the ids of those that
    wait for no result."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.answered: set[str] = set()
        self._lines: dict[tuple[str, Any], deque[Call]] = {}
        for call in calls:
            for line in (("all", ""), ("id", call[0]), ("name", call[2])):
                self._lines.setdefault(line, deque()).append(call)

    def find(self, line: tuple[str, Any]) -> Call | None:
        calls = self._lines.get(line, deque())
        while calls and calls[0][1] in self.answered:
            calls.popleft()
        return calls[0] if calls else None


def name_past_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages with calls that can be told apart, and with results that name theirs."""
    if not any(_is_loose(message) for message in messages):
        return messages
    out: list[Message] = []
    waiting = _Waiting()
    for at, message in enumerate(messages):
        named = message
        if message.get("role") in _RESULT:
            named = _name_result(message, waiting)
        elif message.get("role") == "assistant":
            named, waiting = _name_calls(message, at)
        out.append(named)
    return tuple(out)


def _is_loose(message: Message) -> bool:
    """Return whether something in it can't be told by its id."""
    if message.get("role") in _RESULT:
        return message["role"] == "function" or not message.get("tool_call_id")
    calls = message.get("tool_calls")
    if calls and len(set(_list_ids(message))) < len(calls):
        return True
    return isinstance(message.get("function_call"), dict)


def _list_ids(message: Message) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        if isinstance(call.get("id"), str) and call["id"]:
            yield call["id"]


def _name_calls(message: Message, at: int) -> tuple[Message, _Waiting]:
    calls = message.get("tool_calls") or []
    legacy = message.get("function_call")
    if not calls and isinstance(legacy, dict) and isinstance(legacy.get("name"), str):
        message = {key: value for key, value in message.items() if key != "function_call"}
        calls = [{"type": "function", "function": legacy}]
    shared = Counter(_list_ids({"tool_calls": calls}))
    named, waiting = [], []
    for place, call in enumerate(calls):
        given, id = call.get("id"), f"call_{at}_{place}"
        if isinstance(given, str) and shared[given] == 1:
            id = given
        while id != given and id in shared:
            id += "_"
        waiting.append((str(given or ""), id, call["function"]["name"]))
        named.append(call if id == given else {**call, "id": id})
    return ({**message, "tool_calls": named} if named else message), _Waiting(waiting)


def _name_result(message: Message, waiting: _Waiting) -> Message:
    """Return the result with the id of its call; as it is where none waits for it."""
    id, name = message.get("tool_call_id") or "", message.get("name")
    call = waiting.find(("id", id) if id else ("name", name))
    if call is None and not id and not name:
        call = waiting.find(("all", ""))
    if call is None or (message["role"] == "function" and call[2] != name):
        return message
    waiting.answered.add(call[1])
    return {**message, "role": "tool", "tool_call_id": call[1]}
