"""Write what an answer must look like as a grammar in llguidance's Lark form: [reasoning] (calls | JSON). Pure.

A demand comes from a required or named `tool_choice`, from `response_format`, and from a constrained re-ask. Calls are
written in the Hermes form. There is one, unless the request asks for several or the model wrote several when it was
free (`calls_tried`): a model that may always add one more call does. Invariant: what can't be enforced is refused by
its field, or noted (schemas of tools, which are checked anyway).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.prompt import refuse
from deployments.tiers.stream_matchers import CallFormat, strict_json_call
from reliability.steps import Steps
from reliability.tools import BadSchema, BadTools, Tool, build_toolbox, compile_schema, parse_choice
from reliability.tools.format_envelopes import HERMES as HERMES_FORMAT
from reliability.tools.schema.references import anchors_of, resolve
from reliability.types import ChatRequest

WHITE_MAX = 8
_GUIDANCE = {"whitespace_flexible": True, "whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{WHITE_MAX}}}"}
_LENIENT = {**_GUIDANCE, "lenient": True, "coerce_one_of": True}
EXACT = "exact"

# An object that says nothing else than these can be closed without making it unsatisfiable.
_PLAIN = frozenset({"type", "properties", "required", "title", "description", "$comment", "default", "examples"})
_PLAIN_ROOT = _PLAIN | {"$defs", "definitions"}
_OUTLINE = ("type", "required", "enum", "const", "minItems", "maxItems")

NODES_MAX = 2_000  # schemas in one schema; `_WORDS_A_NODE` members of an enum count as one
_WORDS_A_NODE = 20
_PATTERNS_MAX = 8  # that must hold for one string together
_VISITS_MAX = 20_000


def narrow(schema: Mapping[str, Any], *, arguments: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (form, schema with llguidance's options), strictest first. `arguments`: of a tool, so an object."""
    root = _as_arguments(schema) if arguments else dict(schema)
    closed = _close_objects(root, root=True)
    yield EXACT, {**closed, "x-guidance": _GUIDANCE}
    yield "lenient", {**closed, "x-guidance": _LENIENT}
    yield "outline", {**_build_outline(root), "x-guidance": _LENIENT}
    yield "any", {"type": "object", "x-guidance": _LENIENT}


def _as_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Make the schema one of arguments, which are an object; one that declares nothing takes nothing."""
    root = {**schema, "type": "object"}
    if root.keys() <= _PLAIN:
        root.setdefault("properties", {})
    return root


def _close_objects(node: Any, *, root: bool = False) -> Any:
    if not isinstance(node, Mapping):
        return node
    new = dict(node)
    if isinstance(new.get("properties"), Mapping):
        new["properties"] = {key: _close_objects(value) for key, value in new["properties"].items()}
        known = node.keys() <= (_PLAIN_ROOT if root else _PLAIN)
        if known and set(new.get("required", ())) <= new["properties"].keys():
            new["additionalProperties"] = False
    if isinstance(new.get("items"), Mapping):
        new["items"] = _close_objects(new["items"])
    return new


def _build_outline(node: Any) -> Any:
    """Return what of a schema every grammar can hold."""
    if not isinstance(node, Mapping):
        return {}
    new = {key: node[key] for key in _OUTLINE if key in node}
    if isinstance(node.get("properties"), Mapping):
        new["properties"] = {key: _build_outline(value) for key, value in node["properties"].items()}
    if isinstance(node.get("items"), Mapping):
        new["items"] = _build_outline(node["items"])
    return new


def find_excess(schema: Mapping[str, Any]) -> str:
    """Explain why a schema is not given to llguidance; empty where it may be."""
    if nodes_of(schema) > NODES_MAX:
        return f"it has more than {NODES_MAX} parts"
    anchors = anchors_of(schema)
    visits = [_VISITS_MAX]
    if any(_count_patterns(node, schema, anchors, visits) > _PATTERNS_MAX for node in _list_nodes(schema)):
        return f"more than {_PATTERNS_MAX} patterns must hold together"
    return ""


def nodes_of(schema: Any) -> int:
    """Count the nodes of a schema."""
    return sum(1 + len(node.get("enum", ())) // _WORDS_A_NODE for node in _list_nodes(schema))


def _list_nodes(schema: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            found.append(node)
            stack += [value for key, value in node.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(node, list):
            stack += node
    return found


def _count_patterns(node: Any, root: Any, anchors: Mapping[str, Any], visits: list[int]) -> int:
    """Count the most patterns that one string must meet in this node; beyond `visits`, too many."""
    visits[0] -= 1
    if visits[0] < 0:
        return _PATTERNS_MAX + 1
    if not isinstance(node, Mapping):
        return 0
    count = int("pattern" in node or "format" in node)
    parts = list(node.get("allOf") or ())
    if isinstance(node.get("$ref"), str):
        parts.append(resolve(root, node["$ref"], anchors))
    for either in ("anyOf", "oneOf"):
        some = node.get(either) or ()
        count += max((_count_patterns(part, root, anchors, visits) for part in some), default=0)
    return count + sum(_count_patterns(part, root, anchors, visits) for part in parts)


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
