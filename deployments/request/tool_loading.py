"""Defer the tools of one request on the tiers that do so, and answer its loads (`reliability.deferred_tools`).

A load is an attempt that is neither good nor flawed: the same tier is asked again with the definitions behind the
conversation. The tier chooses what it shows (`deployments/tiers/deferred_prompts.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from deployments.request.run_record import Run
from reliability.answer.judgement import Expected
from reliability.deferred_tools import (
    ROUNDS_MAX,
    answer_load,
    build_load,
    choose_loader,
    find_named,
)
from reliability.tools import Flaws, Tool, ToolBox, Violation, build_toolbox, id_source
from reliability.types import ChatRequest, Event, Logprobs, Reasoning, Text

_PARAGRAPH = "\n\n"  # between what a model says before it loads tools and what it says behind


def defer(run: Run, tier: str, deferring: Collection[str]) -> ChatRequest:
    """Return the request as a tier is asked it: with its tools deferred where it does so, and what was loaded."""
    if tier not in deferring:
        return run.request
    if run.loader is None:
        run.loader = choose_loader(run.request)
    if not run.loader:
        return run.request
    messages = run.request.messages + run.loaded
    return replace(run.request, loader=run.loader, messages=messages, added=run.request.added + len(run.loaded))


def expect_loads(run: Run, request: ChatRequest) -> Expected:
    """Return what the request asks of the next answer: where tools are deferred, a load may be one."""
    if not request.loader:
        return run.expected
    box, may_load = run.expected.toolbox, _may_load(run, request)
    listed = frozenset(box.names).difference(_list_loaded(run)) if may_load else frozenset[str]()
    box = replace(box, tools=(*box.tools, _make_tool(request.loader)))
    return replace(run.expected, toolbox=box, loader=request.loader, may_load=may_load, listed=listed)


def choose_shown(run: Run, request: ChatRequest, violations: Sequence[Violation]) -> ToolBox:
    """Choose the tools that a corrective message lists: where they are deferred, those that were meant and the loader;
    where it may load no more, those that were loaded."""
    box = run.expected.toolbox
    if not request.loader:
        return box
    meant = {violation.tool for violation in violations}
    if _may_load(run, request):
        return ToolBox((*(tool for tool in box.tools if tool.name in meant), _make_tool(request.loader)))
    meant.update(_list_loaded(run), [find_named(request.tool_choice)])
    return ToolBox(tuple(tool for tool in box.tools if tool.name in meant))


def _may_load(run: Run, request: ChatRequest) -> bool:
    rounds = sum(attempt.loads is not None for attempt in run.attempts)
    return rounds < ROUNDS_MAX and not find_named(request.tool_choice)


def _list_loaded(run: Run) -> list[str]:
    return [name for attempt in run.attempts for name in attempt.loads or ()]


def end_load(run: Run, before: int) -> list[Event]:
    """Answer the load that the last attempt was, and note it. Return what leaves of it: its text, as far as that was
    held, and a paragraph's end. `before`: how many pieces of text had left before it."""
    attempt, judged, box = run.attempts[-1], run.judgements[-1], run.expected.toolbox
    if attempt.loads is None or judged is None or not run.loader:
        return []
    broken = any(violation.kind is Flaws.MALFORMED for violation in judged.violations)
    said = Reasoning if broken else Text | Reasoning | Logprobs  # of a call that can't be read, no word leaves
    left: list[Event] = [event for event in judged.events if isinstance(event, said)]
    words = "".join([*run.delivered[before:], *(event.text for event in left if isinstance(event, Text))]).strip()
    if words:
        left.append(Text(_PARAGRAPH))
    else:
        left = [event for event in left if not isinstance(event, Text)]
    left = run.part_thoughts(left, len(run.attempts) - 1)
    run.note_out(left)
    result = answer_load(attempt.loads, run.request.tools, box)
    call_id = id_source(f"{run.expected.id_seed}/load")(len(run.loaded))
    run.loaded += build_load(run.loader, call_id, attempt.loads, words, result)
    known = [name for name in attempt.loads if box.find(name) is not None]
    run.notes = (*run.notes, f"tier {attempt.tier} loaded tools: {', '.join(known) or 'none'}")
    return left


@cache
def _make_tool(loader: str) -> Tool:
    """Make the loader as calls are judged by it: it takes anything, and the result says what was wrong."""
    parameters = {"type": "object", "properties": {"names": {}}}
    box = build_toolbox([{"type": "function", "function": {"name": loader, "parameters": parameters}}])
    assert isinstance(box, ToolBox)
    return box.tools[0]
