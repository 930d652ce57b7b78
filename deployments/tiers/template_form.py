"""Find what a model's chat template can't take, and bring conversations into the form that it takes.

`learn_form` renders probes, small conversations of which each word must stand in the prompt once and in order; where
one doesn't, it keeps the gentlest mends that help (`docs/decisions/001-chat-templates.md`). What a mend does to a
message doesn't depend on those behind it: a longer conversation begins as the shorter one did.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.tiers.history_repair import Mend, mend
from deployments.tiers.history_words import HERMES_FORM

_MENDS_MAX = 4  # at once, for one shape

Messages = list[dict[str, Any]]
_Render = Callable[[Messages, bool], str]  # of messages, with tools or without

_BY_THEMSELVES = frozenset({Mend.GIVE_THOUGHTS, Mend.PART_CONTENTS})
_TURNS = frozenset({Mend.PAIR_RESULTS, Mend.MERGE_TURNS, Mend.BEGIN_WITH_USER, Mend.TAKE_TURNS, Mend.FIT_IDS})
_SOFTER = (
    frozenset({Mend.SOFTEN_SYSTEMS}),
    frozenset({Mend.SOFTEN_SYSTEMS, Mend.MERGE_TURNS}),
    _TURNS | {Mend.SOFTEN_SYSTEMS},
    _TURNS | {Mend.SOFTEN_SYSTEMS, Mend.MOVE_SYSTEM},
    frozenset(Mend) - _BY_THEMSELVES - {Mend.NAME_IDS},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateForm:
    """What a template needs. `written`: how the model writes calls. `lost`: the shapes that lose words in any form."""

    mends: frozenset[Mend] = frozenset()
    written: str = HERMES_FORM
    lost: tuple[str, ...] = ()

    def apply(self, messages: Sequence[Mapping[str, Any]]) -> Messages:
        return mend(messages, self.mends, self.written)

    def list_softer(self) -> Iterator[TemplateForm]:
        """List softer forms, for a shape that no probe has: each gives up more of what the client wrote."""
        for mends in _SOFTER:
            yield replace(self, mends=self.mends | mends)

    def describe(self) -> str | None:
        """Say what the template loses; None where it takes all."""
        return f"its chat template loses words of {', and of '.join(self.lost)}" if self.lost else None


AS_WRITTEN = TemplateForm()


@dataclass(frozen=True, slots=True)
class _Probe:
    """A shape of conversations. Each message, call and result holds a word of its own."""

    shape: str
    messages: Messages
    words: tuple[str, ...]


def _make_probe(shape: str, plan: str) -> _Probe:
    """Make a probe of a plan: S, U and A are messages, C and D a call and two, R a result of the call that is open, H
    an answer with the marks of Harmony in it, W an answer with words beside its call, L a result of no call."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    words: list[str] = []
    ids: list[str] = []

    def say() -> str:
        words.append(f"probeword{next(letters)}")
        return words[-1]

    def call(n: int) -> dict[str, Any]:
        ids.append(f"call_{len(words):024x}")
        return {"id": ids[-1], "type": "function", "function": {"name": f"look_{n}", "arguments": {"place": say()}}}

    messages: Messages = []
    for letter in plan:
        if letter in "SUA":
            role = {"S": "system", "U": "user", "A": "assistant"}[letter]
            messages.append({"role": role, "content": say()})
        elif letter in "CDW":
            content = say() if letter == "W" else ""
            calls = [call(n) for n in range(2 if letter == "D" else 1)]
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        elif letter == "H":
            thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
            messages.append({"role": "assistant", "content": thought + say()})
        else:
            id = "call_of_nobody" if letter == "L" else ids.pop(0)
            messages.append({"role": "tool", "tool_call_id": id, "name": "look_0", "content": say()})
    return _Probe(shape, messages, tuple(words))


_PROBES = tuple(
    _make_probe(shape, plan)
    for shape, plan in (
        ("a question", "U"),
        ("a question under a system prompt", "SU"),
        ("an answer that was given", "UAU"),
        ("an answer at the end", "UA"),
        ("two system messages at the head", "SSU"),
        ("a system message alone", "S"),
        ("a system message behind the user's words", "SUS"),
        ("a system message between turns", "SUASU"),
        ("system messages in two places behind the head", "SUSASU"),
        ("two messages of the user's in a row", "SUUAU"),
        ("two answers in a row", "UAAU"),
        ("an answer at the head", "AU"),
        ("a call and its result", "SUCR"),
        ("words beside a call", "UWR"),
        ("an answer behind a result", "UCRAU"),
        ("the user's words behind a result", "SUCRU"),
        ("one call behind another", "UCRWRAU"),
        ("two calls in one turn", "UDRRU"),
        ("a system message behind a result", "SUCRS"),
        ("a call without a result", "UCU"),
        ("a result without a call", "UALU"),
        ("an answer that holds the marks of Harmony", "UHU"),
    )
)


def learn_form(render: _Render, *, tools: bool, written: str = HERMES_FORM) -> TemplateForm:
    """Find what a template needs, by rendering the probes. `render` may raise anything. `tools`: it has a place for
    them; `written` is the form in which calls are written by hand where the template leaves them out."""
    mends: frozenset[Mend] = frozenset()
    parts = TemplateForm(mends=frozenset({Mend.PART_CONTENTS}))
    if not _takes(render, _PROBES[0], AS_WRITTEN, tools=tools) and _takes(render, _PROBES[0], parts, tools=tools):
        mends = parts.mends
    for probe in _PROBES:
        for more in _list_mends(probe, mends, written):
            if _takes(render, probe, TemplateForm(mends=mends | more, written=written), tools=tools):
                mends |= more
                break
    form = TemplateForm(mends=mends, written=written)
    thoughts = replace(form, mends=mends | {Mend.GIVE_THOUGHTS})
    if not _keeps_prefix(render, form, tools=tools) and _keeps_prefix(render, thoughts, tools=tools):
        form = thoughts
    lost = tuple(probe.shape for probe in _PROBES if not _takes(render, probe, form, tools=tools))
    return replace(form, lost=lost)


def _list_mends(probe: _Probe, known: frozenset[Mend], written: str) -> Iterator[frozenset[Mend]]:
    """List the sets of mends that change a probe, each once: the gentlest first, and of those the fewest."""
    seen: list[Messages] = []
    candidates = [one for one in Mend if one not in known | _BY_THEMSELVES]
    sets = itertools.chain(*(itertools.combinations(candidates, count) for count in range(_MENDS_MAX + 1)))
    for mends in sorted(sets, key=lambda mends: (candidates.index(mends[-1]) if mends else -1, len(mends))):
        changed = TemplateForm(mends=known.union(mends), written=written).apply(probe.messages)
        if changed not in seen:
            seen.append(changed)
            yield frozenset(mends)


def _takes(render: _Render, probe: _Probe, form: TemplateForm, *, tools: bool) -> bool:
    messages = form.apply(probe.messages)
    given = json.dumps(messages)
    try:
        text = render(messages, tools and any("tool_calls" in message for message in probe.messages))
    except Exception:  # whatever a template raises
        return False
    whole = all(word in given for word in probe.words) and _holds_words(text, sorted(probe.words, key=given.find))
    return whole and _holds_names(text, probe)


def _holds_names(text: str, probe: _Probe) -> bool:
    """Return whether each call's name stands before its arguments, behind what was said before it."""
    places = sorted(text.find(word) for word in probe.words)
    for function in (call["function"] for message in probe.messages for call in message.get("tool_calls", ())):
        at = text.find(function["arguments"]["place"])
        before = places[places.index(at) - 1] if places.index(at) else 0
        if function["name"] not in text[before:at]:
            return False
    return True


def _keeps_prefix(render: _Render, form: TemplateForm, *, tools: bool) -> bool:
    short, long = _make_probe("", "SUWRWR"), _make_probe("", "SUWRWRAU")
    try:
        told, later = (render(form.apply(probe.messages), tools) for probe in (short, long))
    except Exception:  # as above
        return True
    end = told.find(short.words[-1])
    return end < 0 or later.startswith(told[:end])


def _holds_words(text: str, words: Sequence[str]) -> bool:
    places = [text.find(word) for word in words]
    return places == sorted(places) and -1 not in places and all(text.count(word) == 1 for word in words)
