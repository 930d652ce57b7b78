"""Defer the tools of one request on the tiers that do so, and answer its loads (`reliability.deferred_tools`).

A load is an attempt that is neither good nor flawed: the same tier is asked again with the definitions behind the
conversation. The tier itself chooses what it shows (`deployments/tiers/deferred_prompts.py`); here stands what the
client has declared, which each call is judged by.
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
from reliability.tools import Tool, ToolBox, Violation, build_toolbox, id_source
from reliability.types import ChatRequest


def defer(run: Run, tier: str, deferring: Collection[str]) -> ChatRequest:
    """Return the request as a tier is asked it: with its tools deferred where the tier is one of `deferring`, and what
    was loaded behind the conversation."""
    if tier not in deferring:
        return run.request
    if run.loader is None:
        run.loader = choose_loader(run.request)
    if not run.loader:
        return run.request
    messages = run.request.messages + run.loaded
    return replace(run.request, loader=run.loader, messages=messages, added=run.request.added + len(run.loaded))


def expect_loads(run: Run, request: ChatRequest) -> Expected:
    """Return what the request asks of the next answer: where its tools are deferred, the answer may be a load, unless
    the client demands one tool or there were enough."""
    rounds = sum(attempt.loads is not None for attempt in run.attempts)
    if not request.loader or find_named(request.tool_choice) or rounds >= ROUNDS_MAX:
        return run.expected
    box = run.expected.toolbox
    box = replace(box, tools=(*box.tools, _make_tool(request.loader)))
    loaded = [name for attempt in run.attempts for name in attempt.loads or ()]
    listed = frozenset(run.expected.toolbox.names).difference(loaded)
    return replace(run.expected, toolbox=box, loader=request.loader, listed=listed)


def choose_shown(box: ToolBox, request: ChatRequest, violations: Sequence[Violation]) -> ToolBox:
    """Choose the tools that a corrective message lists: where they are deferred, those that were meant and the
    loader, since the prompt has a list."""
    if not request.loader:
        return box
    meant = {violation.tool for violation in violations}
    return ToolBox((*(tool for tool in box.tools if tool.name in meant), _make_tool(request.loader)))


def note_load(run: Run) -> None:
    """Answer the load that the last attempt was, for the next one, and note it in the report."""
    attempt, judged, box = run.attempts[-1], run.judgements[-1], run.expected.toolbox
    if attempt.loads is None or judged is None or not run.loader:
        return
    result = answer_load(attempt.loads, run.request.tools, box)
    words = judged.raw_text.strip() if judged.loads is not None else ""
    call_id = id_source(f"{run.expected.id_seed}/load")(len(run.loaded))
    run.loaded += build_load(run.loader, call_id, attempt.loads, words, result)
    known = [name for name in attempt.loads if box.find(name) is not None]
    run.notes = (*run.notes, f"tier {attempt.tier} loaded tools: {', '.join(known) or 'none'}")


@cache
def _make_tool(loader: str) -> Tool:
    """Make the loader as calls are judged by it: it takes anything, and the result says what was wrong."""
    parameters = {"type": "object", "properties": {"names": {}}}
    box = build_toolbox([{"type": "function", "function": {"name": loader, "parameters": parameters}}])
    assert isinstance(box, ToolBox)
    return box.tools[0]
