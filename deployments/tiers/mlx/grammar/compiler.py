"""Compile a request's grammar with llguidance on a helper thread, and keep what was compiled.

What an answer must look like is written in llguidance's Lark form: [reasoning] (calls | JSON). A demand comes from a
required or named `tool_choice`, from `response_format`, and from a constrained re-ask. Calls are written in the Hermes
form: one, unless the request asks for several or the model wrote several when it was free (`calls_tried`), since a
model that may always add one more call does. The `Constraint` goes with the job. Invariant: what can't be enforced is
refused by its field, or noted (schemas of tools, which are checked anyway).
"""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.grammar.masker import Closers, Masker, NoVocabulary, Speller, Vocabulary
from deployments.tiers.mlx.grammar.schema_relaxation import EXACT, WHITE_MAX, find_excess, narrow, nodes_of
from deployments.tiers.prompt import refuse
from deployments.tiers.stream_matchers import CallFormat, strict_json_call
from deployments.tiers.thinking import ReasoningMarks, find_thinking
from reliability.steps import Steps
from reliability.tools import BadSchema, BadTools, Tool, build_toolbox, compile_schema, parse_choice
from reliability.tools.format_envelopes import HERMES as HERMES_FORMAT
from reliability.tools.format_reasoning import MESSAGES
from reliability.types import ChatRequest, Fault

_LOG = logging.getLogger(__name__)

_CALLS_MAX = 8
HERMES = CallFormat(*HERMES_FORMAT.writes, strict_json_call)
_GRAMMARS_KEPT_MAX = 32
_SCHEMAS_KEPT_MAX = 512
_BASE_TOKENS = 24  # what closing takes: the delimiters themselves, and the end of a call
_KEY_TOKENS = 8  # a key's delimiters, and an empty value
_INTERNALS = re.compile("<state>|<backtrace>")  # of llguidance, at the end of what it says
# Of all tools in one grammar; those beyond are held to be objects only. Where llguidance finds that too much, which it
# says of the whole only, the next is tried: with the last any tools compile.
_TOOLS_NODES_MAX = (20_000, 2_500, 0)


class _NoGrammar(Exception):
    """llguidance refuses this grammar. The message is fit for clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """What the answer must be: calls of `tools` (at most `calls_max`), or JSON by `schema`; with both, either. `owner`:
    the API key that it is of; no other's grammars save it time, which would tell what the other sent."""

    tools: tuple[Tool, ...] = ()
    calls_max: int = _CALLS_MAX
    schema: Mapping[str, Any] | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled grammar for `demand`. `notes` say what of it is only checked afterwards. `closers` None: reasoning
    comes first, and has no delimiters."""

    demand: _Demand
    notes: tuple[str, ...]
    matcher: Any
    size: int
    closers: Closers | None = None

    def masker(self, done: Sequence[int] = (), *, tokens_max: int = sys.maxsize, closing: bool = False) -> Masker:
        """Make the logits processor of a sequence that already has the tokens `done`, and may be `closing`."""
        matcher = self.matcher.deep_copy()
        return Masker(matcher, self.size, done, closers=self.closers, tokens_max=tokens_max, closing=closing)


class Constraints:
    """The grammars of one tokenizer. Used by one thread (the helper's), builds its vocabulary when first needed."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: Vocabulary | NoVocabulary | None = None
        self._matcher_of = functools.lru_cache(_GRAMMARS_KEPT_MAX)(self._build_matcher)
        self._form_of = functools.lru_cache(_SCHEMAS_KEPT_MAX)(self._find_form)

    @functools.cached_property
    def thinking(self) -> ReasoningMarks | None:
        """The marks between which the model reasons."""
        return find_thinking(self._tokenizer)

    def of(self, request: ChatRequest, *, opened: bool = False) -> Constraint | None:
        """Return the constraint that is demanded, or None. `opened`: within reasoning. Raises `RequestRefused`."""
        demand = _read_demand(request)
        if demand is None:
            return None
        try:
            thinking = self.thinking
            if thinking is not None and thinking.row in MESSAGES:
                thinking = None  # the grammar begins behind the reasoning, but not behind marks that a header follows
            return self._compile(demand, self._load_vocabulary(), thinking, opened)
        except (NoVocabulary, _NoGrammar) as why:
            if demand.schema is None and request.tool_choice in (None, "auto"):
                # The grammar was the server's own idea; what comes is checked as always.
                _LOG.warning("a constrained re-ask is decoded freely: %s", why)
                return None
            param = "tool_choice" if demand.schema is None else "response_format"
            raise refuse(param, f"this tier can't enforce {param}: {why}", Fault.UNSUPPORTED) from why

    def speller(self) -> Callable[[int], bytes]:
        """Return a function that gives the bytes of a token; where they aren't known, of what it looks like."""
        try:
            return self._load_vocabulary().bytes_of
        except NoVocabulary:
            return lambda token: str(self._tokenizer.decode([token])).encode()

    @functools.cached_property
    def spelling(self) -> Speller | None:
        """Which tokens go on with which bytes; None where their bytes aren't known."""
        try:
            return Speller(self._load_vocabulary())
        except NoVocabulary:
            return None

    def _load_vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            try:
                self._vocabulary = Vocabulary(self._tokenizer)
            except NoVocabulary as why:
                self._vocabulary = why
        if isinstance(self._vocabulary, NoVocabulary):
            raise self._vocabulary
        return self._vocabulary

    def _compile(self, demand: _Demand, words: Vocabulary, thinking: ReasoningMarks | None, opened: bool) -> Constraint:
        start, schema = _write_start_rules(thinking, opened, words.literal), None
        if demand.schema is not None:  # as it is or not at all: nothing checks it behind the model
            _, schema = next(narrow(demand.schema, arguments=False))
            if wrong := _explain_refusal(schema, words):
                raise _NoGrammar(wrong)
        for nodes_max in _TOOLS_NODES_MAX:
            tools, notes = self._narrow_tools(demand, nodes_max)
            text = _write_lark(start, _write_call_rules(tools, demand.calls_max, words.literal), schema)
            matcher = self._matcher_of(demand.owner, text)
            if not isinstance(matcher, _NoGrammar):
                break
            if not tools or not nodes_max:
                raise matcher
            _LOG.warning("%d tools are too much for one grammar, and are held more loosely: %s", len(tools), matcher)
        owed = max(map(_count_owed, [options for _, options in tools] + ([schema] if schema else [])), default=0)
        closers = Closers(words.closers(), _BASE_TOKENS + owed) if thinking is None else None
        return Constraint(demand, notes, matcher, words.size, closers)

    def _narrow_tools(
        self, demand: _Demand, nodes_left: int
    ) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        notes: list[str] = []
        for tool in demand.tools:
            form = self._form_of(demand.owner, tool.name, json.dumps(tool.parameters))
            options = next(held for name, held in narrow(tool.parameters, arguments=True) if name == form)
            if (size := nodes_of(options)) > nodes_left:
                (*_, (form, options)) = narrow(tool.parameters, arguments=True)
            nodes_left -= min(size, nodes_left)
            found.append((tool.name, options))
            if form != EXACT:
                notes.append(f"the grammar holds only part of the schema of tool {tool.name} ({form}); it is checked")
        return found, tuple(notes)

    def _find_form(self, _: str, name: str, parameters: str) -> str:
        for form, options in narrow(json.loads(parameters), arguments=True):
            wrong = _explain_refusal(options, self._load_vocabulary())
            if not wrong:
                return form
            _LOG.warning("tool %s: no %s grammar: %s", name, form, wrong)
        raise AssertionError("any object always compiles")

    def _build_matcher(self, _: str, text: str) -> Any:
        """Compile the grammar and its first mask, the slow one. A refusal is returned, since it takes as long."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._load_vocabulary().trie, LLMatcher.grammar_from_lark(text), log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return _NoGrammar(_shorten(matcher.get_error())) if matcher.is_error() else matcher


def _count_owed(node: Any) -> int:
    """Count the tokens that the required keys of a schema may take, from above."""
    if isinstance(node, Mapping):
        required = node.get("required")
        keys = required if isinstance(required, list | tuple) else ()
        return sum(_KEY_TOKENS + len(str(key)) for key in keys) + sum(map(_count_owed, node.values()))
    return sum(map(_count_owed, node)) if isinstance(node, list | tuple) else 0


def _explain_refusal(schema: Mapping[str, Any], words: Vocabulary) -> str:
    """Explain why llguidance refuses a schema; empty where it takes it."""
    from llguidance import LLMatcher

    if wrong := find_excess(schema):
        return wrong
    try:
        grammar = LLMatcher.grammar_from_json_schema(schema)
    except ValueError as error:  # a number beyond 64 bits, say
        return _shorten(str(error))
    bad, messages = LLMatcher.validate_grammar_with_warnings(grammar, words.trie)
    return _shorten("; ".join(messages) or "it can't be compiled") if bad else ""


def _shorten(message: str) -> str:
    return " ".join(_INTERNALS.split(message)[0].split())[:300]


def _read_demand(request: ChatRequest) -> _Demand | None:
    """Return what the request demands, or None where it leaves the model free. Raises `RequestRefused`."""
    tools, must = _choose_tools(request)
    schema = _read_schema(request.response_format or {}, request.key)
    if not must and schema is None:
        return None
    return _Demand(tools=tools, calls_max=_calls_max(request), schema=None if must else schema, owner=request.key)


def _choose_tools(request: ChatRequest) -> tuple[tuple[Tool, ...], bool]:
    box = build_toolbox(request.tools, steps=Steps(sys.maxsize, owner=request.key))
    if isinstance(box, BadTools):
        raise refuse("tools", f"tools: {box.message}")
    choice = parse_choice(request.tool_choice, box)
    if isinstance(choice, BadTools):
        raise refuse("tool_choice", f"tool_choice: {choice.message}")
    tools = tuple(tool for tool in box.tools if choice.may is None or tool.name in choice.may)
    tools = tuple(tool for tool in tools if not request.must_look or tool.name in request.must_look)
    return tools, bool(tools) and (choice.must or request.constrained)


def _calls_max(request: ChatRequest) -> int:
    choice = request.tool_choice
    named = isinstance(choice, Mapping) and choice.get("type") != "allowed_tools"
    if named or request.parallel_tool_calls is False:
        return 1
    if request.parallel_tool_calls:
        return _CALLS_MAX
    return min(_CALLS_MAX, max(1, request.calls_tried))


def _read_schema(wanted: Mapping[str, Any], owner: str) -> Mapping[str, Any] | None:
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    given = wanted.get("json_schema")
    schema = given.get("schema") if isinstance(given, Mapping) else None
    if kind != "json_schema" or not isinstance(schema, Mapping):
        raise refuse("response_format", "response_format: type must be text, json_object, or json_schema with a schema")
    found = compile_schema(schema, Steps(sys.maxsize, owner=owner), arguments=False)  # in draft 2020-12
    if isinstance(found, BadSchema):
        where = f"json_schema.schema{found.path.replace('/', '.')}"
        raise refuse("response_format", f"response_format: {where}: {found.message}")
    return found.schema


def _write_lark(start: Sequence[str], calls: Sequence[str], schema: Mapping[str, Any] | None) -> str:
    """Write the grammar's text, of the rules for its start and for calls, and the schema of a JSON answer."""
    document = [] if schema is None else [f"document: %json {_json(schema)}"]
    bodies = [name for name, there in (("calls", calls), ("document", document)) if there]
    return "\n".join([*start, *calls, *document, f"body: {' | '.join(bodies)}", ""])


def _write_start_rules(thinking: ReasoningMarks | None, opened: bool, literal: Callable[[str], str]) -> list[str]:
    """Write how an answer begins. `opened`: within reasoning; `literal` writes a marker."""
    if thinking is None:
        return ["start: body"]
    end = literal(thinking.end)
    start = "reasoning" if opened else f"({literal(thinking.start)} reasoning)?"
    rules = [f"start: {start} white? body", rf"white: /[ \n\r\t]{{1,{WHITE_MAX}}}/"]
    if not end.startswith("<["):
        return [*rules, f"reasoning[suffix={end}]: /(?s:.*)/"]
    # A special token ends any text. The tag's letters would end the reasoning for who reads it, and not for us.
    letters = re.escape(thinking.end).replace("/", r"\/")
    return [*rules, f"reasoning: WORDS {end}", rf"WORDS: /(?s:.*)/ & ~/(?s:.*){letters}(?s:.*)/"]


def _write_call_rules(
    tools: Sequence[tuple[str, Mapping[str, Any]]], calls_max: int, literal: Callable[[str], str]
) -> list[str]:
    """Write how calls look. `tools` are names with the schemas of their arguments."""
    if not tools:
        return []
    names = [f"tool{i}" for i in range(len(tools))]
    head, tail = literal(HERMES.start), literal(HERMES.end)
    opening, closing = _json('\n{"name": '), _json("}\n")
    more = f' ("\\n" call){{0,{calls_max - 1}}}' if calls_max > 1 else ""
    rules = [f"calls: call{more}", f"call: {head} {opening} ({' | '.join(names)}) {closing} {tail}"]
    for rule, (name, schema) in zip(names, tools, strict=True):
        beginning = f'{_json(name)}, "arguments": '
        rules.append(f"{rule}: {_json(beginning)} %json {_json(schema)}")
    return rules


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
