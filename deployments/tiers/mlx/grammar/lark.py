"""Write what an answer must look like as a grammar in llguidance's Lark form. Pure.

    request ─▶ GrammarDemand: which calls, which schema ─▶ lark: [reasoning] (calls | JSON)

A demand comes from a required or named `tool_choice`, from `response_format`, and from a constrained re-ask. Calls are
written in the Hermes form, `<tool_call>{"name": …, "arguments": …}</tool_call>`, which most open models are trained on.

One call, unless the request asks for several (`parallel_tool_calls: true`) or the model wrote several when it was free
(`calls_tried`): a model that may always add one more call does. With several, one line break stands between two of
them, and a call that was there already ends the answer (`CallSplit`). Reasoning comes first and is free.

Invariant: what can't be enforced is refused by its field, or noted (schemas of tools, which are checked anyway).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.grammar.schema_relaxation import WHITE_MAX
from deployments.tiers.prompt import refuse
from deployments.tiers.stream_matchers import CallFormat, strict_json_call
from reliability.steps import Steps
from reliability.tools import BadSchema, BadTools, Tool, build_toolbox, compile_schema, parse_choice
from reliability.tools.format_envelopes import HERMES as HERMES_FORMAT
from reliability.types import ChatRequest

__all__ = ["CALLS_MAX", "HERMES", "GrammarDemand", "ThinkTags", "demand_of", "lark"]

CALLS_MAX = 8
HERMES = CallFormat(*HERMES_FORMAT.writes, strict_json_call)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarDemand:
    """What the answer must be: calls of `tools` (at most `calls_max`), or JSON by `schema`; with both, either."""

    tools: tuple[Tool, ...] = ()
    calls_max: int = CALLS_MAX
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """The tags of a model that reasons first. `opened`: the prompt ends inside of the reasoning."""

    start: str
    end: str
    opened: bool


def demand_of(request: ChatRequest) -> GrammarDemand | None:
    """Return what the request demands, or None where it leaves the model free. Raises `RequestRefused`."""
    tools, must = _choose_tools(request)
    schema = _read_schema(request.response_format or {})
    if must:
        return GrammarDemand(tools=tools, calls_max=_calls_max(request))
    return None if schema is None else GrammarDemand(tools=tools, calls_max=_calls_max(request), schema=schema)


def _choose_tools(request: ChatRequest) -> tuple[tuple[Tool, ...], bool]:
    """Return the tools that may be called, and whether one must be."""
    box = build_toolbox(request.tools)
    if isinstance(box, BadTools):
        raise refuse("tools", f"tools: {box.message}")
    choice = parse_choice(request.tool_choice, box)
    if isinstance(choice, BadTools):
        raise refuse("tool_choice", f"tool_choice: {choice.message}")
    tools = tuple(tool for tool in box.tools if choice.may is None or tool.name in choice.may)
    return tools, bool(tools) and (choice.must or request.constrained)


def _calls_max(request: ChatRequest) -> int:
    choice = request.tool_choice
    named = isinstance(choice, Mapping) and choice.get("type") != "allowed_tools"
    if named or request.parallel_tool_calls is False:
        return 1
    if request.parallel_tool_calls:
        return CALLS_MAX
    return min(CALLS_MAX, max(1, request.calls_tried))


def _read_schema(wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    given = wanted.get("json_schema")
    schema = given.get("schema") if isinstance(given, Mapping) else None
    if kind != "json_schema" or not isinstance(schema, Mapping):
        raise refuse("response_format", "response_format: type must be text, json_object, or json_schema with a schema")
    found = compile_schema(schema, Steps(sys.maxsize), arguments=False)  # in draft 2020-12
    if isinstance(found, BadSchema):
        where = f"json_schema.schema{found.path.replace('/', '.')}"
        raise refuse("response_format", f"response_format: {where}: {found.message}")
    return found.schema


def lark(
    tools: Sequence[tuple[str, Mapping[str, Any]]],
    schema: Mapping[str, Any] | None,
    *,
    calls_max: int,
    tags: ThinkTags | None,
    literal: Callable[[str], str],
) -> str:
    """Write the grammar's text. `tools` are names with the schemas of their arguments; `literal` writes a marker."""
    rules = [*_build_start_rules(tags, literal), *_build_call_rules(tools, calls_max, literal)]
    if schema is not None:
        rules.append(f"document: %json {_json(schema)}")
    bodies = [name for name, there in (("calls", tools), ("document", schema is not None)) if there]
    return "\n".join([*rules, f"body: {' | '.join(bodies)}", ""])


def _build_start_rules(tags: ThinkTags | None, literal: Callable[[str], str]) -> list[str]:
    if tags is None:
        return ["start: body"]
    end = literal(tags.end)
    start = "reasoning" if tags.opened else f"({literal(tags.start)} reasoning)?"
    rules = [f"start: {start} white? body", rf"white: /[ \n\r\t]{{1,{WHITE_MAX}}}/"]
    if not end.startswith("<["):
        return [*rules, f"reasoning[suffix={end}]: /(?s:.*)/"]
    # A special token ends any text. The tag's letters would end the reasoning for who reads it, and
    # not for us.
    letters = re.escape(tags.end).replace("/", r"\/")
    return [*rules, f"reasoning: WORDS {end}", rf"WORDS: /(?s:.*)/ & ~/(?s:.*){letters}(?s:.*)/"]


def _build_call_rules(
    tools: Sequence[tuple[str, Mapping[str, Any]]], calls_max: int, literal: Callable[[str], str]
) -> list[str]:
    if not tools:
        return []
    names = [f"tool{i}" for i in range(len(tools))]
    head, tail = literal(HERMES.start), literal(HERMES.end)
    opening, closing = _json('\n{"name": '), _json("}\n")
    more = f' ("\\n" call){{0,{calls_max - 1}}}' if calls_max > 1 else ""
    rules = [f"calls: call{more}", f"call: {head} {opening} ({' | '.join(names)}) {closing} {tail}"]
    for rule, (name, schema) in zip(names, tools, strict=True):
        beginning = json.dumps(name, ensure_ascii=False) + ', "arguments": '
        rules.append(f"{rule}: {_json(beginning)} %json {_json(schema)}")
    return rules


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
