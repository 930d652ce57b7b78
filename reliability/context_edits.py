"""Histories that fit: which old results of tools, old thoughts and media a prompt does without.

Each rule reads the history alone. `clear_results` walks through it as it grew: where a prompt was over the rule's size
it clears the oldest results, down to `bytes_left`. So a prompt cache loses its prefix once a step, not once a turn.

Invariants: no word of a user, of the system or of an answer is cleared; a cleared result keeps its place; what is
cleared stays cleared as the history grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reliability.answer.estimate import BYTES_PER_TOKEN_USUAL, prompt_bytes, text_bytes
from reliability.loops.content import Who, classify_speaker, read_own_text
from reliability.types import ChatRequest

Message = Mapping[str, Any]
_RESULTS = ("tool", "function")
STUB = "[This result was removed to save room.]"
_NOT_SHOWN = {"type": "text", "text": STUB}
MEDIA_STUB = {"type": "text", "text": "[An image or a file was here, which no model here can read.]"}
NO_ARGUMENTS = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearResults:
    """Clear the oldest results, until `bytes_left` are left, where the prompt has over `bytes_over` bytes or over
    `uses_over` uncleared results. The newest `keep` stay, and those of the tools `spared`. Less than `bytes_least`
    isn't worth it. `inputs`: the tools whose calls lose their arguments too; None: all. `unread`: also those that no
    answer stands behind yet, so that the model has never read them."""

    bytes_over: int | None = None
    uses_over: int | None = None
    bytes_left: int = 0
    bytes_least: int = 0
    keep: int = 3
    spared: frozenset[str] = frozenset()
    inputs: frozenset[str] | None = frozenset()
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearThoughts:
    """Clear the thoughts of all turns but the newest `keep` that have any."""

    keep: int = 1


Edit = ClearResults | ClearThoughts


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A history without what a rule has cleared. `count`: of results, or of turns' thoughts; `size`: in bytes."""

    messages: tuple[Message, ...]
    count: int
    size: int

    @property
    def tokens(self) -> int:
        """About how many tokens were cleared."""
        return self.size // BYTES_PER_TOKEN_USUAL


def apply_edits(request: ChatRequest, edits: Sequence[Edit]) -> tuple[ChatRequest, list[Cleared]]:
    """Return the request after these edits, and what each has cleared."""
    done: list[Cleared] = []
    for edit in edits:
        if isinstance(edit, ClearThoughts):
            done.append(_clear_thoughts(request.messages, edit))
        else:
            done.append(clear_results(request.messages, edit, prompt_bytes((), request.tools)))
        if done[-1].count:
            request = replace(request, messages=done[-1].messages)
    return request, done


def clear_results(messages: Sequence[Message], rule: ClearResults, fixed_bytes: int = 0) -> Cleared:
    """Clear old results. `fixed_bytes`: of what stands in the prompt beside the messages."""
    growth = _Growth(rule, fixed_bytes)
    for at, message in enumerate(messages):
        if message.get("role") == "assistant":
            growth.take_step()
            growth.read = len(growth.clearable_among) - 1
        growth.add(at, message, _list_shown(messages, at))
    growth.take_step()
    size = growth.saved[growth.cleared]
    edited = list(messages)
    places: dict[int, list[int]] = {}  # of the calls whose arguments go, by their message
    for at in growth.clearable[: growth.cleared]:
        edited[at] = {**messages[at], "content": STUB}
        if _list_shown(messages, at):
            edited[at + 1] = _replace_media(messages[at + 1], _NOT_SHOWN)
        if at in growth.calls:
            made, place = growth.calls[at]
            places.setdefault(made, []).append(place)
    for made, cleared in places.items():
        calls = list(edited[made]["tool_calls"])
        for place in cleared:
            calls[place] = {**calls[place], "function": {**calls[place]["function"], "arguments": NO_ARGUMENTS}}
        edited[made] = {**edited[made], "tool_calls": calls}
    return Cleared(messages=tuple(edited), count=growth.cleared, size=size)


def clear_media(messages: Sequence[Message]) -> Cleared:
    """Clear the images and files that no tier can read, but for those that a user shows with the newest words, or right
    before them without a word: a client sends those that were refused before with older words again. What stands behind
    a tool's result, the tool has shown."""
    newest, has_asked = len(messages), False
    while newest and messages[newest - 1].get("role") not in ("assistant", *_RESULTS):
        asks = _asks(messages[newest - 1])
        if has_asked and asks:
            break
        newest, has_asked = newest - 1, has_asked or asks
    if newest and messages[newest - 1].get("role") in _RESULTS:
        newest = len(messages)
    edited, count = list(messages), 0
    for at, message in enumerate(messages[:newest]):
        parts = message.get("content")
        if isinstance(parts, list) and any(map(_is_media, parts)):
            edited[at] = _replace_media(message, MEDIA_STUB)
            count += sum(map(_is_media, parts))
    return Cleared(messages=tuple(edited), count=count, size=0)


def find_media(messages: Sequence[Message]) -> str:
    """Return of which type the first image or file is that is shown; "" where there is none."""
    parts = (part for message in messages if isinstance(message.get("content"), list) for part in message["content"])
    return next((str(part.get("type")) for part in parts if _is_media(part)), "")


def _asks(message: Message) -> bool:
    said = dict(message)
    says = message.get("role") == "user" and read_own_text(said).strip()
    return bool(says) and classify_speaker(said) is not Who.NOBODY


def _list_shown(messages: Sequence[Message], at: int) -> list[Any]:
    """List the images and files that a result has shown: what stands behind it without a word of the user's."""
    behind = messages[at + 1] if messages[at].get("role") in _RESULTS and at + 1 < len(messages) else {}
    parts = behind.get("content") if behind.get("role") == "user" and not _asks(behind) else None
    return [part for part in parts if _is_media(part)] if isinstance(parts, list) else []


def _replace_media(message: Message, stub: Mapping[str, Any]) -> Message:
    return {**message, "content": [stub if _is_media(part) else part for part in message["content"]]}


def _is_media(part: Mapping[str, Any]) -> bool:
    return part.keys().isdisjoint(("text", "refusal"))


@dataclass(slots=True)
class _Growth:
    """A history up to some message. `clearable`: the places of the results that may be cleared, of which the first
    `cleared` are; `saved`: what the first n of them save; `clearable_among`: how many there are among the first n
    results; `read`: how many results an answer stands behind; `calls`: the call whose arguments go with a result, by
    its message and its place there."""

    rule: ClearResults
    size: int
    clearable: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=lambda: [0])
    clearable_among: list[int] = field(default_factory=lambda: [0])
    calls: dict[int, tuple[int, int]] = field(default_factory=dict)
    cleared: int = 0
    read: int = 0
    _made: dict[str, tuple[int, int, str, int]] = field(default_factory=dict)

    def add(self, at: int, message: Message, shown: Sequence[Any]) -> None:
        size = prompt_bytes((message,))
        self.size += size
        for place, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            arguments = text_bytes(str(function.get("arguments") or ""))
            self._made[str(call.get("id"))] = at, place, function["name"], arguments
        if message.get("role") in _RESULTS:
            self._add_result(at, message, size, shown)

    def _add_result(self, at: int, message: Message, size: int, shown: Sequence[Any]) -> None:
        made = self._made.get(str(message.get("tool_call_id")))
        name = message.get("name") if made is None else made[2]
        saves = size + sum(prompt_bytes(({"content": [part]},)) for part in shown)
        saves -= (1 + len(shown)) * prompt_bytes(({"content": STUB},))
        inputs = self.rule.inputs
        if made is not None and made[3] > len(NO_ARGUMENTS) and (inputs is None or name in inputs):
            saves += made[3] - len(NO_ARGUMENTS)
            self.calls[at] = made[:2]
        if saves > 0 and name not in self.rule.spared:
            self.clearable.append(at)
            self.saved.append(self.saved[-1] + saves)
        self.clearable_among.append(len(self.clearable))

    def take_step(self) -> None:
        """Clear what the rule says of the prompt that ends here."""
        rule, results = self.rule, len(self.clearable_among) - 1
        size = self.size - self.saved[self.cleared]
        is_long = rule.bytes_over is not None and size > rule.bytes_over
        has_many = rule.uses_over is not None and results - self.cleared > rule.uses_over
        if not is_long and not has_many:
            return
        wanted = bisect_left(self.saved, self.size - rule.bytes_left)
        old = max(0, results - rule.keep)
        after = min(wanted, self.clearable_among[old if rule.unread else min(old, self.read)])
        if after > self.cleared and self.saved[after] - self.saved[self.cleared] >= rule.bytes_least:
            self.cleared = after


def _clear_thoughts(messages: Sequence[Message], rule: ClearThoughts) -> Cleared:
    """Clear old thoughts. A turn ends with the user's next message, unless that stands behind a result."""
    turn, turns = 0, dict[int, int]()
    for at, message in enumerate(messages):
        if message.get("role") == "user" and at and messages[at - 1].get("role") not in _RESULTS:
            turn += 1
        if message.get("reasoning_content"):
            turns[at] = turn
    kept = set(sorted(set(turns.values()))[-rule.keep :])
    edited = list(messages)
    places = [at for at, of in turns.items() if of not in kept]
    for at in places:
        edited[at] = {name: value for name, value in messages[at].items() if name != "reasoning_content"}
    size = sum(text_bytes(str(messages[at]["reasoning_content"])) for at in places)
    return Cleared(messages=tuple(edited), count=len(set(turns.values()) - kept), size=size)
