"""Lay out prompts with deferred tools so that each prompt of a session begins as the one before it.

What a session's first request keeps stands at the head of its prompts for good, the other tools behind the loader. A
load stands where it was made: a later request of the client, which has never seen it, gets it put back there.

Invariants: nothing of one API key's session shows in another's; at most `_BYTES_MAX` and `_SESSIONS_MAX` are held, the
session used longest ago goes first. Used by the thread that renders.
"""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from deployments.tiers.prompt import tidy_messages
from reliability.deferred_tools import answer_load, build_load, build_loader, choose_kept, find_named, read_name
from reliability.steps import Steps
from reliability.tools import ToolBox, build_toolbox, id_source
from reliability.types import ChatRequest

_BYTES_MAX, _SESSIONS_MAX, _LOADS_MAX = 8 * 1024 * 1024, 1_024, 64
_NAMED = re.compile(r'"name": ?"([^"]+)"')
_SESSION_BYTES = 512  # of a session without names and loads, about

_Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Load:
    """A load and its result, which stand before message `at` of the client, behind one of this digest."""

    at: int
    behind: int
    messages: tuple[_Message, ...]

    @property
    def nbytes(self) -> int:
        return sum(len(str(message)) for message in self.messages)


@dataclass(slots=True)
class _Layout:
    """What a session's prompts hold of its tools: the `kept` in full, and the loads, the oldest first."""

    kept: frozenset[str]
    loads: tuple[_Load, ...] = ()

    @property
    def nbytes(self) -> int:
        return _SESSION_BYTES + sum(map(len, self.kept)) + sum(load.nbytes for load in self.loads)


@dataclass(frozen=True, slots=True)
class DeferredPrompt:
    """`request` as it is to be rendered; `callable`: the tools that its answer may call; `note`: for the report."""

    request: ChatRequest
    callable: tuple[Mapping[str, Any], ...]
    note: str = ""


def split_searched(request: ChatRequest) -> tuple[ChatRequest, tuple[Mapping[str, Any], ...]]:
    """Split off the tools whose definitions the conversation has, where its client's own search has found them. Where
    none would be left at the head of the prompt, all stay: without tools a template says nothing of calls."""
    if not request.searched:
        return request, ()
    results = [str(message.get("content")) for message in request.messages if message.get("role") == "tool"]
    named = {name for text in results for name in _NAMED.findall(text)}
    behind = tuple(tool for tool in request.tools if read_name(tool) in named & request.searched)
    shown = tuple(tool for tool in request.tools if tool not in behind)
    return (replace(request, tools=shown), behind) if behind and shown else (request, ())


class DeferredPrompts:
    """The layouts of one tier's sessions, by their tools, the one used longest ago first."""

    def __init__(self, *, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._layouts: OrderedDict[tuple[str, str, int], _Layout] = OrderedDict()
        self.nbytes = 0

    def lay_out(self, request: ChatRequest, tools_digest: int) -> DeferredPrompt:
        """Lay out a request whose tools are deferred. `tools_digest`: of its tools, in whatever order."""
        client = request.messages[: len(request.messages) - request.added]
        added = request.messages[len(client) :]
        key = (request.key, request.session_id, tools_digest)
        layout = self._layouts.pop(key, None)
        self.nbytes -= layout.nbytes if layout else 0
        layout = layout or _Layout(choose_kept(client, request.tools, request.tool_choice))
        made = _find_loads(added, request.loader)
        behind = _digest(client)
        fitting = [load for load in _list_fitting(layout, client) if load.at < len(client)]
        shown = _list_shown(layout, fitting)
        new = []
        for load in (*made, *_force_load(request, layout, client)):
            new.append(_Load(len(client), behind, _drop_shown(load, shown)))
            shown |= _list_defined(load)
        useful = [load for load in new if _list_defined(load.messages) and load not in layout.loads]
        layout.loads = (*layout.loads, *useful)[-_LOADS_MAX:]
        self._layouts[key] = layout
        self.nbytes += layout.nbytes
        while self.nbytes > self._bytes_max or len(self._layouts) > _SESSIONS_MAX:
            _, oldest = self._layouts.popitem(last=False)
            self.nbytes -= oldest.nbytes
        vain = tuple(load for load in new if not _list_defined(load.messages))  # a later prompt would invite another
        rest = [message for message in added if not any(message in load for load in made)]
        return _write(request, replace(layout, loads=(*layout.loads, *vain)), client, rest)


def _write(request: ChatRequest, layout: _Layout, client: Sequence[_Message], rest: list[_Message]) -> DeferredPrompt:
    kept = tuple(tool for tool in request.tools if read_name(tool) in layout.kept)
    listed = [tool for tool in request.tools if read_name(tool) not in layout.kept]
    if not listed:
        return DeferredPrompt(request, request.tools)
    loader = build_loader(request.loader, listed)
    loads, messages = _list_fitting(layout, client), list(client)
    for load in reversed(loads):
        messages[load.at : load.at] = load.messages
    # A grammar that demands a call allows one load.
    free = request.tool_choice == "required" and not request.constrained
    loaded = any(load.at == len(client) for load in loads)
    return DeferredPrompt(
        replace(request, messages=(*messages, *rest), tools=(*kept, loader)),
        (*request.tools, loader) if free and not loaded else request.tools,
        f"{len(listed)} of {len(request.tools)} tools stood behind {request.loader}",
    )


def _list_fitting(layout: _Layout, client: Sequence[_Message]) -> list[_Load]:
    near = [load for load in layout.loads if load.at <= len(client)]
    return sorted((load for load in near if _digest(client[: load.at]) == load.behind), key=lambda load: load.at)


def _find_loads(added: Sequence[_Message], loader: str) -> list[tuple[_Message, ...]]:
    pairs = [(call, result) for call, result in pairwise(added) if result.get("role") == "tool"]
    return [(call, result) for call, result in pairs if loader in map(find_named, call.get("tool_calls") or ())]


def _list_shown(layout: _Layout, loads: Sequence[_Load]) -> frozenset[str]:
    return layout.kept.union(*(_list_defined(load.messages) for load in loads))


def _list_defined(load: Sequence[_Message]) -> frozenset[str]:
    """List the tools whose definitions a load's result has, a line each."""
    lines = str(load[-1].get("content")).split("\n")
    return frozenset(read_name(json.loads(line)) for line in lines if line.startswith("{"))


def _drop_shown(load: tuple[_Message, ...], shown: frozenset[str]) -> tuple[_Message, ...]:
    """Leave out of a load the definitions that stand before it: small models load a tool before each call of it."""
    again = sorted(_list_defined(load) & shown)
    if not again:
        return load
    lines = str(load[-1].get("content")).split("\n")
    left = [line for line in lines if not line.startswith("{") or read_name(json.loads(line)) not in shown]
    return *load[:-1], {**load[-1], "content": "\n".join([f"Loaded already: {', '.join(again)}.", *left])}


def _digest(messages: Sequence[_Message]) -> int:
    return hash(repr(tidy_messages(messages[-1:])))


def _force_load(request: ChatRequest, layout: _Layout, client: Sequence[_Message]) -> list[tuple[_Message, ...]]:
    """Build the load of the tool that the client demands, where the prompt doesn't have it yet."""
    name = find_named(request.tool_choice)
    if not name or name in _list_shown(layout, _list_fitting(layout, client)):
        return []
    steps = Steps(sys.maxsize, owner=request.key)
    box = build_toolbox([tool for tool in request.tools if read_name(tool) == name], steps=steps)
    if not isinstance(box, ToolBox) or not box.tools:
        return []
    call_id = id_source(f"{request.request_id}/forced")(0)
    return [build_load(request.loader, call_id, [name], "", answer_load([name], request.tools, box))]
