"""The same answer, whole and in pieces: what the client gets of it in the end, and what has left on the way."""

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from reliability.answer import gate
from reliability.answer.judgement import Judged, expect, judge, settle_text
from reliability.answer.thoughts import Thoughts, close, pass_on
from reliability.tools import CheckConfig, ToolBox
from reliability.types import Finish, FinishReason, Hold, Reasoning, Text

STOP = Finish(reason=FinishReason.STOP)
LITERAL = CheckConfig(placeholders=())


class Outcome(NamedTuple):
    """What an answer came to. `refused`: it is asked for again, so that none of its text counts."""

    calls: list[tuple[str, Any]]
    refused: bool
    text: str


class Apart(NamedTuple):
    """The text and the reasoning of an answer, and the judgement on it."""

    text: str
    reasoning: str
    judged: Judged


def take_apart(pieces: Sequence[str], box: ToolBox, hold: Hold = Hold.TOOL_CALLS, **thinks: Any) -> Apart:
    """What becomes of a stream in these pieces, as an attempt is read. `thinks`: as of `Thoughts`."""
    state, thoughts = gate.open_gate(box.names, partial(settle_text, toolbox=box), hold), Thoughts(**thinks)
    told, sent, left = "", "", []
    for piece in pieces:
        for _, stepped, out in pass_on(thoughts, state, Text(piece)):
            left += out
            sent += _text(out)
            state = stepped
            if isinstance(stepped, gate.Stopped):
                told, sent, state = told + sent, "", gate.reopen_gate(stepped)
    out, held = close(thoughts, state)
    left += out
    sent += _text(out)
    judged = judge(
        expect([], box, id_seed="r", checks=LITERAL),
        held,
        STOP,
        sent=sent,
        told=told,
        reasoned="".join(one.text for one in left if isinstance(one, Reasoning)),
        text_committed=False,
        attempt=0,
    )
    reasoning = "".join(one.text for one in [*left, *judged.events] if isinstance(one, Reasoning))
    return Apart(told + sent + _text(judged.events), reasoning, judged)


def play(pieces: Sequence[str], box: ToolBox, hold: Hold = Hold.TOOL_CALLS) -> Outcome:
    text, _, judged = take_apart(pieces, box, hold)
    calls = [(call.name, json.loads(call.arguments)) for call in judged.calls]
    refused = bool(judged.violations)
    return Outcome(calls, refused, "" if refused else inked(text))


def whole(text: str, box: ToolBox) -> Outcome:
    """The outcome of an answer that is held to its end."""
    return play([text], box, Hold.ALL)


def settled(text: str, box: ToolBox, sizes: Sequence[int] = (1, 5, 1000)) -> Outcome:
    """The outcome of an answer, which is the same whole and in pieces of each of these sizes."""
    outcome = whole(text, box)
    assert [size for size in sizes if play(cut_at(text, [size]), box) != outcome] == [], text
    return outcome


def live(pieces: Sequence[str], box: ToolBox) -> list[str]:
    """What has left after each piece, reasoning too."""
    state, thoughts, left = gate.open_gate(box.names, partial(settle_text, toolbox=box)), Thoughts(), []
    for piece in pieces:
        passed = pass_on(thoughts, state, Text(piece))
        state = passed[-1][1] if passed else state
        left.append("".join(event.text for _, _, out in passed for event in out))
    return left


def byte_cuts(text: str) -> Iterator[list[str]]:
    """The text in two pieces, cut behind each of its bytes: half a character waits for its other half."""
    data = text.encode()
    for at in range(1, len(data)):
        decoder = codecs.getincrementaldecoder("utf-8")()
        yield [decoder.decode(data[:at]), decoder.decode(data[at:], final=True)]


def cut_at(text: str, sizes: Sequence[int]) -> list[str]:
    """The text in pieces of these sizes, over and over."""
    pieces, at, turn = [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[at : at + size])
        at, turn = at + size, turn + 1
    return pieces


def inked(text: str) -> str:
    """The text without its white space, which differs next to a call that was taken out."""
    return re.sub(r"\s+", "", text)


def _text(events: Sequence[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))
