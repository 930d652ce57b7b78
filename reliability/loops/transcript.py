"""Read a request's messages into turns: what the model did since the user last spoke.

Reading starts after the last message that is the user's own; a bare "go on" is kept as a marker turn. Beside what
`content` tells, a user message is not the user's own when it

- answers a call in the text before it, in a conversation without native calls: it is that call's result;
- says what another one near it says, but for what a harness counts ("You have 9 steps left."), and shows the same
  pictures, unless it names the answer that it got ("Reply OK or ALERT.");
- only shows an image behind a tool's result, at most with words that are said again: it belongs to that result.

A result belongs by its id to the newest turn that has it. One that a client has cleared is unknown, and unknown equals
nothing. An answer with results that holds one call `_FOLDED_MIN` times is read as a turn for each call: its client
folds all answers since the user spoke into one message (Mastra 0.24).

Invariants: `turns_max` answers and `MESSAGES_MAX` messages back are read. What can't be read is skipped.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from reliability.loops import content
from reliability.loops.comparison.findings import Memo, SeenCall, Turn, dumps, see_call
from reliability.loops.comparison.near import find_other_digits, mask_figures
from reliability.loops.comparison.tool_verbs import takes_notes
from reliability.loops.content import CLOCK, Message, Who, list_other_parts, read_own_text, text_of
from reliability.loops.text_calls import read_text_calls

#: So many hold all turns that `LoopConfig` needs, each with four results or with a thought and a push before it.
MESSAGES_MAX = 1_280
_REQUEST_MESSAGES_MAX = 2_048  # how far back the user's last request is looked for
_ASKED_MAX = 4  # messages of the user that are one request, each but the first an answer to a question
_NEIGHBOURS = 16  # how many user messages before and after one are looked at for one that says the same
#: In so much of each end of a message, and of what differs between them, figures may be what a harness counts.
_COUNTED_CHARS = 1_000
_MIDDLES_MAX = 256  # so many pairs of messages are looked at for what is counted between their ends
_GLUED_CHARS = 20  # a shorter message may be another one's beginning by chance
#: A longer answer is none that a message names, nor looked for behind its beginning.
_NAMED_CHARS, _ORDER_CHARS = 40, 20_000
_WRITING_MESSAGES = 32  # so many messages back it shows whether an agent's calls stand in its texts
#: What a harness counts in its messages: what is left, how often, how late it is.
_COUNTDOWN = re.compile(
    r"(?=[#\d])(?:"
    r"\b\d++(?=(?:[ /]+(?:of )?\d+)? (?:more |remaining )?(?:steps?|turns?|iterations?|rounds?|attempts?|tries|retries|"
    r"times?|tokens?|seconds?|minutes?|messages?|calls?|requests?|actions?)\b)"
    r"|(?:(?<=step )|(?<=turn )|(?<=iteration )|(?<=attempt )|(?<=round )|(?<=try ))#?\d+(?: ?(?:/|of) ?\d+)?"
    r"|(?<!\d)\d++(?=(?:st|nd|rd|th) (?:time|attempt|try|step|turn)\b)"
    rf"|{CLOCK.pattern})",
    re.IGNORECASE,
)


#: A result as text agents write it down: what is in the element is the result.
_WRAPPED = re.compile(r"\s*<(tool_response|tool_result|function_results?|observation|output)>(.*)</\1>\s*", re.DOTALL)


class _ConversationTail:
    """The end of a conversation, within the bounds, and what is asked of it more than once."""

    def __init__(self, messages: Any) -> None:
        self.messages: Sequence[Any] = messages if isinstance(messages, (list, tuple)) else []
        self.lowest = max(0, len(self.messages) - MESSAGES_MAX)
        self._memo = Memo()
        self._middles = 0

    def role_at(self, index: int) -> Any:
        message = self.messages[index] if self.lowest <= index < len(self.messages) else None
        return message.get("role") if isinstance(message, dict) else None

    def find_start(self, turns_max: int) -> int:
        """Find the index after the user's last own message."""
        answers = 0
        for index in range(len(self.messages) - 1, self.lowest - 1, -1):
            role = self.role_at(index)
            answers += role == "assistant" and self.may_act(index)
            if answers == turns_max:
                return index
            if role == "user" and self.is_own(index):
                return index + 1
        return self.lowest

    def may_act(self, index: int) -> bool:
        """Return whether the answer calls more than a tool that takes notes, or may do so in its text."""
        calls = self.messages[index].get("tool_calls")
        if not isinstance(calls, list):
            return not self._has_native_calls
        functions = (call.get("function") or call.get("custom") for call in calls if isinstance(call, dict))
        names = (function.get("name") for function in functions if isinstance(function, dict))
        return not all(isinstance(name, str) and takes_notes(name) for name in names)

    def find_request(self, start: int) -> str:
        """Find what the user said last before an index; what led to questions that it answers stands before it."""
        said: list[str] = []
        for index in range(start - 1, max(-1, start - 1 - _REQUEST_MESSAGES_MAX), -1):
            message = self.messages[index]
            if not isinstance(message, dict) or message.get("role") != "user":
                continue
            if self.is_own(index) if index >= self.lowest else content.classify_speaker(message) is Who.SPEAKS:
                said.insert(0, read_own_text(message))
                if len(said) == _ASKED_MAX or not self.answers_question(index):
                    break
        return "\n".join(said)

    def answers_question(self, index: int) -> bool:
        """Return whether the message stands behind a question of the model."""
        before = self.messages[index - 1] if index else None
        if not isinstance(before, dict) or before.get("role") != "assistant":
            return False
        return read_own_text(before).rstrip(" \n*_\"')").endswith(("?", "？", "؟"))

    def is_own(self, index: int) -> bool:
        """Return whether the user message is the user's own, and more than a "go on"."""
        if content.classify_speaker(self.messages[index]) is not Who.SPEAKS:
            return False
        return not (self.shows_screen(index) or self.answers_call(index) or self.says_again(index))

    def shows_screen(self, index: int) -> bool:
        """Return whether the message is an image behind a tool's result, with no words but such as are said again."""
        message = self.messages[index]
        if self.role_at(index - 1) != "tool" or not list_other_parts(message):
            return False
        return not read_own_text(message).strip() or next(self._find_same_words(index), None) is not None

    def answers_call(self, index: int) -> bool:
        """Return whether the message is the result of a call that stands in the text before it."""
        before = self._others[bisect(self._others, index) - 1]
        return self.role_at(before) == "assistant" and bool(self.text_calls(before))

    @cached_property
    def _others(self) -> list[int]:
        """The place before the tail, and those of its messages that aren't the user's."""
        return [at for at in range(self.lowest - 1, len(self.messages)) if self.role_at(at) != "user"]

    def text_calls(self, index: int) -> tuple[SeenCall, ...]:
        """Return the calls in the text of an answer, where the agent has no others."""
        if self._has_native_calls:
            return ()
        return self._memo.once(("calls", index), lambda: read_text_calls(read_own_text(self.messages[index])))

    @cached_property
    def _has_native_calls(self) -> bool:
        newest = (message for message in self.messages[self.lowest :] if isinstance(message, dict))
        return any(message.get("tool_calls") or message.get("role") == "tool" for message in newest)

    def says_again(self, index: int) -> bool:
        """Return whether another user message near it says and shows the same, and got no answer that it names."""
        same = (near for near in self._find_same_words(index) if self._parts_at(near) == self._parts_at(index))
        return not self._was_obeyed(index) and next(same, None) is not None

    def asks_anew(self, index: int) -> bool:
        """Return whether the message asks what one near it asks, but for the time, and neither urges on nor counts."""
        asked = self._drop_clock(index)
        same = (near for near in self._find_same_words(index) if self._drop_clock(near) == asked)
        return not content.urges_on(self.messages[index]) and next(same, None) is not None

    def _drop_clock(self, index: int) -> str:
        text = read_own_text(self.messages[index])[:_ORDER_CHARS]
        return self._memo.once(("asked", index), lambda: CLOCK.sub("", content.drop_elements(text)).strip())

    def _was_obeyed(self, index: int) -> bool:
        """Return whether the answer before the message is one that it names itself: "Reply OK or ALERT."."""
        before = self.messages[index - 1] if self.role_at(index - 1) == "assistant" else {}
        answer = read_own_text(before).strip(" \n.!*`\"'")
        if not 0 < len(answer) <= _NAMED_CHARS or before.get("tool_calls") or content.urges_on(self.messages[index]):
            return False
        words = read_own_text(self.messages[index])[:_ORDER_CHARS]
        return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", words) is not None

    def _find_same_words(self, index: int) -> Iterator[int]:
        words = self._words_at(index)
        for step in (-1, 1):
            near, looked = index + step, 0
            while self.lowest <= near < len(self.messages) and looked < _NEIGHBOURS:
                if self.role_at(near) == "user":
                    looked += 1
                    if self._is_same_message(words, self._words_at(near)):
                        yield near
                near += step

    def _is_same_message(self, a: str, b: str) -> bool:
        """Return whether they are equal but for what a harness counts, or for what is glued behind one."""
        short, long = sorted((a, b), key=len)
        if a == b or (len(short) >= _GLUED_CHARS and long.startswith(short) and long[len(short)] == "\n"):
            return True
        if self._middles == _MIDDLES_MAX or not (found := find_other_digits(a, b, _COUNTED_CHARS)):
            return False
        self._middles += 1
        return len({_COUNTDOWN.sub("", middle) for middle in found}) == 1

    def _parts_at(self, index: int) -> str:
        return self._memo.once(("parts", index), lambda: text_of(list_other_parts(self.messages[index])))

    def _words_at(self, index: int) -> str:
        return self._memo.once(("words", index), lambda: self._read_words(index))

    def _read_words(self, index: int) -> str:
        text = content.drop_elements(read_own_text(self.messages[index])).strip()
        tail = max(_COUNTED_CHARS, len(text) - _COUNTED_CHARS)
        ends = [text[:_COUNTED_CHARS], text[tail:]]
        head, end = map(mask_figures, ends) if self._writes_calls else (_COUNTDOWN.sub("", part) for part in ends)
        return f"{head}{text[_COUNTED_CHARS:tail]}{end}"

    @cached_property
    def _writes_calls(self) -> bool:
        latest = range(max(self.lowest, len(self.messages) - _WRITING_MESSAGES), len(self.messages))
        return any(self.role_at(index) == "assistant" and self.text_calls(index) for index in reversed(latest))

    def read_report(self, index: int) -> str:
        """Return what a user message reports, without what is glued behind what another near it says, too."""
        lines = read_own_text(self.messages[index]).strip().split("\n")
        others = (self._words_at(near) for near in self._find_same_words(index))
        shorter = next((other for other in others if len(other) < len(self._words_at(index))), None)
        shown = "\n".join(lines if shorter is None else lines[: shorter.count("\n") + 1])
        wrapped = _WRAPPED.fullmatch(shown)
        return "\n".join(filter(None, [wrapped[2].strip() if wrapped else shown, self._parts_at(index)]))


TURNS_MAX = 256
_FOLDED_MIN = 3
_CLEARED = re.compile(
    r"\s*(?:old [\w ]{0,40}:\s*)?[\[(<][^\n]{0,120}"
    r"\b(?:cleared|omitted|elided|removed|pruned|compacted)\b[^\n]{0,60}[\])>]\s*",
    re.IGNORECASE,
)
_CLEARED_ABOUT = re.compile(r"\b(?:tool|result|output|content|context|observation|response|lines?)\b", re.IGNORECASE)


@dataclass(slots=True)
class _OpenTurn:
    """A turn while its results are still being read: for each call the texts of its result. `places`: calls by id."""

    text: str = ""
    calls: list[SeenCall] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    results: list[list[str]] = field(default_factory=list)
    continued: bool = False
    written: bool = False
    pushed: bool = False
    asked: bool = False

    def add(self, call: SeenCall, call_id: str = "") -> None:
        if call_id:
            self.places[call_id] = len(self.calls)
        self.calls.append(call)
        self.results.append([])

    def freeze(self, request: str) -> Turn:
        results = tuple("\n".join(texts) if texts else None for texts in self.results)
        flags = self.continued, self.written, self.pushed, self.asked
        return Turn(tuple(self.calls), results, self.text, *flags, request=request)


def read_turns(messages: Any, turns_max: int = TURNS_MAX) -> tuple[Turn, ...]:
    """Read the model's turns since the user last spoke, oldest first, back to the `turns_max`-th that acts."""
    tail = _ConversationTail(messages)
    turns: list[_OpenTurn] = []
    start = tail.find_start(turns_max)
    for index in range(start, len(tail.messages)):
        if isinstance(tail.messages[index], dict):
            _read_message(tail, index, turns)
    request = tail.find_request(start) if turns else ""
    read = [part for turn in turns for part in _unfold(turn.freeze(request))]
    return tuple(read[-max(turns_max, len(turns)) :])


def read_request(messages: Any) -> str:
    """Read what the user said last, however many turns ago."""
    tail = _ConversationTail(messages)
    return tail.find_request(len(tail.messages))


def is_folded(turn: Turn) -> bool:
    """Return whether an answer holds one call so often that each of its calls is a turn."""
    return max(Counter(turn.calls).values(), default=0) >= _FOLDED_MIN


def _unfold(turn: Turn) -> Iterator[Turn]:
    """Yield a turn for each call of one that several answers were folded into; any other as it is."""
    if turn.written or not is_folded(turn) or all(result is None for result in turn.results):
        yield turn
        return
    *older, newest = zip(turn.calls, turn.results, strict=True)
    for number, (call, result) in enumerate(older):
        yield Turn((call,), (result,), folded=number > 0, request=turn.request)
    yield replace(turn, calls=newest[:1], results=newest[1:], folded=True)


def _read_message(tail: _ConversationTail, index: int, turns: list[_OpenTurn]) -> None:
    message = tail.messages[index]
    role = message.get("role")
    if role == "assistant":
        turns.append(_read_answer(message))
        if not turns[-1].calls:
            for call in tail.text_calls(index):
                turns[-1].add(call)
                turns[-1].written = True
    elif role == "tool":
        call_id = str(message.get("tool_call_id") or "")
        for turn in reversed(turns):  # a result without a call is dropped
            if call_id in turn.places:
                _add_result(turn.results[turn.places[call_id]], text_of(message.get("content")))
                break
    elif role == "user":
        _read_user(tail, index, turns)


def _read_user(tail: _ConversationTail, index: int, turns: list[_OpenTurn]) -> None:
    """Read a user message: it may be a result itself, or a screen that belongs to one."""
    message = tail.messages[index]
    who = content.classify_speaker(message)
    if turns and turns[-1].written and who is not Who.NOBODY:
        text = tail.read_report(index)
        for texts in turns[-1].results:  # which of the calls it answers nobody says
            _add_result(texts, text)
    elif others := list_other_parts(message):
        if (acted := _find_acting(turns)) is not None:
            _add_result(acted.results[-1], text_of(others))
    elif who is Who.GOES_ON and not tail.says_again(index):
        turns.append(_OpenTurn(continued=True))
    elif turns and who is Who.SPEAKS:
        turns[-1].pushed = True
        if turns[-1].calls:
            return
        turns[-1].asked = turns[-1].asked or tail.asks_anew(index)
        if (acted := _find_acting(turns)) is not None:
            # Else a harness reports on the call, or wants one.
            acted.asked = not acted.written and not content.urges_on(message)


def _find_acting(turns: Sequence[_OpenTurn]) -> _OpenTurn | None:
    return next((turn for turn in reversed(turns) if turn.calls), None)


def _read_answer(message: Message) -> _OpenTurn:
    turn = _OpenTurn(read_own_text(message))
    for call, call_id in read_calls(message):
        turn.add(call, call_id)
    if not turn.calls and not turn.text.strip():
        names = ("reasoning_content", "reasoning")
        turn.text = next((message[name] for name in names if isinstance(message.get(name), str)), "")
    return turn


def read_calls(message: Message) -> Iterator[tuple[SeenCall, str]]:
    """Yield the calls of an answer, each with its id, but for those in its text."""
    listed = message.get("tool_calls")
    for entry in listed if isinstance(listed, list) else ():
        inner = (entry.get("function") or entry.get("custom")) if isinstance(entry, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            given = inner.get("arguments", inner.get("input", ""))
            arguments = given if isinstance(given, str) else dumps(given)
            yield see_call(inner["name"], arguments), str(entry.get("id") or "")


def _add_result(texts: list[str], text: str) -> None:
    """Add a text to a result; one that its client has cleared is unknown."""
    cleared = len(text) <= 200 and _CLEARED.fullmatch(text) and _CLEARED_ABOUT.search(text)
    if texts or not cleared:
        texts.append(content.drop_elements(text))


def calls_turn(calls: Iterable[tuple[str, str]], text: str = "") -> Turn:
    """Build the turn of an answer that is about to leave: (name, arguments) of each call, and its text."""
    made = tuple(see_call(name, arguments) for name, arguments in calls)
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
    tail = _ConversationTail(messages)
    return any(isinstance(message, dict) and message.get("role") == "assistant" for message in tail.messages)
