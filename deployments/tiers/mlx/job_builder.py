"""Build the job that the engine takes from a request: rendered, counted, with its grammar and its settings.

Used by one thread, the tier's helper, since a tokenizer isn't thread-safe. An answer may begin with text that another
attempt has written: it becomes tokens of the answer, so that grammar, penalties, stop strings and the seed's stream are
where they would be. It may end within a token, so its last word is forced byte by byte (`ForcedBytes`) and not sent.

Invariant: no character differs from what stands, and none is missing (`SequenceState` compares).
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from deployments.tiers.deferred_prompts import split_searched
from deployments.tiers.lazy_mlx import mx
from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.grammar.compiler import HERMES, Constraint, Constraints
from deployments.tiers.mlx.grammar.masker import ForcedBytes, Speller
from deployments.tiers.mlx.loading import Loaded, call_format
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptReuse
from deployments.tiers.mlx.sampling import Processor, read_sampling
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.prompt import find_checkpoints, refuse, render
from deployments.tiers.session_prompts import Prepared, SessionPrompts
from deployments.tiers.stream_matchers import AnswerReader, CallFormat
from deployments.tiers.thinking import ReasoningMarks, find_opened
from deployments.tiers.thought_watch import ThoughtLimit
from reliability.deferred_tools import choose_loader
from reliability.escalation.refusals import figure
from reliability.prefix import LostPrefix
from reliability.thinking import least, leave_room
from reliability.tools.format_reasoning import MESSAGES, Thought
from reliability.tools.turns import GIVEN_RESULT
from reliability.types import ChatRequest, Event, Fault

_MARK_BEGUN = re.compile(r"[Ġ▁ ]?<\|.{0,40}")  # not `<` alone: many models' calls begin with it
_BLANK_TOKENS_MAX = 8  # of white space, behind which an end is an end
# A tokenizer cuts a text into words first, each with the white space before it. What is longer than this isn't one.
_WORD_CHARS_MAX = 64
_ROOM_TOKENS = 256  # that a prompt leaves for an answer at least: with less a call or sentence is cut off
_ANSWER_SHARE = 8  # of the context, at which reminders that moved leave it to an answer
_LAST_WORD = re.compile(r"\s+\S*\Z|\S+\Z")


class JobBuilder:
    """The jobs of one tier, for its model. `temperature`: the tier's own, None for the model's."""

    def __init__(self, loaded: Loaded, *, temperature: float | None, reasoning_tokens_max: int | None) -> None:
        self._loaded, self._tokenizer = loaded, loaded.tokenizer
        self._defaults = loaded.sampling
        if temperature is not None:
            self._defaults = dataclasses.replace(self._defaults, temperature=temperature)
        self._reasoning_tokens_max = reasoning_tokens_max
        self._constraints, self._sessions = Constraints(loaded.tokenizer), SessionPrompts(loaded.tokenizer)

    def build(self, request: ChatRequest, sink: Callable[[list[Event]], None]) -> tuple[EngineJob, LostPrefix | None]:
        """Build the job, and find what of the session's last prompt it can't continue. Raises `RequestRefused`."""
        loaded, tokenizer = self._loaded, self._tokenizer
        asked, behind = split_searched(request)
        prepared, text, prompt = self._render(asked)
        rendered = request = prepared.request
        deferred = prepared.deferred
        if request.summarizes:  # its tools are there to be read, if they are
            request, deferred = dataclasses.replace(request, tools=asked.tools, tool_choice=asked.tool_choice), None
        if deferred is not None or behind:
            callable_tools = request.tools if deferred is None else deferred.callable
            request = dataclasses.replace(request, tools=(*callable_tools, *behind))
        constraints, top, think = self._constraints, request.top_logprobs, self._constraints.thinking
        inside = find_opened(text, think)
        speller = constraints.spelling if request.begun else None
        resumed = _resume(tokenizer, speller, request.begun, request.begun_reasoning, think, opened=inside is not None)
        left_tokens = loaded.context_tokens - len(prompt) - len(resumed.tokens)
        room = 1 if request.begun else min(request.max_tokens, _ROOM_TOKENS, max(1, loaded.context_tokens // 16))
        if left_tokens < room:
            message = _describe_excess(left_tokens, loaded.context_tokens, rendered, text)
            raise refuse("messages", message, Fault.CONTEXT_LENGTH)
        request = dataclasses.replace(request, max_tokens=max(1, min(request.max_tokens, left_tokens)))
        constraint = constraints.of(request, opened=inside is not None)
        checkpoints = find_checkpoints(
            tokenizer, rendered, prompt, turns=not loaded.cuttable, at=prepared.at, form=loaded.form
        )
        job = EngineJob(
            prompt=prompt,
            # What is written once more isn't taken off what the client may have.
            max_tokens=len(resumed.tokens) + max(1, min(request.max_tokens + resumed.again, left_tokens)),
            sampling=read_sampling(request, self._defaults, loaded.vocabulary),
            reader=_open_reader(request, constraint, tokenizer, think, inside),
            sink=sink,
            deadline_s=time.monotonic() + request.timeout_s,
            thought=self._limit_thought(request, think, free=constraint is None),
            turn_start=loaded.turn_start,
            written=resumed.tokens,
            begun=request.begun,
            processors=self._list_processors(request, len(prompt), resumed, free=constraint is None),
            constraint=constraint,
            logprob_reader=None if top is None else LogprobReader(constraints.speller(), top),
            reuse=_describe_reuse(request, checkpoints),
            notes=(deferred.note,) if deferred is not None and deferred.note else (),
        )
        return job, self._sessions.note(prepared, prompt)

    def _render(self, asked: ChatRequest) -> tuple[Prepared, str, list[int]]:
        """Render a request as the session's last ones, if that leaves the place of its answer."""
        now, context_tokens = datetime.now(), self._loaded.context_tokens
        for keep in (True, False):
            prepared = self._sessions.prepare(asked, now, keep=keep)
            text = render(self._tokenizer, prepared.request, prepared.at, self._loaded.form)
            prompt = self._tokenizer.encode(text, add_special_tokens=False)
            answer = min(asked.max_tokens, context_tokens // _ANSWER_SHARE)  # agents ask for 32,000
            if not prepared.kept or len(prompt) + answer <= context_tokens:
                break
        return prepared, text, prompt

    def _limit_thought(self, request: ChatRequest, think: ReasoningMarks | None, *, free: bool) -> ThoughtLimit:
        if think is None:
            return ThoughtLimit()
        opener = self._tokenizer.encode(think.start, add_special_tokens=False)
        banned = (*self._loaded.turn_start[:1], *(opener if len(opener) == 1 else ()))
        # Many templates open a thought whatever they are told. One that is a message of its own leads on to calls, too.
        off = 0 if request.thinking is False and think.row not in MESSAGES else None
        budget = least(self._reasoning_tokens_max, request.thinking_tokens_max, off)
        if budget is None or budget >= request.max_tokens:
            budget = request.max_tokens - leave_room(request.max_tokens)
        return ThoughtLimit(
            budget,
            think.encode_closing(self._tokenizer),
            partial(_forbid_silence, self._tokenizer, banned) if free else None,
        )

    def _list_processors(
        self, request: ChatRequest, prompt_tokens: int, resumed: _Resumed, *, free: bool
    ) -> list[Processor]:
        found: list[Processor] = []
        if request.must_speak and free:  # a grammar decides itself with what an answer begins
            found.append(_forbid_silence(self._tokenizer, self._loaded.turn_start[:1], prompt_tokens))
        if free and request.tools and any(message.get("role") == "tool" for message in request.messages):
            found += _forbid_result(self._tokenizer, prompt_tokens)
        speller = self._constraints.spelling if resumed.rest else None
        if speller is not None:
            found.append(ForcedBytes(speller, resumed.rest, prompt_tokens + len(resumed.tokens)))
        return found


def _describe_excess(left_tokens: int, context_tokens: int, rendered: ChatRequest, text: str) -> str:
    """Say by how much a prompt is too long and, where its tools are over half of its `text`, how to shorten those."""
    count, most = figure(context_tokens - left_tokens), figure(context_tokens)
    message = f"the prompt has {count} tokens; this tier's context holds {most}"
    message += f", which leaves {left_tokens} for an answer" if left_tokens > 0 else ""
    tools = rendered.tools
    if 2 * sum(len(json.dumps(tool, ensure_ascii=False)) for tool in tools) <= len(text):
        return message
    defer = " or set `tools: deferred` for this tier" if not rendered.loader and choose_loader(rendered) else ""
    return f"{message}; over half of it are the {len(tools)} tools: declare fewer{defer}"


def _describe_reuse(request: ChatRequest, checkpoints: Sequence[int]) -> PromptReuse:
    return PromptReuse(
        owner=request.key,
        keep=request.keep,
        checkpoints=checkpoints,
        session=(request.key, request.session_id),
        parent=(request.key, request.parent) if request.parent else None,
    )


def _open_reader(
    request: ChatRequest,
    constraint: Constraint | None,
    tokenizer: Any,
    think: ReasoningMarks | None,
    inside: Thought | None,
) -> AnswerReader:
    """Open the reader of the answer: its calls are written as the grammar has it, else as the model does."""
    calls: CallFormat | None
    if constraint is not None:
        calls, calls_max = (HERMES, constraint.demand.calls_max) if constraint.demand.tools else (None, None)
    else:
        calls = None if request.tool_choice == "none" else call_format(tokenizer, request.tools)
        calls_max = 1 if request.parallel_tool_calls is False else None
    return AnswerReader(
        stops=request.stop,
        think=None if think is None else think.row,
        inside=inside,
        calls=calls,
        calls_max=calls_max,
        distinct=constraint is not None,
    )


def _forbid_silence(tokenizer: Any, openers: Sequence[int], prompt_tokens: int) -> Processor:
    """Build a processor under which an answer doesn't end, nor begins with one of the `openers`, before there is a word
    of it. It begins with the likeliest that is left: chance would draw anything where hardly anything was likely."""
    # Forbidden the token, a model spells it: `<|`, `im`, `_start`, `|>`.
    words, special = tokenizer.get_vocab().items(), set(tokenizer.all_special_ids)
    spelled = [token for text, token in words if token not in special and _MARK_BEGUN.fullmatch(text)]
    banned = mx.array(sorted({*tokenizer.eos_token_ids, *openers, *spelled}))

    def process(tokens: Any, logits: Any) -> Any:
        written = tokens.size - prompt_tokens
        if written >= _BLANK_TOKENS_MAX or (written and tokenizer.decode(tokens[prompt_tokens:].tolist()).strip()):
            return None
        logits[:, banned] = -mx.inf
        likeliest = mx.argmax(logits, axis=-1, keepdims=True)
        return mx.where(mx.arange(logits.shape[-1]) == likeliest, logits, -mx.inf)

    return process


def _forbid_result(tokenizer: Any, prompt_tokens: int) -> list[Processor]:
    """Build the processor under which an answer doesn't begin with the mark that the template puts before the results
    of tools: small models copy it, and make up a result. None where the template has no such mark."""
    template = tokenizer.chat_template
    mark = GIVEN_RESULT.search(template) if isinstance(template, str) else None
    if mark is None:
        return []
    # The first token that tells the mark from all else in the template (`<tool_call>`), and the text before it.
    tokens, call = tokenizer.encode(mark[0], add_special_tokens=False), tokenizer.tool_call_start or ""
    heads = [tokenizer.decode(tokens[:count]) for count in range(len(tokens) + 1)]
    given = template.count(mark[0])
    tells = (template.count(head) == given and len(head) > 1 and not call.startswith(head) for head in heads[1:])
    if (place := next((count for count, one in enumerate(tells) if one), None)) is None:
        return []

    def process(seen: Any, logits: Any) -> Any:
        written = seen.size - prompt_tokens
        begun = tokenizer.decode(seen[prompt_tokens:].tolist()).lstrip() if written <= _BLANK_TOKENS_MAX else ""
        if written > _BLANK_TOKENS_MAX or not heads[place].startswith(begun):
            return None
        if begun == heads[place]:
            logits[:, tokens[place]] = -mx.inf
        return logits

    return [process]


@dataclass(frozen=True, slots=True)
class _Resumed:
    """The tokens of a begun answer, and the bytes to force behind them (`again`: how many tokens they were)."""

    tokens: tuple[int, ...] = ()
    rest: bytes = b""
    again: int = 0


def _resume(
    tokenizer: Any, speller: Speller | None, begun: str, reasoning: str, think: ReasoningMarks | None, *, opened: bool
) -> _Resumed:
    """Return the answer that begins with `reasoning` and then `begun`. Without a `speller` (a tokenizer whose bytes
    aren't known) its last word is encoded like the rest. `opened`: the prompt ends within the reasoning."""
    if not begun:
        return _Resumed()
    thought: list[int] = []
    if think is not None and (reasoning or opened):
        text = f"{'' if opened else think.start}{reasoning}{think.closing}"
        thought = tokenizer.encode(text, add_special_tokens=False)
    tokens = list(tokenizer.encode(begun, add_special_tokens=False))
    count = len(tokens)
    word = _LAST_WORD.search(begun[-_WORD_CHARS_MAX:])
    least, rest = len(word[0].encode()) if word and speller else 0, b""
    while speller and tokens and len(rest) < least:
        rest = speller.bytes_of(tokens.pop()) + rest
    return _Resumed((*thought, *tokens), rest, count - len(tokens))
