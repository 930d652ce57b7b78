"""The leeway of an answer that was refused and may be right all the same.

    your_song.txt for a path, nothing for a text      a value that is only doubted: the calls may leave as they are
    {"name": "move", "parameters": {...}}             no declared tool, and maybe the answer: it may leave as words

Such an answer is asked for again first; `reliability.escalation.policies` decides when it leaves all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reliability.attempt import Leeway
from reliability.loops.comparison.findings import digest
from reliability.tool_calls import Uncertainty
from reliability.tools import Extraction, ToolBox, extract_calls
from reliability.types import Flaw, Text

if TYPE_CHECKING:
    from reliability.answer.judgement import Judged


def give_leeway(judged: Judged, found: Extraction, box: ToolBox, text: str, sent: int, told: str | None) -> Judged:
    """Return the judgement with what may leave of a flawed answer, if anything. `found`: what was read in its text."""
    if judged.flaw is not Flaw.TOOL_CALL_INVALID or not all(one.doubt for one in judged.violations):
        return judged
    suspected = all(one.doubt is Uncertainty.SUSPECTED for one in judged.violations)
    if judged.calls:
        said = digest(*(f"{one.path} {one.message}" for one in judged.violations))
        return replace(judged, leeway=Leeway(said, suspected))
    if judged.native_calls or found.calls:
        return judged
    words = extract_calls(text, replace(box, tools=()), sent, told=told).text
    events = [event for event in judged.events if not isinstance(event, Text)]
    said = digest(" ".join(words.split()))
    return replace(judged, events=(*events, Text(words)), leeway=Leeway(said, suspected))
