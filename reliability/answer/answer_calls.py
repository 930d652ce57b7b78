"""The calls of one answer: native ones put together, and equal ones collapsed.

An upstream that takes calls out of the text may leave their tags or all of it there: that is no call of its own;
another call there is quoted, and stays prose. Calls are equal when they mean the same tool and arguments; the first
stands for all. Calls that are meant stay: as many as the user orders ("Press Tab 3 times"), and a pair of native ones,
since a tool that draws or counts is called twice on purpose.

A weak model writes a workflow down in one answer: it looks something up, and reports what it found, which is made up.
From the first call on that does something with a text that nobody has said, behind a look, they are dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count

from reliability.loops import Kind, Loop
from reliability.loops.comparison.findings import SeenCall
from reliability.loops.comparison.tool_verbs import takes_notes
from reliability.loops.content import NO_ORDER, PersonsOrder
from reliability.loops.repeatable_calls import count_ordered, is_generic_tool
from reliability.loops.revisits import looks
from reliability.loops.written import cut_before_repeats
from reliability.said import Said, find_field, list_leaves
from reliability.surrogates import join_surrogates
from reliability.tool_calls import Uncertainty
from reliability.tools import Checked, Extraction, RawCall, Repair, RepairKind, ToolBox, extract_calls
from reliability.tools.check.calls import assign
from reliability.tools.format_envelopes import HERMES
from reliability.tools.formats import FRAME_FENCE, has_only_delimiters
from reliability.types import CallDelta, Event, Text, ToolCall

_PAIR = 2
COUNTED_MAX = 8
_CUTS_MAX = 24  # places of one unit of a cycle that are tried
_FIGURES = re.compile(r"\d+")
# The first fence of its line, with a tag, which opens; a longer one than the closing one holds it as its text.
_EMPTY_BLOCK = re.compile(
    r"^((?:[^`\n]|`[^`\n]+`)*+)(?P<fence>`{3,8})\w[\w+.#-]{0,31}(?:\s{0,64}\n\s{0,64}(?P=fence)(?![\w`])|\s{0,64}\Z)",
    re.M,
)
_OPENED_LAST = re.compile(rf"{FRAME_FENCE}\s*\Z")
_BOUNDARY = re.compile(r"\n|(?<=[>\])}])|(?=[<\[{])")


def read_native_calls(held: Sequence[Event]) -> list[RawCall]:
    """Put the calls that came as calls together from their pieces."""
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


def drop_empty_blocks(held: Sequence[Event], text: str) -> str:
    """Leave out the blocks of code in which native calls stood; one that ends before the first call is its words."""
    first = next((at for at, event in enumerate(held) if isinstance(event, CallDelta)), len(held))
    before = "".join(event.text for event in held[:first] if isinstance(event, Text))
    opened = _OPENED_LAST.search(before)
    told = len(_EMPTY_BLOCK.findall(before[: opened.start()] if opened else before))
    blocks = count()
    return _EMPTY_BLOCK.sub(lambda block: block[next(blocks) >= told], text) if first < len(held) else text


def drop_told(
    found: Extraction, native: Sequence[RawCall], box: ToolBox, text: str, sent: int, *, told: str | None
) -> tuple[Extraction, Sequence[RawCall]]:
    """Take the native calls' own traces off what was found in the text: delimiters around nothing, and copies of the
    calls, however often it says them. Where it holds another call it is all prose. `text`, `sent`, `told`: as
    `extract_calls` has read them."""
    if not (native and (found.calls or found.malformed or found.dropped)):
        return found, native
    malformed = tuple(one for one in found.malformed if not has_only_delimiters(one.raw))
    copies = {_identify_call(call, box) for call in native}
    told_of = bool(malformed) or any(_identify_call(call, box) not in copies for call in found.calls)
    if told_of and all(one.doubt is Uncertainty.SUSPECTED for one in malformed):
        return extract_calls(text, replace(box, tools=()), sent, told=told), native
    if not found.dropped and not found.calls and len(malformed) == len(found.malformed):
        return found, native
    noted = replace(native[0], repairs=(Repair(RepairKind.ENVELOPE, ""),))
    return replace(found, calls=(), malformed=malformed), (noted, *native[1:])


def write_native_calls(held: Sequence[Event]) -> str:
    """Write native calls as a model would have written them: what it is shown as its own words in a re-ask."""
    calls = (
        f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'
        for call in read_native_calls(held)
    )
    return "\n".join("\n".join((HERMES.writes[0], call, HERMES.writes[1])) for call in calls)


def _identify_call(raw: RawCall, box: ToolBox | None = None) -> tuple[str, str]:
    """Return a call's tool and its arguments as canonical JSON, however both are written."""
    tool = None if box is None else box.find(raw.name)
    value = raw.arguments
    try:
        text = json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        text = str(raw.arguments).strip()
    return raw.name if tool is None else tool.name, text


def collapse_calls(
    calls: Sequence[RawCall], box: ToolBox, order: PersonsOrder = NO_ORDER
) -> tuple[tuple[RawCall, ...], int]:
    """Collapse equal calls, but for as many as the user orders; return the calls, and how many were dropped."""
    distinct = _keep_first([(_identify_call(call, box), call) for call in calls], order)
    return distinct, len(calls) - len(distinct)


def keep_few_counted(
    found: Extraction, native: Sequence[RawCall], box: ToolBox, *, cut: bool
) -> tuple[Extraction, Sequence[RawCall], int]:
    """Keep `COUNTED_MAX` of the calls that differ in figures alone, where an answer was `cut` off as it wrote them, and
    count the others: a model that counts on until its tokens are spent means none of them."""
    calls = native or found.calls
    if not cut or len(calls) <= COUNTED_MAX:
        return found, native, 0
    forms = [_FIGURES.sub("0", "\0".join(_identify_call(call, box))) for call in calls]
    end = len(forms) - (forms[-1] != forms[-2])  # the last may be cut off
    begun = end
    while begun and forms[begun - 1] == forms[end - 1]:
        begun -= 1
    if end - begun <= COUNTED_MAX or len(found.malformed) > 2:
        return found, native, 0
    kept = tuple(calls[: begun + COUNTED_MAX])
    dropped = len(calls) - len(kept) + len(found.malformed)
    return (found, kept, dropped) if native else (replace(found, calls=kept, malformed=()), native, dropped)


def _keep_first(calls: Sequence[tuple[tuple[str, str], RawCall]], order: PersonsOrder) -> tuple[RawCall, ...]:
    """Keep the first of equal calls, and as many as are ordered; and both of a pair of native ones."""
    groups: dict[tuple[str, str], list[RawCall]] = {}
    for key, call in calls:
        groups.setdefault(key, []).append(call)
    kept: set[int] = set()
    for key, group in groups.items():
        may_be_meant = _PAIR if all(one.format == "native" for one in group) else 1
        ordered = max(1, count_ordered(order, *key))
        kept.update(map(id, group if len(group) <= may_be_meant else group[:ordered]))
    return tuple(call for _, call in calls if id(call) in kept)


def drop_equal(
    calls: Sequence[RawCall], delivered: Sequence[ToolCall], order: PersonsOrder = NO_ORDER
) -> tuple[RawCall, ...]:
    """Drop the calls that a repair has made equal to one before them. `delivered`: what becomes of the calls."""
    if len(delivered) != len(calls):
        return tuple(calls)
    plain = [_identify_call(RawCall(name=one.name, arguments=one.arguments)) for one in delivered]
    return _keep_first(list(zip(plain, calls, strict=True)), order)


def drop_untold(
    calls: Sequence[RawCall],
    delivered: Sequence[ToolCall],
    words: Sequence[str],
    made: Sequence[SeenCall],
    box: ToolBox,
) -> tuple[RawCall, ...]:
    """Drop the calls from the first one on that tells what a look before it has yet to find. `delivered`: what becomes
    of the calls; `words`: the texts of the conversation; `made`: its calls, whose looks have found what they do."""
    looking, said = False, None
    if len(delivered) == len(calls) > 1 and words:
        found = {_identify_call(RawCall(name=one.name, arguments=one.arguments)) for one in made}
        for at, call in enumerate(delivered):
            asked = SeenCall(call.name, call.arguments)
            if looks(asked):
                looking = looking or _identify_call(RawCall(name=call.name, arguments=call.arguments)) not in found
            elif looking and not takes_notes(call.name) and not is_generic_tool(asked):
                said = said or Said("\n".join([*words, *(one.arguments for one in made)]))
                if _tells_unsaid(call, box, said):
                    return tuple(calls[:at])
    return tuple(calls)


def _tells_unsaid(call: ToolCall, box: ToolBox, said: Said) -> bool:
    """Return whether a text that the call must have says what stands nowhere, its tool's definition included."""
    tool = box.find(call.name)
    given = json.loads(call.arguments)
    if tool is None or not isinstance(given, dict):
        return False
    properties = tool.parameters.get("properties")
    leaves = (list_leaves(given[key], find_field(properties, key)) for key in tool.required if key in given)
    texts = [one for one in chain.from_iterable(leaves) if isinstance(one, str) and said.find_missing(one)]
    return bool(texts) and any(
        map(Said(f"{tool.description}\n{json.dumps(tool.parameters, ensure_ascii=False)}").find_missing, texts)
    )


def read_stopped(
    text: str, sent: int, box: ToolBox, loop: Loop | None, *, told: str | None = None
) -> tuple[Extraction, int]:
    """Read the calls of a text of which the first `sent` characters have left; count the calls that were broken off.
    `loop`: what the answer was stopped for; `told`: the text before reasoning that has come before this one."""
    read = partial(extract_calls, box=box, sent=sent, told=told)
    found = read(text)
    kept = _read_copies(text, read, box, loop)
    if kept is None:
        return found, 0
    if found.malformed or len(found.calls) <= len(kept.calls):
        return kept, 1
    return replace(kept, calls=found.calls), int(len(kept.text) < len(found.text))


def _read_copies(text: str, read: Callable[[str], Extraction], box: ToolBox, loop: Loop | None) -> Extraction | None:
    """Read a stopped text up to the end of a complete copy; None where it was stopped for something else."""
    if loop is None:
        return None
    if loop.kind is Kind.ANSWER_CALLS:
        found = read(cut_before_repeats(text, loop.repetitions - 1))
        return found if found.calls else None
    best: Extraction | None = None
    for end in _list_cuts(text, loop):
        found = read(text[:end])
        # A row of calls in which one comes again, and nothing that can't be read.
        is_run = not found.malformed and collapse_calls(found.calls, box)[1] > 0
        if is_run and (best is None or len(found.text) < len(best.text)):
            best = found
            if len(found.text.rstrip()) <= len(found.before):
                break
    return best


def _list_cuts(text: str, loop: Loop) -> list[int]:
    """List the places where a cycle may be cut: one unit of it has all that there are."""
    if loop.kind is not Kind.CYCLE or loop.keep is None:
        return []
    places = {match.end() for match in _BOUNDARY.finditer(text, loop.keep, loop.keep + loop.period + 1)}
    return sorted(places, key=lambda at: (text[at - 1] != "\n", at))[:_CUTS_MAX]


def pass_unchecked(calls: Sequence[RawCall], used_ids: Collection[str], new_id: Callable[[int], str]) -> Checked:
    """Pass the calls unjudged: validation is switched off. Only their ids are made unique, since agents key by them."""
    ids = assign([call.id for call in calls], used_ids, new_id)
    texts = [c.arguments if isinstance(c.arguments, str) else json.dumps(c.arguments) for c in calls]
    return Checked(
        calls=tuple(
            ToolCall(id=id, name=join_surrogates(call.name), arguments=join_surrogates(text))
            for id, call, text in zip(ids, calls, texts, strict=True)
        )
    )
