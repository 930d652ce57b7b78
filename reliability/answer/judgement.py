"""Is this answer good enough? The judgement on one attempt, once its last event is here.

    held events of the gate  ->  calls (native, and out of the text)  ->  valid?  ->  a loop?  ->  what may be delivered

The checks stand in this order because each needs the one before: only a whole call can be valid, and only a valid
answer is worth asking whether it goes round in circles. The first one that fails is the flaw; a flawed answer still
carries what could be delivered, since a loop that a second tier repeats is delivered, marked.

Calls: an upstream that takes the calls out of the text may leave their tags there, or the whole text; beside native
calls that is no call of its own. Three or more identical ones in one answer are a model that hangs; the first two are
kept and the rest is shown as dropped. Apart from that calls are delivered all or none. Text: what an earlier attempt
has already sent stands, and this attempt's own text is dropped; such an attempt is asked for its calls only.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reliability.answer.gate import TextKind
from reliability.loops import Call as LoopCall
from reliability.loops import (
    Loop,
    LoopConfig,
    Memo,
    Stage,
    Turn,
    Window,
    calls_turn,
    carries_history,
    find_loop,
    observe,
    read_turns,
    repeated_calls,
)
from reliability.loops.written import before_repeats
from reliability.steps import Steps
from reliability.tools import (
    CheckConfig,
    Checked,
    Extraction,
    RawCall,
    Repair,
    RepairKind,
    ToolBox,
    Violation,
    check_calls,
    extract_calls,
    id_source,
    ids_in,
)
from reliability.tools.check.ids import assign
from reliability.tools.delimiters import only_marks
from reliability.tools.extract.envelope import may_open
from reliability.tools.extract.harmony import is_harmony
from reliability.tools.extract.scanner import is_prose
from reliability.tools.formats import HERMES
from reliability.types import CallDelta, Event, Finish, FinishReason, Flaw, Reasoning, Text, ToolCall

__all__ = ["Expected", "Judged", "expect", "judge", "settle_text"]

IDENTICAL_CALLS_MAX = 2
WORDS_CHARS_MAX = 200_000
PROSE_BEHIND = "\n\nAnd so on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the request asks of every answer to it. `checks` and `loops` are None where they are switched off.

    `asked` names the request where it brings no history; then `window`, what its session was answered before, is held
    against the answer once the owner of the windows has sent it. `memo` is what the loop rules have found out about
    `turns`.
    """

    toolbox: ToolBox
    id_seed: str
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    checks: CheckConfig | None = None
    loops: LoopConfig | None = None
    turns: tuple[Turn, ...] = ()
    window: Window | None = None
    asked: str = ""
    used_ids: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement. `events` is what may be delivered, `finish` its end; `flaw` None is a good answer.

    `raw_text` is the text as it came, `written` the same with native calls as a model would have written them: what a
    re-ask may show to the model, and what never leaves for a client.
    """

    events: tuple[Event, ...]
    finish: Finish
    flaw: Flaw | None = None
    detail: str = ""
    calls: tuple[ToolCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    violations: tuple[Violation, ...] = ()
    loop: Loop | None = None
    turn: Turn | None = None
    dropped_calls: int = 0
    raw_text: str = field(default="", repr=False)
    written: str = field(default="", repr=False)


def expect(
    messages: Sequence[Mapping[str, Any]],
    toolbox: ToolBox,
    *,
    id_seed: str,
    tool_choice: Any = None,
    parallel_tool_calls: bool | None = None,
    checks: CheckConfig | None = None,
    loops: LoopConfig | None = None,
) -> Expected:
    """Read the request once, for all attempts on it."""
    return Expected(
        toolbox=toolbox,
        id_seed=id_seed,
        tool_choice=tool_choice,
        parallel_tool_calls=parallel_tool_calls,
        checks=checks,
        loops=loops,
        turns=read_turns(messages, loops.turns_needed) if loops is not None else (),
        asked="" if loops is None or carries_history(messages) else _name_of(messages),
        used_ids=ids_in(messages),
        words=_words(messages) if checks is not None else (),
    )


def _name_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """The same name for the same request: who asks the same and gets the same isn't going round in circles."""
    name = hashlib.sha256()
    for message in messages:
        text = message.get("content")
        plain = isinstance(text, str)  # a text need not be spelled as JSON, which takes many times as long
        rest = {key: value for key, value in message.items() if key != "content"} if plain else message
        name.update(json.dumps(rest, sort_keys=True, default=str).encode())
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
        name.update(f"{plain}{len(data)}:".encode() + data)
    return name.hexdigest()[:24]


def settle_text(text: str, before: str, toolbox: ToolBox) -> TextKind:
    """Tell the gate what a candidate in the text is: a call or an attempt at one whatever follows, prose, or too short
    to tell. `before` is the text in front of it."""
    whole, begin = before + text, max(before.rfind("}"), before.rfind("\n")) + 1
    if not is_prose(whole + PROSE_BEHIND, toolbox, begin):
        return TextKind.CALL
    if not is_prose(whole, toolbox, begin) or is_harmony(whole):  # it depends on what follows
        return TextKind.OPEN
    return TextKind.OPEN if may_open(text) else TextKind.PROSE


def judge(
    expected: Expected,
    held: Sequence[Event],
    finish: Finish,
    *,
    sent: str,
    text_committed: bool,
    attempt: int,
    stopped: bool = False,
    steps: Steps | None = None,
) -> Judged:
    """Judge one whole answer.

    `held` is what the gate kept back, `sent` the text that it let pass, `text_committed` whether an earlier attempt's
    text stands before the client, `attempt` the number of this attempt (so that ids don't meet). The answer is read
    whole, so that it is judged the same however much of it has left. `stopped`: it was stopped at the third copy of a
    call.

    Raises:
        OutOfSteps: judging the calls takes more than `steps` (None: as many as it takes); never where they are final.
    """
    text = "".join(event.text for event in held if isinstance(event, Text))
    found, dropped = _read(sent + text, len(sent), expected.toolbox, stopped)
    found, native = _without_leaks(found, _native(held), expected.toolbox)
    raw, copies = _without_repeats((*found.calls, *native))
    checked = _checked(expected, raw, found, attempt, steps)
    flaw, detail = _flaw(checked, finish, raw, found, sent=sent, text_committed=text_committed)
    turn, loop = _against_loops(expected, checked, sent + found.text) if flaw is None else (None, None)
    if loop is not None:
        flaw, detail = _flaw_of(loop)
    return Judged(
        events=tuple(_deliverable(checked, held, found, text_committed=text_committed)),
        finish=_finish(finish, checked),
        flaw=flaw,
        detail=detail,
        calls=checked.calls,
        repairs=checked.repairs,
        violations=checked.violations,
        loop=loop,
        turn=turn,
        dropped_calls=dropped + copies,
        raw_text=sent + text,
        written=sent + text + _as_written(held),
    )


def _read(text: str, sent: int, toolbox: ToolBox, stopped: bool) -> tuple[Extraction, int]:
    """What is in the text, and how many calls were dropped. An answer that was stopped at the third copy of a call is
    read up to that copy, since another one may be broken off behind it."""
    found = extract_calls(text, toolbox, sent)
    kept = extract_calls(before_repeats(text), toolbox, sent) if stopped else found
    return (kept, max(1, len(found.calls) - len(kept.calls))) if stopped and kept.calls else (found, 0)


def _native(held: Sequence[Event]) -> list[RawCall]:
    """The calls that came as calls, put together from their pieces."""
    pieces: dict[int, list[CallDelta]] = {}
    for event in held:
        if isinstance(event, CallDelta):
            pieces.setdefault(event.index, []).append(event)
    return [
        RawCall(
            name=next((d.name for d in deltas if d.name), ""),
            arguments="".join(d.arguments for d in deltas),
            id=next((d.id for d in deltas if d.id), None),
        )
        for _, deltas in sorted(pieces.items())
    ]


def _without_leaks(found: Extraction, native: Sequence[RawCall], box: ToolBox) -> tuple[Extraction, Sequence[RawCall]]:
    """What was found in the text without the native calls' own traces: marks around nothing, and copies of the calls.

    A copy is taken off once for each native call, so that what the text says more often stays.
    """
    if not (native and (found.calls or found.malformed)):
        return found, native
    malformed = tuple(one for one in found.malformed if not only_marks(one.raw))
    told = Counter(_meant(call, box) for call in native)
    calls: list[RawCall] = []
    for call in found.calls:
        key = _meant(call, box)
        if not told[key]:
            calls.append(call)
        told[key] -= told[key] > 0
    if len(malformed) == len(found.malformed) and len(calls) == len(found.calls):
        return found, native
    noted = replace(native[0], repairs=(Repair(RepairKind.ENVELOPE, ""),))
    return replace(found, calls=tuple(calls), malformed=malformed), (noted, *native[1:])


def _meant(raw: RawCall, box: ToolBox) -> tuple[str, str]:
    """What a call says, however its tool's name and its arguments are written."""
    call, tool = _as_call(raw), box.find(raw.name)
    return call.name if tool is None else tool.name, call.arguments


def _as_written(held: Sequence[Event]) -> str:
    """Native calls as a model would have written them: what it is shown as its own words in a re-ask."""
    calls = (f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}' for call in _native(held))
    return "\n".join("\n".join((HERMES.writes[0], call, HERMES.writes[1])) for call in calls)


def _without_repeats(calls: Sequence[RawCall]) -> tuple[tuple[RawCall, ...], int]:
    """The calls without the third and every further copy, and how many those were."""
    if len(calls) <= IDENTICAL_CALLS_MAX:
        return tuple(calls), 0
    if repeated_calls([_as_call(call) for call in calls]) is None:
        return tuple(calls), 0
    counts: dict[tuple[str, str], int] = {}
    kept: list[RawCall] = []
    for raw in calls:
        call = _as_call(raw)
        key = (call.name, call.arguments)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= IDENTICAL_CALLS_MAX:
            kept.append(raw)
    return tuple(kept), len(calls) - len(kept)


def _as_call(raw: RawCall) -> LoopCall:
    """As the loop rules compare it: arguments as canonical JSON where they are JSON at all."""
    value = raw.arguments
    try:
        if isinstance(value, str):
            value = json.loads(value)
        return LoopCall(raw.name, json.dumps(value, sort_keys=True))
    except (ValueError, TypeError, RecursionError):
        return LoopCall(raw.name, str(raw.arguments).strip())


def _checked(
    expected: Expected, raw: Sequence[RawCall], found: Extraction, attempt: int, steps: Steps | None
) -> Checked:
    new_id = id_source(f"{expected.id_seed}/{attempt}")
    if expected.checks is None:
        return _as_they_came(expected, raw, new_id)
    return check_calls(
        raw,
        expected.toolbox,
        expected.tool_choice if expected.toolbox.tools else None,
        expected.parallel_tool_calls,
        expected.checks,
        new_id=new_id,
        used_ids=expected.used_ids,
        conversation=expected.words,
        malformed=found.malformed,
        steps=steps,
    )


def _as_they_came(expected: Expected, raw: Sequence[RawCall], new_id: Callable[[int], str]) -> Checked:
    """Validation is switched off: calls pass unjudged. Only their ids are made unique, since agents key by them."""
    ids = assign([call.id for call in raw], expected.used_ids, new_id)
    texts = [c.arguments if isinstance(c.arguments, str) else json.dumps(c.arguments) for c in raw]
    return Checked(
        calls=tuple(
            ToolCall(id=id, name=call.name, arguments=text) for id, call, text in zip(ids, raw, texts, strict=True)
        )
    )


def _flaw(
    checked: Checked, finish: Finish, raw: Sequence[RawCall], found: Extraction, *, sent: str, text_committed: bool
) -> tuple[Flaw | None, str]:
    cut = finish.reason is FinishReason.LENGTH
    if checked.violations:
        words = "; ".join(f"{v.path} {v.message}".strip() for v in checked.violations[:3])
        if cut and (found.malformed or raw):
            return Flaw.TRUNCATED, f"its tool call was cut off by the token limit ({words})"
        return Flaw.TOOL_CALL_INVALID, f"its tool call is invalid: {words}"
    if checked.calls:
        return None, ""
    if finish.reason is FinishReason.TOOL_CALLS:
        return Flaw.EMPTY, "it announced tool calls and sent none"
    if text_committed:
        return Flaw.EMPTY, "it brought no call where one was open"
    silent = not (sent + found.text).strip()
    if silent and finish.reason is FinishReason.STOP:
        return Flaw.EMPTY, "its answer is empty"
    return None, ""


def _against_loops(expected: Expected, checked: Checked, text: str) -> tuple[Turn | None, Loop | None]:
    """The answer as a turn of the conversation, and the loop in which it would be one more lap."""
    if expected.loops is None:
        return None, None
    turn = calls_turn([(c.name, c.arguments) for c in checked.calls], text)
    loop = find_loop(expected.turns, expected.loops, turn, expected.memo)
    if loop is None and expected.window is not None:
        _, loop = observe(expected.window, turn, expected.loops, expected.asked)
    return turn, loop


def _flaw_of(loop: Loop) -> tuple[Flaw, str]:
    detail = (
        f"Repeated identical output detected ({loop.laps}x). "
        "Consider rephrasing the request or trying a different approach."
    )
    return Flaw.CIRCUIT_BREAK if loop.stage is Stage.BREAK else Flaw.LOOP, detail


def _deliverable(checked: Checked, held: Sequence[Event], found: Extraction, *, text_committed: bool) -> list[Event]:
    """What would be delivered: reasoning, the text that is left, whole calls."""
    events: list[Event] = [event for event in held if isinstance(event, Reasoning)]
    events += [Reasoning(found.reasoning)] if found.reasoning else []
    text = found.text if not checked.calls or found.text.strip() else ""
    if text and not text_committed:
        events.append(Text(text))
    events += [
        CallDelta(index=i, id=call.id, name=call.name, arguments=call.arguments) for i, call in enumerate(checked.calls)
    ]
    return events


def _finish(finish: Finish, checked: Checked) -> Finish:
    """The finish reason that says whether there are calls."""
    reason = FinishReason.TOOL_CALLS if checked.calls else finish.reason
    if not checked.calls and reason is FinishReason.TOOL_CALLS:
        reason = FinishReason.STOP
    return finish if reason is finish.reason else replace(finish, reason=reason)


def _words(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The texts of the conversation, newest first, bounded: words in them are no placeholders."""
    out: list[str] = []
    room = WORDS_CHARS_MAX
    for message in reversed(messages):
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str) and room > 0:
                out.append(text[:room])
                room -= len(text)
    return tuple(out)
