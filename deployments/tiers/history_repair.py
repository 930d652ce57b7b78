"""Bring a conversation into the forms that backends and chat templates take. Pure; for OpenAI's messages.

No words but past thoughts are lost: they change their role and stay in their place. Each `Mend` (systems at the head,
turns joined, results paired with calls) is done only where a template or an upstream refuses what was written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from itertools import count
from typing import Any

from deployments.tiers.history_words import HERMES_FORM, say_calls
from reliability.tools.extract import harmony
from reliability.types import SYSTEM_ROLES

_CONTINUE = "Continue."
_NO_RESULT = "There is no result of this call."
_FITTING = re.compile(r"[A-Za-z0-9]{9}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS_MAX = 64
_THOUGHTS = ("reasoning_content", "reasoning")
_UNREAD = frozenset({*_THOUGHTS, "reasoning_details", "annotations", "audio"})  # of past answers, by strict APIs
_RESULT = frozenset({"tool", "function"})

_Messages = Sequence[Mapping[str, Any]]


class HistoryForm(IntEnum):
    """How a tier is sent a conversation; each form is taken by more templates than the one before it."""

    AS_WRITTEN = 0
    NO_THOUGHTS = 1  # without what the model thought before
    ONE_SYSTEM = 2  # one system message at the head
    IN_TURN = 3  # behind it user and assistant in turn, calls and their results aside; one call at a time
    NO_SYSTEM = 4  # in turn, and what the system says stands in the user's first message


def _join_systems(messages: _Messages) -> list[dict[str, Any]]:
    head = next((i for i, m in enumerate(messages) if m["role"] not in SYSTEM_ROLES), len(messages))
    joined = [{**_join_turns(messages[:head]), "role": "system"}] if head else []
    return joined + [dict(message) for message in messages[head:]]


def _soften_systems(messages: _Messages) -> list[dict[str, Any]]:
    """Join the head's system messages, and make later ones part of the user's words next to them."""
    joined = _join_systems(messages)
    head = 1 if joined and joined[0]["role"] == "system" else 0
    runs, soft = [[message] for message in joined[:head]], False
    for message in joined[head:]:
        system = message["role"] in SYSTEM_ROLES
        if runs and runs[-1][0]["role"] == "user" and (system or (soft and message["role"] == "user")):
            runs[-1].append(message)
            soft = True
        else:
            runs.append([{"role": "user", "content": message.get("content")} if system else message])
            soft = system
    return [_join_turns(run) for run in runs]


def _move_system(messages: _Messages) -> list[dict[str, Any]]:
    """Put what the system says at the head before the user's first words."""
    joined = _join_systems(messages)
    if joined and joined[0]["role"] == "system":
        joined[0]["role"] = "user"
        if len(joined) > 1 and joined[1]["role"] == "user":
            joined[:2] = [_join_turns(joined[:2])]
    return joined


def _merge_turns(messages: _Messages) -> list[dict[str, Any]]:
    """Join the user's messages in a row, and the model's that no call follows."""
    runs: list[list[Mapping[str, Any]]] = []
    for message in messages:
        same = bool(runs) and runs[-1][0]["role"] == message["role"] and message["role"] in ("user", "assistant")
        if same and not runs[-1][-1].get("tool_calls"):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [_join_turns(run) for run in runs]


def _say_result(message: dict[str, Any]) -> dict[str, Any]:
    """Make a result the user's words."""
    if message["role"] not in _RESULT:
        return message
    return {"role": "user", "content": _join_contents(["Result of a tool call:", message.get("content")])}


def _drop_empty(messages: _Messages) -> _Messages:
    """Leave out the messages that say nothing, but for the last one; a result that says nothing is an empty text."""
    out: list[Mapping[str, Any]] = []
    for i, message in enumerate(messages):
        if message.get("content") or message.get("tool_calls"):
            out.append(message)
        elif message["role"] in _RESULT:
            out.append({**message, "content": ""})
        elif i == len(messages) - 1:
            out.append({**message, "content": "" if message["role"] == "assistant" else _CONTINUE})
    return out


def _say_refusal(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give what the model refused in as its words: no template reads another field."""
    if not message.get("refusal") or message.get("content"):
        return message
    return {key: value for key, value in message.items() if key != "refusal"} | {"content": message["refusal"]}


def _fit_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Give each call an id and a name that every API takes, and its result the same id: nine letters and digits."""
    if message.get("tool_calls"):
        message["tool_calls"] = [
            {**call, "id": _fit_id(call.get("id")), "function": _fit_name(call["function"])}
            for call in message["tool_calls"]
        ]
    if message["role"] == "tool":
        message["tool_call_id"] = _fit_id(message.get("tool_call_id"))
    return message


def _name_ids(messages: _Messages) -> list[dict[str, Any]]:
    """Give each call an id that names its tool, and its result the same: a template of Kimi K2 writes the id alone."""
    out = list(map(dict, messages))
    ids: dict[Any, str] = {}
    numbers = count()
    for message in out:
        calls = []
        for call in message.get("tool_calls") or ():
            ids[call.get("id")] = f"functions.{call['function']['name']}:{next(numbers)}"
            calls.append({**call, "id": ids[call.get("id")]})
        if calls:
            message["tool_calls"] = calls
        if message["role"] == "tool":
            message["tool_call_id"] = ids.get(message.get("tool_call_id"), message.get("tool_call_id"))
    return out


def _fit_name(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a past call a name that every API takes: agents keep calls of names that a model made up."""
    name = _UNFIT.sub("_", str(function.get("name") or ""))[:_NAME_CHARS_MAX]
    return {**function, "name": name or "unnamed"}


def _fit_id(given: Any) -> str:
    id = str(given or "")
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    return id if _FITTING.fullmatch(id) else digest[:9]


def _split_calls(messages: _Messages) -> list[dict[str, Any]]:
    """Give each call a turn of its own, with its result behind it. Words between results stay behind them."""
    out: list[dict[str, Any]] = []
    for message, results in _group_results(messages, frozenset({"tool"})):
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            out += [message, *results]
            continue
        left: dict[Any, list[dict[str, Any]]] = {}
        for result in results:
            left.setdefault(result.get("tool_call_id"), []).append(result)
        for n, call in enumerate(calls):
            out.append({**message, "content": message.get("content") if n == 0 else "", "tool_calls": [call]})
            out += left.pop(call.get("id"), ())
        out += (result for result in results if result.get("tool_call_id") in left)
    return out


def _order_results(messages: _Messages) -> list[dict[str, Any]]:
    """Put the results of one turn in the order of its calls: many templates write no ids."""
    out: list[dict[str, Any]] = []
    for message, results in _group_results(messages, _RESULT):
        ids = [call.get("id") for call in message.get("tool_calls") or ()]
        if len(ids) > 1:
            places = {id: place for place, id in reversed(list(enumerate(ids)))}
            results.sort(key=lambda result: places.get(result.get("tool_call_id"), len(places)))
        out += [message, *results]
    return out


def _group_results(messages: _Messages, roles: frozenset[str]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each message with the results behind it, where it has calls."""
    at = 0
    while at < len(messages):
        message, end = dict(messages[at]), at + 1
        while message.get("tool_calls") and end < len(messages) and messages[end]["role"] in roles:
            end += 1
        yield message, list(map(dict, messages[at + 1 : end]))
        at = end


def _begin_with_user(messages: _Messages) -> list[dict[str, Any]]:
    """Put a word of the user's behind the system prompt, where nobody or the model speaks there."""
    out = list(map(dict, messages))
    first = 1 if out and out[0]["role"] == "system" else 0
    if out and (len(out) == first or out[first]["role"] == "assistant"):
        out.insert(first, {"role": "user", "content": _CONTINUE})
    return out


def _take_turns(messages: _Messages) -> list[dict[str, Any]]:
    """Put a word of the other's between two turns of one role that only calls and results separate."""
    out: list[dict[str, Any]] = []
    last = ""
    for message in map(dict, messages):
        role = message["role"]
        speaks = role == "user" or (role == "assistant" and not message.get("tool_calls"))
        if speaks and role == last:
            word = "OK." if role == "user" else _CONTINUE
            out.append({"role": "assistant" if role == "user" else "user", "content": word})
        last = role if speaks else last
        out.append(message)
    return out


def _pair_results(messages: _Messages) -> list[dict[str, Any]]:
    """Put a result behind each call that has none, and make a result without a call the user's words."""
    out: list[dict[str, Any]] = []
    open_ids: dict[str, None] = {}  # of the calls without a result, in their order
    later: list[dict[str, Any]] = []  # what stands between calls and their results

    def close() -> None:
        out.extend({"role": "tool", "tool_call_id": id, "content": _NO_RESULT} for id in open_ids)
        open_ids.clear()
        out.extend(later)
        later.clear()

    awaited = _find_awaited(messages)
    for i, message in enumerate(map(dict, messages)):
        role = message["role"]
        if role in _RESULT:
            id = message.get("tool_call_id") or message.get("name") or ""
            if id in open_ids:
                del open_ids[id]
                out.append({**message, "role": "tool", "tool_call_id": id})
            else:
                (later if open_ids else out).append(_say_result(message))
        elif open_ids and i in awaited and role != "assistant":
            later.append(message)
        else:
            close()
            out.append(message)
            for call in message.get("tool_calls") or ():
                open_ids[str(call.get("id") or "")] = None
        if not open_ids:
            close()
    close()
    return _order_results(out)


def _find_awaited(messages: _Messages) -> set[int]:
    """Find the messages behind which a result comes before the model speaks."""
    found: set[int] = set()
    result = False
    for i, message in reversed(list(enumerate(messages))):
        result = result and message["role"] != "assistant"
        found |= {i} if result else set()
        result = result or message["role"] in _RESULT
    return found


def _join_turns(run: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join messages, of which one at most has calls, to one with the role of the first; a lone one stays as it is."""
    joined: dict[str, Any] = {}
    for message in run:
        for key, value in message.items():
            joined.setdefault(key, value)
        if message.get("tool_calls"):
            joined["tool_calls"] = message["tool_calls"]
    if len(run) > 1:
        joined["content"] = _join_contents([message.get("content") for message in run])
        for key in _THOUGHTS:
            if joined.get(key):
                joined[key] = "\n\n".join(str(message[key]) for message in run if message.get(key))
    return joined


def _join_contents(contents: Sequence[Any]) -> Any:
    """Join contents: to a text, or from the first list on to a list of parts."""
    first = next((at for at, content in enumerate(contents) if isinstance(content, list)), len(contents))
    text = "\n\n".join(filter(None, contents[:first]))
    if first == len(contents):
        return text
    parts = _list_parts(text)
    for content in contents[first:]:
        parts += [{"type": "text", "text": "\n\n"}] if parts and content else []
        parts += _list_parts(content)
    return parts


def _list_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _split_words(messages: _Messages) -> list[dict[str, Any]]:
    """Give words that stand beside a call a turn of their own before it."""
    out = []
    for message in map(dict, messages):
        if message.get("tool_calls") and message.get("content"):
            out.append({key: value for key, value in message.items() if key != "tool_calls"})
            message["content"] = ""
        out.append(message)
    return out


def _part_content(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _give_thought(message: dict[str, Any]) -> dict[str, Any]:
    """Give an answer an empty thought where it has none: some templates write it in the last turns only."""
    return {"reasoning_content": "", **message} if message["role"] == "assistant" else message


def _strip_channels(message: dict[str, Any]) -> dict[str, Any]:
    """Leave of an answer in which Harmony's marks stand what it says to the user: some templates refuse the marks."""
    text = message.get("content")
    if message["role"] == "assistant" and isinstance(text, str) and harmony.is_harmony(text):
        spoken = [part for part in harmony.split(text) if part.recipient is None and not part.is_reasoning]
        message["content"] = "\n".join(part.body for part in spoken)
    return message


def _each(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    return lambda messages: [change(dict(message)) for message in messages]


class Mend(Enum):
    """What is done to a conversation that a template doesn't take: the gentlest first. `place`: where it stands in the
    order in which mends are applied; `do`: how it changes the messages."""

    FIT_IDS = 12, _each(_fit_ids)
    NAME_IDS = 13, _name_ids
    JOIN_SYSTEMS = 5, _join_systems
    MERGE_TURNS = 8, _merge_turns
    SPLIT_CALLS = 2, _split_calls
    SPLIT_WORDS = 9, _split_words
    PAIR_RESULTS = 1, _pair_results
    STRIP_CHANNELS = 0, _each(_strip_channels)
    SOFTEN_SYSTEMS = 6, _soften_systems
    BEGIN_WITH_USER = 10, _begin_with_user
    TAKE_TURNS = 11, _take_turns
    MOVE_SYSTEM = 7, _move_system
    SAY_CALLS = 3, say_calls
    SAY_RESULTS = 4, _each(_say_result)

    GIVE_THOUGHTS = 14, _each(_give_thought)
    PART_CONTENTS = 15, _each(_part_content)

    def __init__(self, place: int, do: Callable[..., list[dict[str, Any]]]) -> None:
        self.place, self.do = place, do


def mend(messages: _Messages, mends: Collection[Mend], written: str = HERMES_FORM) -> list[dict[str, Any]]:
    """Apply mends. The results of a turn come in the order of its calls in any case. `written`: how calls are."""
    out = _order_results(messages)
    for one in sorted(mends, key=lambda one: one.place):
        out = one.do(out, written) if one is Mend.SAY_CALLS else one.do(out)
    return out


_ONE_SYSTEM = frozenset({Mend.PAIR_RESULTS, Mend.FIT_IDS, Mend.SOFTEN_SYSTEMS, Mend.MERGE_TURNS, Mend.BEGIN_WITH_USER})
_IN_TURN = _ONE_SYSTEM | {Mend.SPLIT_CALLS, Mend.TAKE_TURNS}


def soften(messages: _Messages, form: HistoryForm) -> _Messages:
    """Return the messages in this form; from `ONE_SYSTEM` on each call with its result behind it."""
    if form is HistoryForm.AS_WRITTEN:
        return messages
    said = map(_say_refusal, messages)
    spoken = [{key: value for key, value in message.items() if key not in _UNREAD} for message in said]
    if form is HistoryForm.NO_THOUGHTS:
        return spoken
    full = _drop_empty(spoken)
    mends = _ONE_SYSTEM if form is HistoryForm.ONE_SYSTEM else _IN_TURN
    without_system = form is HistoryForm.NO_SYSTEM or all(message["role"] in SYSTEM_ROLES for message in full)
    return mend(full, mends | {Mend.MOVE_SYSTEM} if without_system else mends)
