"""Prompts with deferred tools: each of a session's begins as the one before it."""

import asyncio
import dataclasses
import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.deferred_prompts import _SESSIONS_MAX, DeferredPrompts, split_searched
from deployments.tiers.prompt import render
from deployments.tiers.session_prompts import SessionPrompts
from reliability.deferred_tools import answer_load, build_load, read_name
from reliability.tools import build_toolbox
from reliability.types import ChatRequest
from tests.support import tiny_model
from tests.support.many_tools import LINES, TOOLS, make_call, make_tool
from tests.support.mlx_rig import ready
from tests.support.tier_asking import answer, ask, usage_of
from tests.unit.deployments.tiers.test_prompt import Letters

NOW = datetime(2026, 11, 27, 12, 0)
NAMES = list(map(read_name, TOOLS))
ASKED = ask("Do it.", tools=TOOLS, loader="load_tools")
Message = dict[str, Any]


def load(number: int, *names: str) -> tuple[Any, ...]:
    result = answer_load(names, TOOLS, build_toolbox(TOOLS))  # type: ignore[arg-type]
    return build_load("load_tools", f"load_{number}", names, "", result)


def turn(number: int, name: str) -> list[Message]:
    """A call of the client's, its result, and what the user says then."""
    return [
        {"role": "assistant", "content": "", "tool_calls": [make_call(name, f"call_{number}", number=number)]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"},
        {"role": "user", "content": f"And now {number}, with {NAMES[number]}."},
    ]


class Session:
    """One session of a tier: `say` gives the prompt of a request."""

    def __init__(self) -> None:
        self.tokenizer = Letters(LINES)
        self.prompts = SessionPrompts(self.tokenizer)
        self.request = ASKED

    def say(self, messages: list[Any], *loads: Any, **fields: Any) -> str:
        added = [message for pair in loads for message in pair]
        request = dataclasses.replace(ASKED, messages=(*messages, *added), added=len(added), **fields)
        prepared = self.prompts.prepare(request, NOW)
        text = render(self.tokenizer, prepared.request, prepared.at)
        self.prompts.note(prepared, self.tokenizer.encode(text))
        self.request = prepared.request
        return text.removesuffix("<assistant>")


@pytest.mark.parametrize(
    ("searched", "in_results", "behind"),
    [
        ((), NAMES[:2], []),
        (NAMES[:2], NAMES[:2], NAMES[:2]),
        (NAMES[:2], NAMES[:1], NAMES[:1]),  # a client has cleared the other result
        (NAMES, NAMES, []),
    ],
)
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_what_a_search_has_found_isnt_written_twice(separators, searched, in_results, behind) -> None:
    """Law: a tool leaves the head of the prompt only where its definition stands in a result, and one tool stays."""
    text = "\n".join(json.dumps(tool, separators=separators) for tool in TOOLS if read_name(tool) in in_results)
    messages = (*ASKED.messages, {"role": "tool", "tool_call_id": "c", "content": text})
    request = dataclasses.replace(ASKED, messages=messages, searched=frozenset(searched))
    shown, split = split_searched(request)

    assert list(map(read_name, split)) == behind
    assert list(map(read_name, shown.tools)) == [name for name in NAMES if name not in behind]


@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=3), min_size=1, max_size=6), st.data())
def test_each_prompt_begins_as_the_one_before(rounds: list[list[str]], data: st.DataObject) -> None:
    """Law: whatever is loaded in which turn, a request's prompt begins with the last prompt of the request before it:
    kept tools, list and loads stay where they are, and what is shown in full only grows. A load that brings nothing
    ends the prompt of its own request alone."""
    session, messages, before, loaded = Session(), [dict(ASKED.messages[0])], "", set[str]()
    for number, names in enumerate(rounds):
        loads: list[Any] = []
        for at in range(len(names) + 1):
            text = session.say(messages, *loads)
            vain = [name for place, name in enumerate(names[:at]) if name in loaded or name in names[:place]]
            assert text.startswith(before)
            assert text.count("Loaded already") == len(vain)
            before = before if vain else text
            loads += [load(10 * number + at, name) for name in names[at : at + 1]]
        loaded.update(names)
        called = data.draw(st.sampled_from(NAMES))
        messages = [*messages, *turn(number, called)]


def test_the_head_has_what_is_kept_and_a_list_of_the_rest() -> None:
    """Law: each tool is in the head once, in full or in the list; the loader is the last."""
    session = Session()
    session.say([{"role": "user", "content": "Use tool_3."}])
    head = session.request.tools
    listed = head[-1]["function"]["description"]

    assert list(map(read_name, head)) == ["tool_3", "load_tools"]
    assert [name for name in NAMES if f"- {name}:" not in listed] == ["tool_3"]


def test_a_tool_that_is_demanded_is_shown() -> None:
    """Law: `tool_choice` that names a listed tool loads it where the prompt doesn't have it yet, once and for good."""
    session, demanded = Session(), {"type": "function", "function": {"name": "tool_5"}}
    first = session.say([*ASKED.messages])
    second = session.say([*ASKED.messages, *turn(1, "tool_1")], tool_choice=demanded)
    third = session.say([*ASKED.messages, *turn(1, "tool_1"), *turn(2, "tool_5")], tool_choice=demanded)

    assert second.startswith(first)
    assert third.startswith(second)
    assert third.count("What tool_5 works on") == second.count("What tool_5 works on") > 0


def test_what_was_loaded_is_not_written_again() -> None:
    """Law: a definition stands in a prompt once, however often the model loads it, and the prompt stays a prefix; where
    the first load is gone, the next one has it."""
    session, (one, two) = Session(), NAMES[4:6]
    asked: list[Any] = [*ASKED.messages]
    told = {name: json.dumps(TOOLS[NAMES.index(name)]) for name in (one, two)}
    first = session.say(asked, load(0, one), load(1, one, two))
    later = [*asked, *turn(0, one)]
    second = session.say(later, load(2, two, one))

    assert second.startswith(first)
    assert [second.count(told[name]) for name in (one, two)] == [1, 1]
    assert second.count(f"Loaded already: {one}.") == 1
    assert second.count(f"Loaded already: {one}, {two}.\nNow call") == 1
    edited = [{"role": "user", "content": "Do that."}, *turn(1, two)]
    assert session.say(edited, load(3, one)).count(told[one]) == 1


def test_what_no_longer_fits_is_left_out() -> None:
    """Law: a load isn't put into another conversation, key's session or set of tools; its own keeps it."""
    session, said = Session(), [*ASKED.messages, *turn(1, "tool_1")]
    session.say([*ASKED.messages], load(1, "tool_7"))
    assert "load_1" not in session.say([{"role": "user", "content": "Something else."}, *turn(1, "tool_1")])
    for field, value in (("key", "another"), ("session_id", "another"), ("tools", (*TOOLS, make_tool("one_more")))):
        assert "load_1" not in session.say(said, **{field: value})
    assert "load_1" in session.say(said)
    assert "load_1" in session.say(said, tools=TOOLS[::-1])


def test_an_answer_may_call_what_is_listed() -> None:
    """Law: a grammar has all of the client's tools, and where a call is required the loader, until it has loaded."""
    asked = dataclasses.replace(ASKED, tool_choice="required")
    loaded = dataclasses.replace(asked, messages=(*asked.messages, *load(1, "tool_7")), added=2)
    requests = (ASKED, asked, loaded, dataclasses.replace(asked, constrained=True))
    made = [DeferredPrompts().lay_out(one, 0).callable for one in requests]
    assert [len(tools) - len(TOOLS) for tools in made] == [0, 1, 0, 0]
    assert "20 of 20 tools" in DeferredPrompts().lay_out(ASKED, 0).note


def test_an_engine_reads_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: by a real engine's count, a load and a later turn cost their own tokens, which are bytes here; the answer
    notes what was deferred."""
    monkeypatch.setattr(tiny_model, "CONTEXT", 65_536)
    monkeypatch.setattr(tiny_model, "TEMPLATE", LINES)
    tier = ready(model=f"path:{tiny_model.write_folder(tmp_path / 'tiny')}", prompt_cache_bytes=1 << 28)
    later = (*ASKED.messages, *turn(1, "tool_1"))
    found = []
    for messages, loads in ((ASKED.messages, ()), (ASKED.messages, load(1, "tool_7")), (later, ()), (later, ())):
        fields = {"messages": (*messages, *loads), "added": len(loads), "max_tokens": 1, "temperature": 0.0}
        request = dataclasses.replace(ASKED, **fields)
        events = asyncio.run(answer(tier, request))
        assert events[-1].notes == ("20 of 20 tools stood behind load_tools",)
        found.append((usage_of(events).prompt_tokens, usage_of(events).cached_tokens))
    asyncio.run(tier.close())

    opening = len("<assistant>") + 2
    for (before, _), (now, cached) in pairwise(found):
        assert now - cached <= now - before + opening
    assert found[0][0] < sum(len(json.dumps(tool)) for tool in TOOLS) / 4


def test_what_is_held_is_bounded() -> None:
    """Law: at most so many bytes and sessions, the one used longest ago goes first."""

    def of(number: int) -> ChatRequest:
        messages = (*ASKED.messages, *load(number, "tool_7"))
        return dataclasses.replace(ASKED, session_id=f"s{number}", messages=messages, added=2)

    prompts = DeferredPrompts()
    for number in range(_SESSIONS_MAX + 2):
        prompts.lay_out(of(number), 0)
    assert len(prompts._layouts) == _SESSIONS_MAX

    small = DeferredPrompts(bytes_max=prompts.nbytes // _SESSIONS_MAX * 3)
    for number in range(8):
        small.lay_out(of(number), 0)
        assert 0 < small.nbytes <= prompts.nbytes // _SESSIONS_MAX * 3
    assert len(small._layouts) in (2, 3)
