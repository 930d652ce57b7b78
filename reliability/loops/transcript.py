"""Read a request's messages into turns: what the model did since the user last spoke.

The messages are those of a chat completion: each dialect is translated into them, with an id for each call, before the
request is judged. Reading starts after the last message that is the user's own (see `conversation_tail`); a bare "go
on" is kept as a marker turn. A result belongs by its id to the newest turn that has it. A result that a client has
cleared is unknown, and unknown equals nothing.

Invariants: a request that is sent twice reads the same twice. `turns_max` answers and `MESSAGES_MAX` messages back are
read. What can't be read is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reliability.loops.comparison.findings import Result, SeenCall, Turn, dumps
from reliability.loops.content import Message, Who, classify_speaker, list_other_parts, read_answer_text, text_of
from reliability.loops.conversation_tail import ConversationTail

TURNS_MAX = 64
_CLEARED = re.compile(
    r"\s*(?:old [\w ]{0,40}:\s*)?[\[(<][^\n]{0,120}"
    r"\b(?:cleared|omitted|elided|removed|pruned|compacted)\b[^\n]{0,60}[\])>]\s*",
    re.IGNORECASE,
)
_CLEARED_ABOUT = re.compile(r"\b(?:tool|result|output|content|context|observation|response|lines?)\b", re.IGNORECASE)


@dataclass(slots=True)
class _OpenTurn:
    """A turn while its results are still being read: for each call the texts of its result. `places`: of the calls that
    have an id."""

    text: str = ""
    calls: list[SeenCall] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    results: list[list[str]] = field(default_factory=list)
    continued: bool = False
    written: bool = False
    pushed: bool = False

    def add(self, call: SeenCall, call_id: str = "") -> None:
        if call_id:
            self.places[call_id] = len(self.calls)
        self.calls.append(call)
        self.results.append([])

    def freeze(self, request: str) -> Turn:
        results = tuple(Result("\n".join(texts)) if texts else None for texts in self.results)
        return Turn(tuple(self.calls), results, self.text, self.continued, self.written, self.pushed, request)


def _read_calls(message: Message, turn: _OpenTurn) -> None:
    listed = message.get("tool_calls")
    for entry in listed if isinstance(listed, list) else ():
        inner = (entry.get("function") or entry.get("custom")) if isinstance(entry, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            given = inner.get("arguments", inner.get("input", ""))
            arguments = given if isinstance(given, str) else dumps(given)
            turn.add(SeenCall(inner["name"], arguments), str(entry.get("id") or ""))


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
        turns.append(_read_answer(message))
        if not turns[-1].calls:
            for call in tail.text_calls(index):
                turns[-1].add(call)
                turns[-1].written = True
    elif role == "tool":
        _attach(turns, str(message.get("tool_call_id") or ""), message.get("content"))
    elif role == "user":
        _read_user(tail, index, turns)


def _read_user(tail: ConversationTail, index: int, turns: list[_OpenTurn]) -> None:
    """Read a user message: it may be a result itself, or a screen that belongs to one."""
    message = tail.messages[index]
    who = classify_speaker(message)
    if turns and turns[-1].written and who is not Who.NOBODY:
        text = tail.read_report(index)
        for texts in turns[-1].results:  # which of the calls it answers nobody says
            _add_result(texts, text)
    elif others := list_other_parts(message):
        acted = next((turn for turn in reversed(turns) if turn.calls), None)
        if acted is not None:
            _add_result(acted.results[-1], text_of(others))
    elif who is Who.GOES_ON and not tail.says_again(index):
        turns.append(_OpenTurn(continued=True))
    elif turns and who is Who.SPEAKS:
        turns[-1].pushed = True


def _read_answer(message: Message) -> _OpenTurn:
    turn = _OpenTurn(read_answer_text(message))
    _read_calls(message, turn)
    if not turn.calls and not turn.text.strip():
        names = ("reasoning_content", "reasoning")
        turn.text = next((message[name] for name in names if isinstance(message.get(name), str)), "")
    return turn


def _attach(turns: list[_OpenTurn], call_id: str, content: Any) -> None:
    """Give a result to the call it belongs to; a result without a call is dropped."""
    for turn in reversed(turns):
        if call_id in turn.places:
            _add_result(turn.results[turn.places[call_id]], text_of(content))
            return


def _add_result(texts: list[str], text: str) -> None:
    if texts or not _is_cleared(text):
        texts.append(text)


def _is_cleared(text: str) -> bool:
    return len(text) <= 200 and bool(_CLEARED.fullmatch(text)) and bool(_CLEARED_ABOUT.search(text))


def calls_turn(calls: Iterable[tuple[str, str]], text: str = "") -> Turn:
    """Build the turn of an answer that is about to leave: (name, arguments) of each call, and its text."""
    made = tuple(SeenCall(name, arguments) for name, arguments in calls)
    return Turn(made, (None,) * len(made), text)


def answer_turn(response: Any) -> Turn:
    """Build the turn of a response: a chat completion, a message, or a text."""
    if isinstance(response, str):
        return Turn(text=response)
    if not isinstance(response, dict):
        return Turn()
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return answer_turn(choices[0].get("message"))
    turn = read_turns([{**response, "role": "assistant"}])[0]
    return Turn(turn.calls, (None,) * len(turn.calls), turn.text)


def carries_history(messages: Any) -> bool:
    """Return whether the client sends what came before: then the transcript decides."""
    listed = messages if isinstance(messages, (list, tuple)) else []
    return any(isinstance(message, dict) and message.get("role") == "assistant" for message in listed)
