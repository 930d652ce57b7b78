"""Native calls: those that a tier sends as calls, apart from the text.

They come in pieces and are put together here. An upstream that takes the calls out of the text may leave their tags
there, or the whole text; beside native calls that is no call of its own, and is taken off what was found in the text.
Two calls are the same one when they mean the same, however each of them is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from reliability.loops import SeenCall as LoopCall
from reliability.tools import Extraction, RawCall, Repair, RepairKind, ToolBox
from reliability.tools.format_envelopes import HERMES
from reliability.tools.formats import has_only_delimiters
from reliability.types import CallDelta, Event


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


def drop_leaks(found: Extraction, native: Sequence[RawCall], box: ToolBox) -> tuple[Extraction, Sequence[RawCall]]:
    """Take the native calls' own traces off what was found in the text: delimiters around nothing, and
    copies of the calls.

    However often the text says a native call, it is that call.
    """
    if not (native and (found.calls or found.malformed or found.dropped)):
        return found, native
    malformed = tuple(one for one in found.malformed if not has_only_delimiters(one.raw))
    copies = {identify_call(call, box) for call in native}
    calls = [call for call in found.calls if identify_call(call, box) not in copies]
    if not found.dropped and len(malformed) == len(found.malformed) and len(calls) == len(found.calls):
        return found, native
    noted = replace(native[0], repairs=(Repair(RepairKind.ENVELOPE, ""),))
    return replace(found, calls=tuple(calls), malformed=malformed), (noted, *native[1:])


def write_native_calls(held: Sequence[Event]) -> str:
    """Write native calls as a model would have written them: what it is shown as its own words in a re-ask."""
    calls = (
        f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}'
        for call in read_native_calls(held)
    )
    return "\n".join("\n".join((HERMES.writes[0], call, HERMES.writes[1])) for call in calls)


def identify_call(raw: RawCall, box: ToolBox) -> tuple[str, str]:
    """Return what a call means, however its tool's name and its arguments are written."""
    call, tool = as_loop_call(raw), box.find(raw.name)
    return call.name if tool is None else tool.name, call.arguments


def as_loop_call(raw: RawCall) -> LoopCall:
    """Return the call as the loop rules compare it: arguments as canonical JSON where they are JSON at all."""
    value = raw.arguments
    try:
        if isinstance(value, str):
            value = json.loads(value)
        return LoopCall(raw.name, json.dumps(value, sort_keys=True))
    except (ValueError, TypeError, RecursionError):
        return LoopCall(raw.name, str(raw.arguments).strip())
