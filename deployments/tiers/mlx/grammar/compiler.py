"""Compile a request's grammar with llguidance on a helper thread, and keep what was compiled.

The `Constraint` goes with the job; on the engine thread its `masker()` is mlx-lm's logits processor of one sequence, a
copy of the matcher made anew whenever the sequence is put into a generator.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.grammar.lark import (
    EXACT,
    GrammarDemand,
    ThinkTags,
    demand_of,
    find_excess,
    lark,
    narrow,
    nodes_of,
)
from deployments.tiers.mlx.grammar.masker import Closers, Masker, NoVocabulary, Speller, Vocabulary, count_owed_tokens
from deployments.tiers.prompt import refuse
from deployments.tiers.thinking import ReasoningMarks, find_thinking
from reliability.tools import Tool
from reliability.tools.format_reasoning import MESSAGES
from reliability.types import ChatRequest, Fault

_LOG = logging.getLogger(__name__)

_GRAMMARS_KEPT_MAX = 32
_SCHEMAS_KEPT_MAX = 512
_INTERNALS = re.compile("<state>|<backtrace>")  # of llguidance, at the end of what it says
# Of all tools in one grammar; those beyond are held to be objects only. Where llguidance finds that too much, which it
# says of the whole only, the next is tried: with the last any tools compile.
_TOOLS_NODES_MAX = (20_000, 2_500, 0)


class _NoGrammar(Exception):
    """llguidance refuses this grammar. The message is fit for clients."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled grammar. `demand` is what it enforces; `notes` say what of it is only checked
    afterwards. `closers` close it (None: reasoning comes first, and has no delimiters)."""

    demand: GrammarDemand
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
        self._spelling: Speller | None = None

    @functools.cached_property
    def thinking(self) -> ReasoningMarks | None:
        """The marks between which the model reasons."""
        return find_thinking(self._tokenizer)

    def of(self, request: ChatRequest, *, opened: bool = False) -> Constraint | None:
        """Return the constraint that is demanded, or None. `opened`: within reasoning. Raises `RequestRefused`."""
        demand = demand_of(request)
        if demand is None:
            return None
        try:
            thinking = self.thinking
            # The grammar begins behind the reasoning; not behind marks that a header follows, as in messages.
            free = thinking is None or thinking.row in MESSAGES
            tags = None if free or thinking is None else ThinkTags(thinking.start, thinking.end, opened)
            return self._compile(demand, self._load_vocabulary(), tags)
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

    def load_speller(self) -> Speller | None:
        """Return which tokens go on with which bytes; None where their bytes aren't known."""
        if self._spelling is None:
            with contextlib.suppress(NoVocabulary):
                self._spelling = Speller(self._load_vocabulary())
        return self._spelling

    def _load_vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            try:
                self._vocabulary = Vocabulary(self._tokenizer)
            except NoVocabulary as why:
                self._vocabulary = why
        if isinstance(self._vocabulary, NoVocabulary):
            raise self._vocabulary
        return self._vocabulary

    def _compile(self, demand: GrammarDemand, words: Vocabulary, tags: ThinkTags | None) -> Constraint:
        schema = None
        if demand.schema is not None:  # as it is or not at all: nothing checks it behind the model
            _, schema = next(narrow(demand.schema, arguments=False))
            if wrong := _explain_refusal(schema, words):
                raise _NoGrammar(wrong)
        for nodes_max in _TOOLS_NODES_MAX:
            tools, notes = self._narrow_tools(demand.tools, nodes_max)
            text = lark(tools, schema, calls_max=demand.calls_max, tags=tags, literal=words.literal)
            matcher = self._matcher_of(text)
            if not isinstance(matcher, _NoGrammar):
                break
            if not tools or not nodes_max:
                raise matcher
            _LOG.warning("%d tools are too much for one grammar, and are held more loosely: %s", len(tools), matcher)
        owed = max(map(count_owed_tokens, [options for _, options in tools] + ([schema] if schema else [])), default=0)
        closers = Closers(words.closers(), owed) if tags is None else None
        return Constraint(demand, notes, matcher, words.size, closers)

    def _narrow_tools(
        self, tools: Sequence[Tool], nodes_left: int
    ) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        notes: list[str] = []
        for tool in tools:
            form = self._form_of(tool.name, json.dumps(tool.parameters))
            options = next(held for name, held in narrow(tool.parameters, arguments=True) if name == form)
            if (size := nodes_of(options)) > nodes_left:
                (*_, (form, options)) = narrow(tool.parameters, arguments=True)
            nodes_left -= min(size, nodes_left)
            found.append((tool.name, options))
            if form != EXACT:
                notes.append(f"the grammar holds only part of the schema of tool {tool.name} ({form}); it is checked")
        return found, tuple(notes)

    def _find_form(self, name: str, parameters: str) -> str:
        for form, options in narrow(json.loads(parameters), arguments=True):
            wrong = _explain_refusal(options, self._load_vocabulary())
            if not wrong:
                return form
            _LOG.warning("tool %s: no %s grammar: %s", name, form, wrong)
        raise AssertionError("any object always compiles")

    def _build_matcher(self, text: str) -> Any:
        """Compile the grammar and its first mask, the slow one. A refusal is returned, since it takes as long."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._load_vocabulary().trie, LLMatcher.grammar_from_lark(text), log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return _NoGrammar(_shorten(matcher.get_error())) if matcher.is_error() else matcher


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
