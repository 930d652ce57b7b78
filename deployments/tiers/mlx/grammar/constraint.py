"""Decoding under a grammar: llguidance says which tokens may come next, a mask on the logits sees to it.

    helper thread:  request ─▶ demand ─▶ grammar, compiled and kept ─▶ Constraint (goes with the job)
    engine thread:  Constraint.masker() ─▶ Masker, mlx-lm's logits processor of one sequence

Theory of operation. A `Constraint` is compiled once per grammar and never moves; each sequence gets a copy of its
matcher, which lives on the engine thread and moves with each token. A masker is made anew whenever a sequence is put
into a generator; `masker(done)` takes the tokens that the sequence already has.

One step: start the forward pass (`async_eval`), then read the token that was sampled last, move the matcher, compute
its bit mask (numpy, in the processor, on the CPU) while the forward pass runs, and set all other logits to -inf. The
text can only end (an end token is allowed) where the grammar is complete, so `stop` is never a cut answer.

llguidance never raises: a matcher falls into an error (a grammar too complex for its limits) and stays there. The
masker then raises `Broken`, which ends this one sequence with a fault (see `sampling.Guarded`).

An answer that repeats itself up to its limit is led out of the grammar before it is cut (`closing.py`).

What must never happen: a token that the grammar forbids; an answer that goes on without its grammar.

Measured 2026-11-22 on 2 vCPU AMD EPYC, Linux, no GPU, shared with other work (load 5 to 70), 49,152 tokens, by
`python -m loadtests.grammar_bench` on BFCL cases:
    --alone     per token, no model beside it: move 3 µs, mask 64 (p95 286), apply 81 (2,109 tokens)
    --costs     beside SmolLM2-135M f32, which wants both cores for itself, one request at a time: 1.1 % of a typical
                decode step, 2.1 % of all steps together (268 steps)
    --compile   1,803 cases with 4,257 tools: p50 4.2 ms, p95 20, max 336, on the helper thread, once a grammar;
                0 refused; 2 tools held in part, since no arguments at all can satisfy their schemas
The vocabulary takes 0.6 s of CPU and 30 MiB, once; a masker 5 µs.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.tiers.mlx.grammar.closing import Closers, owed_tokens, turns_in_circles
from deployments.tiers.mlx.grammar.excess import excess, nodes_of
from deployments.tiers.mlx.grammar.lark import Demand, Thinking, demand_of, lark
from deployments.tiers.mlx.grammar.narrowing import EXACT, rungs
from deployments.tiers.mlx.grammar.vocabulary import NoVocabulary, Vocabulary
from deployments.tiers.prompt import Refused
from reliability.tools import Tool
from reliability.types import ChatRequest, Failed, Fault

__all__ = ["Broken", "Constraint", "Constraints", "Masker"]

_LOG = logging.getLogger(__name__)

GRAMMARS_KEPT_MAX = 32
SCHEMAS_KEPT_MAX = 512
TOOLS_NODES_MAX = 20_000  # of all tools in one grammar; those beyond are held to be objects only


class Broken(Exception):
    """The grammar fell into an error while decoding."""


class NoGrammar(Exception):
    """llguidance refuses this grammar. The message is fit for clients."""


class Masker:
    """The logits processor of one sequence. Lives on the engine thread."""

    def __init__(
        self,
        matcher: Any,
        size: int,
        done: Sequence[int] = (),
        *,
        closers: Closers | None = None,
        tokens_max: int = sys.maxsize,
        closing: bool = False,
    ) -> None:
        import numpy as np

        self._mx: Any = importlib.import_module("mlx.core")
        self._matcher, self._size = matcher, size
        self._words = np.zeros((size + 31) // 32, dtype=np.int32)
        self._begun = False
        self._tokens: list[int] = []
        self._closers, self._tokens_max, self.closing = closers, tokens_max, closing
        for token in done:
            self._move(token)

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """The same logits with everything at -inf that the grammar doesn't allow. `tokens`: all so far."""
        self._mx.async_eval(logits)  # the model works while the mask is made
        if self._begun:  # the last token of the prompt is none of the answer's
            self._move(tokens[-1].item())
        self._begun = True
        if self._matcher.is_error():
            raise Broken(self._matcher.get_error())
        return self.apply(self._allowed(logits.shape[-1]), logits)

    def apply(self, allowed: Any, logits: Any) -> Any:
        """Set what isn't allowed to -inf."""
        return self._mx.where(self._mx.array(allowed), logits, -float("inf"))

    def _move(self, token: int) -> None:
        self._tokens.append(token)
        if not self._matcher.is_error() and not self._matcher.consume_token(token):
            _LOG.error("the grammar doesn't go on: %s", self._matcher.get_error())

    def _allowed(self, width: int) -> Any:
        """One truth value per output of the model."""
        import numpy as np

        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        bits = np.unpackbits(self._words.view(np.uint8), count=min(width, self._size), bitorder="little")
        if self._closers is not None and self._must_close(self._closers):
            bits = _closed(bits, self._closers)
        return np.pad(bits, (0, width - len(bits))).view(np.bool_)

    def _must_close(self, closers: Closers) -> bool:
        if not self.closing and self._tokens_max - len(self._tokens) <= closers.owed_tokens:
            self.closing = turns_in_circles(self._tokens)
        return self.closing


def _closed(bits: Any, closers: Closers) -> Any:
    """Only the allowed token that closes most; all that are allowed where none of them does."""
    for rank in closers.ranks:
        if found := [token for token in rank if token < len(bits) and bits[token]]:
            bits = bits * 0
            bits[found] = 1
            return bits
    return bits


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled grammar. `demand` is what it enforces; `notes` say what of it is only checked afterwards. `closers`
    lead out of it (None: a thinking comes first, which has no marks to close)."""

    demand: Demand
    notes: tuple[str, ...]
    matcher: Any
    size: int
    closers: Closers | None = None

    def masker(self, done: Sequence[int] = (), *, tokens_max: int = sys.maxsize, closing: bool = False) -> Masker:
        """The logits processor of a sequence of at most `tokens_max` tokens that already has the tokens `done` behind
        its prompt; `closing`: it was being led out."""
        matcher = self.matcher.deep_copy()
        return Masker(matcher, self.size, done, closers=self.closers, tokens_max=tokens_max, closing=closing)


class Constraints:
    """The grammars of one tokenizer. Used by one thread (the helper's), builds its vocabulary when first needed."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: Vocabulary | NoVocabulary | None = None
        self._matchers: OrderedDict[str, Any] = OrderedDict()
        self._accepted: OrderedDict[str, str] = OrderedDict()

    def of(self, request: ChatRequest, *, opened: bool = False) -> Constraint | None:
        """The constraint that the request demands, or None. `opened`: its prompt ends inside of the thinking.

        Raises:
            Refused: what is demanded can't be enforced here (`unsupported`), or can't be meant (`bad_request`).
        """
        demand = demand_of(request)
        if demand is None:
            return None
        try:
            return self._compiled(demand, self._ready(), self._thinking(opened))
        except (NoVocabulary, NoGrammar) as why:
            if demand.schema is None and request.tool_choice in (None, "auto"):
                # The grammar was the server's own idea; what comes is checked as always.
                _LOG.warning("a constrained re-ask is decoded freely: %s", why)
                return None
            raise _cannot("tool_choice" if demand.schema is None else "response_format", str(why)) from why

    def speller(self) -> Callable[[int], bytes]:
        """What gives the bytes that a token adds to the text; where they aren't known, those of what it looks like."""
        try:
            return self._ready().bytes_of
        except NoVocabulary:
            return lambda token: str(self._tokenizer.decode([token])).encode()

    def _ready(self) -> Vocabulary:
        if self._vocabulary is None:
            try:
                self._vocabulary = Vocabulary(self._tokenizer)
            except NoVocabulary as why:
                self._vocabulary = why
        if isinstance(self._vocabulary, NoVocabulary):
            raise self._vocabulary
        return self._vocabulary

    def _thinking(self, opened: bool) -> Thinking | None:
        tokenizer = self._tokenizer
        return Thinking(tokenizer.think_start, tokenizer.think_end, opened) if tokenizer.has_thinking else None

    def _compiled(self, demand: Demand, words: Vocabulary, thinking: Thinking | None) -> Constraint:
        schema = None if demand.schema is None else self._exact(demand.schema, words)
        tools, notes = self._tools(demand.tools, words)
        text = lark(tools, schema, calls_max=demand.calls_max, thinking=thinking, literal=words.literal)
        matcher = self._matcher(text, words)
        owed = max(map(owed_tokens, [options for _, options in tools] + ([schema] if schema else [])), default=0)
        closers = Closers(words.closers(), owed) if thinking is None else None
        return Constraint(demand, notes, matcher, words.size, closers)

    def _exact(self, schema: Mapping[str, Any], words: Vocabulary) -> Mapping[str, Any]:
        """An answer's schema: nothing checks it behind the model, so it is enforced as it is or refused."""
        _, options = next(rungs(schema, arguments=False))
        wrong = _refusal(options, words)
        if wrong:
            raise NoGrammar(wrong)
        return options

    def _tools(
        self, tools: Sequence[Tool], words: Vocabulary
    ) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        notes: list[str] = []
        room = TOOLS_NODES_MAX
        for tool in tools:
            rung, options = self._rung(tool, words)
            if (size := nodes_of(options)) > room:
                (*_, (rung, options)) = rungs(tool.parameters, arguments=True)
            room -= min(size, room)
            found.append((tool.name, options))
            if rung != EXACT:
                notes.append(f"the grammar holds only part of the schema of tool {tool.name} ({rung}); it is checked")
        return found, tuple(notes)

    def _rung(self, tool: Tool, words: Vocabulary) -> tuple[str, Mapping[str, Any]]:
        """The strictest form of a tool's schema that compiles."""
        key = json.dumps(tool.parameters)
        known = self._accepted.get(key)
        for rung, options in rungs(tool.parameters, arguments=True):
            if known == rung:
                return rung, options
            if known is not None:
                continue
            wrong = _refusal(options, words)
            if not wrong:
                _keep(self._accepted, key, rung, SCHEMAS_KEPT_MAX)
                return rung, options
            _LOG.warning("tool %s: no %s grammar: %s", tool.name, rung, wrong)
        raise AssertionError("any object always compiles")

    def _matcher(self, text: str, words: Vocabulary) -> Any:
        """The compiled grammar, with its first mask computed: that is the slow one, and every copy has it."""
        from llguidance import LLMatcher

        matcher = self._matchers.get(text)
        if matcher is None:
            matcher = LLMatcher(words.trie, LLMatcher.grammar_from_lark(text), log_level=0)
            if not matcher.is_error():
                matcher.compute_bitmask()
            if matcher.is_error():
                raise NoGrammar(_short(matcher.get_error()))
        _keep(self._matchers, text, matcher, GRAMMARS_KEPT_MAX)
        return matcher


def _refusal(schema: Mapping[str, Any], words: Vocabulary) -> str:
    """Why llguidance refuses a schema; empty where it takes it."""
    from llguidance import LLMatcher

    if wrong := excess(schema):
        return wrong
    try:
        grammar = LLMatcher.grammar_from_json_schema(schema)
    except ValueError as error:  # a number beyond 64 bits, say
        return _short(str(error))
    bad, messages = LLMatcher.validate_grammar_with_warnings(grammar, words.trie)
    return _short("; ".join(messages) or "it can't be compiled") if bad else ""


def _short(message: str) -> str:
    return " ".join(message.split("<state>")[0].split())[:300]


def _keep(kept: OrderedDict[str, Any], key: str, value: Any, kept_max: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > kept_max:
        kept.popitem(last=False)


def _cannot(param: str, why: str) -> Refused:
    message = f"this tier can't enforce {param}: {why}"
    return Refused(Failed(fault=Fault.UNSUPPORTED, message=message, param=param))
