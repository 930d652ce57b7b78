"""Read a request's messages into turns: what the model did since the user last spoke.

Three dialects, told apart message by message: OpenAI chat (and the legacy `function_call`), Anthropic blocks, and items
of OpenAI Responses. Reading starts after the last message that is the user's own (see `conversation_tail`); a bare "go
on" is kept as a marker turn. A result belongs by its id to the newest turn that has it, else to the first call of the
newest turn that has none. A result that a client has cleared is unknown, and unknown equals nothing.

Invariants: a request that is sent twice reads the same twice. `turns_max` answers and `MESSAGES_MAX` messages back are
read. What can't be read is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reliability.loops.comparison.findings import Result, SeenCall, Turn, dumps
from reliability.loops.content import (
    Message,
    Who,
    blocks_of,
    classify_speaker,
    list_other_parts,
    read_answer_text,
    text_of,
    type_of,
)
from reliability.loops.conversation_tail import ConversationTail

TURNS_MAX = 64
_CLEARED = re.compile(
    r"\s*(?:old [\w ]{0,40}:\s*)?[\[(<][^\n]{0,120}"
    r"\b(?:cleared|omitted|elided|removed|pruned|compacted)\b[^\n]{0,60}[\])>]\s*",
    re.IGNORECASE,
)
_CLEARED_ABOUT = re.compile(r"\b(?:tool|result|output|content|context|observation|response|lines?)\b", re.IGNORECASE)


@dataclass(slots=True)
class _CallPlaces:
    """The places of some of a turn's calls, and how many at its beginning have their result."""

    places: list[int] = field(default_factory=list)
    done: int = 0

    def find_next(self, results: list[_OpenResult | None]) -> int:
        """Find the first place without a result, else the last one. Nothing is looked at twice."""
        while self.done < len(self.places) and results[self.places[self.done]] is not None:
            self.done += 1
        return self.places[min(self.done, len(self.places) - 1)]


@dataclass(slots=True)
class _OpenResult:
    texts: list[str]
    error: bool

    def freeze(self) -> Result:
        return Result(self.texts[0] if len(self.texts) == 1 else "\n".join(self.texts), self.error)


@dataclass(slots=True)
class _OpenTurn:
    """A turn while its results are still being read. `by_id` holds the places of the calls by their ids, where there is
    more than one call: under "" those without one, under None all of them."""

    calls: list[SeenCall] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    results: list[_OpenResult | None] = field(default_factory=list)
    by_id: dict[str | None, _CallPlaces] | None = None
    text: str = ""
    continued: bool = False
    answered: bool = False
    by_item: bool = False
    written: bool = False
    pushed: bool = False

    def add(self, call_id: str, call: SeenCall) -> None:
        if self.by_id is not None:
            _add_place(self.by_id, call_id, len(self.calls))
        self.ids.append(call_id)
        self.calls.append(call)
        self.results.append(None)

    def find_place(self, call_id: str) -> int | None:
        """Find where a result with this id belongs; None: it isn't this turn's."""
        if len(self.ids) <= 1:
            return 0 if self.ids and (not call_id or self.ids[0] in (call_id, "")) else None
        if self.by_id is None:
            self.by_id = {}
            for place, own in enumerate(self.ids):
                _add_place(self.by_id, own, place)
        places = self.by_id.get(call_id or None) or (self.by_id.get("") if call_id else None)
        return None if places is None else places.find_next(self.results)

    def freeze(self, request: str) -> Turn:
        results = tuple([None if result is None else result.freeze() for result in self.results])
        said = (self.text, self.continued, self.written, self.pushed)
        return Turn(tuple(self.calls), results, *said, request)


def _add_place(by_id: dict[str | None, _CallPlaces], call_id: str, place: int) -> None:
    for name in (call_id, None):
        by_id.setdefault(name, _CallPlaces()).places.append(place)


def _read_arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value)


def _read_calls(message: Message) -> list[tuple[str, SeenCall]]:
    found: list[tuple[str, SeenCall]] = []
    listed = message.get("tool_calls")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            inner = entry.get("function") or entry.get("custom") or entry
            found += _read_call(entry.get("id"), inner, "arguments", "input")
    legacy = message.get("function_call")
    if not listed and isinstance(legacy, dict):
        found += _read_call(None, legacy, "arguments", "arguments")
    for block in blocks_of(message) if isinstance(message.get("content"), list) else ():
        if type_of(block).endswith("tool_use"):
            found += _read_call(block.get("id"), block, "input", "arguments")
    return found


def _read_call(call_id: Any, holder: Any, *fields: str) -> list[tuple[str, SeenCall]]:
    name = holder.get("name") if isinstance(holder, dict) else None
    if not isinstance(name, str):
        return []
    arguments = next((holder[key] for key in fields if holder.get(key) is not None), None)
    return [(str(call_id or ""), SeenCall(name, _read_arguments(arguments)))]


def read_turns(messages: Any, turns_max: int = TURNS_MAX) -> tuple[Turn, ...]:
    """Read the model's turns since the user last spoke, oldest first; of many, the newest `turns_max`."""
    listed = messages if isinstance(messages, (list, tuple)) else []
    tail = ConversationTail(listed)
    turns: list[_OpenTurn] = []
    start = tail.find_start(turns_max)
    for index in range(start, len(listed)):
        if isinstance(listed[index], dict):
            _read_message(tail, index, turns)
    request = tail.find_request(start) if turns else ""
    return tuple(turn.freeze(request) for turn in turns)


def _read_message(tail: ConversationTail, index: int, turns: list[_OpenTurn]) -> None:
    message = tail.messages[index]
    role = message.get("role")
    if role == "assistant":
        _read_answer(message, turns)
        if not turns[-1].calls:
            _read_written(tail.text_calls(index), turns[-1])
    elif role in ("tool", "function"):
        _attach(turns, message.get("tool_call_id"), message.get("content"), message.get("is_error"))
    elif role == "user":
        _read_results(message, turns)
        _read_user(tail, index, turns)
    else:
        _read_item(message, turns)


def _read_written(calls: tuple[SeenCall, ...], turn: _OpenTurn) -> None:
    for call in calls:
        turn.add("", call)
    turn.written = bool(calls)


def _read_user(tail: ConversationTail, index: int, turns: list[_OpenTurn]) -> None:
    """Read what a user message says beside tool results: it may be a result itself, or a screen that belongs to one."""
    message = tail.messages[index]
    who = classify_speaker(message)
    if turns and turns[-1].written and who is not Who.NOBODY:
        _attach_to_all(turns[-1], tail.read_report(index))
    elif others := list_other_parts(message):
        _attach(turns, None, others, None)
    elif who is Who.GOES_ON and not tail.says_again(index):
        turns.append(_OpenTurn(continued=True))
    elif turns and who is Who.SPEAKS:
        turns[-1].pushed = True


def _attach_to_all(turn: _OpenTurn, text: str) -> None:
    """Give the user message to every call in the text before it: which of them it answers nobody says."""
    for place in range(len(turn.calls)):
        _add_result(turn, place, text, False)


def _read_answer(message: Message, turns: list[_OpenTurn]) -> None:
    turn = _OpenTurn(text=read_answer_text(message), by_item=type_of(message) == "message")
    for call_id, call in _read_calls(message):
        turn.add(call_id, call)
    if not turn.calls and not turn.text.strip():
        turn.text = _read_reasoning(message)
    turns.append(turn)
    if isinstance(message.get("content"), list):
        _read_results(message, turns)


def _read_reasoning(message: Message) -> str:
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str):
            return str(message[name])
    texts = (block.get("thinking") for block in blocks_of(message) if type_of(block) == "thinking")
    return "\n".join(text for text in texts if isinstance(text, str))


def _read_results(message: Message, turns: list[_OpenTurn]) -> None:
    for block in blocks_of(message):
        if type_of(block).endswith("tool_result"):
            _attach(turns, block.get("tool_use_id"), block.get("content"), block.get("is_error"))


def _read_item(item: Message, turns: list[_OpenTurn]) -> None:
    """Read a Responses item: consecutive calls before the first output are one batch."""
    kind = type_of(item)
    if kind.endswith("_call_output"):
        _attach(turns, item.get("call_id"), item.get("output"), None)
    elif kind.endswith("_call"):
        named = item if isinstance(item.get("name"), str) else {**item, "name": kind}
        found = _read_call(item.get("call_id") or item.get("id"), named, "arguments", "input", "action")
        if not (turns and turns[-1].by_item and not turns[-1].answered):
            turns.append(_OpenTurn(by_item=True))
        for call_id, call in found:
            turns[-1].add(call_id, call)
        if item.get("output") is not None:
            _attach(turns, item.get("call_id") or item.get("id"), item["output"], item.get("error"))


def _attach(turns: list[_OpenTurn], call_id: Any, content: Any, error: Any) -> None:
    """Give a result to the call it belongs to; a result without a call is dropped."""
    text = text_of(content)
    for turn in reversed(turns):
        place = turn.find_place(str(call_id or ""))
        if place is not None:
            turn.answered = True
            _add_result(turn, place, text, bool(error))
            return


def _add_result(turn: _OpenTurn, index: int, text: str, error: bool) -> None:
    known = turn.results[index]
    if known is not None:
        known.texts.append(text)
        known.error = known.error or error
    elif not _is_cleared(text):
        turn.results[index] = _OpenResult([text], error)


def _is_cleared(text: str) -> bool:
    return len(text) <= 200 and bool(_CLEARED.fullmatch(text)) and bool(_CLEARED_ABOUT.search(text))


def calls_turn(calls: Iterable[tuple[str, str]], text: str = "") -> Turn:
    """Build the turn of an answer that is about to leave: (name, arguments) of each call, and its text."""
    made = tuple(SeenCall(name, arguments) for name, arguments in calls)
    return Turn(made, (None,) * len(made), text)


def answer_turn(response: Any) -> Turn:
    """Build the turn of a response: a chat completion, a message of any dialect, a Responses body, or a text."""
    if isinstance(response, str):
        return Turn(text=response)
    if not isinstance(response, dict):
        return Turn()
    choices, output = response.get("choices"), response.get("output")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return answer_turn(choices[0].get("message"))
    if isinstance(response.get("message"), dict):
        return answer_turn(response["message"])
    if isinstance(output, list):
        return _merge(read_turns(output))
    return _merge(read_turns([{**response, "role": "assistant"}]))


def _merge(turns: tuple[Turn, ...]) -> Turn:
    calls = tuple(call for turn in turns for call in turn.calls)
    return Turn(calls, (None,) * len(calls), "\n".join(turn.text for turn in turns if turn.text))


def carries_history(messages: Any) -> bool:
    """Return whether the client sends what came before: then the transcript decides."""
    listed = messages if isinstance(messages, (list, tuple)) else []
    return any(isinstance(m, dict) and (m.get("role") == "assistant" or type_of(m).endswith("_call")) for m in listed)
