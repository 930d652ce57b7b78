"""Keep the last prompts of each session, so that the next one begins as they did, or says what changed.

A prompt is compared with the one that it shares most with; the shapes say why it differs (`reliability.prefix`). Tools
that come in another order are rendered in the session's; the date that a template writes is that of the session's
begin, for `_DATE_S` at most. A summary that a client orders of the session's history, under another system prompt or
without the tools, is rendered under those of that history: nothing of it is read again. Invariants: no report names
prompts or tools of another API key; at most `_BYTES_MAX` are held, the session used longest ago goes first. Used by the
thread that renders.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from deployments.tiers.deferred_prompts import DeferredPrompt, DeferredPrompts
from deployments.tiers.moved_reminders import RemindedMessages, find_reminded, keep_moved
from deployments.tiers.packed_tokens import count_common, pack
from deployments.tiers.prompt import list_tools, read_date, read_opening, read_template_options, tidy_messages
from reliability.deferred_tools import read_name
from reliability.prefix import LostPrefix, PrefixChange, PromptShape, explain
from reliability.types import SYSTEM_ROLES, ChatRequest

_PROMPTS_MAX = 8
_DATE_S = 24 * 3600
_BYTES_MAX = 32 * 1024 * 1024
_SESSION_BYTES = 1024  # of a session without its prompts, about
_MESSAGE_BYTES = 64
_OPENINGS_MAX = 64
_OPTIONS_MAX = 32


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool as it was rendered, and the digest of what it says in whatever order."""

    name: str
    digest: int
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request as it is to be rendered, with its tools in the session's order. `kept`: reminders stay in it where they
    were, or it has the system prompt and the tools of the history that it sums up. `deferred`: with the rest of its
    tools and its loads, which `plain`, its messages, don't have."""

    request: ChatRequest
    at: datetime
    tools: tuple[_Tool, ...]
    kept: bool = False
    plain: tuple[Mapping[str, Any], ...] = ()
    deferred: DeferredPrompt | None = None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt that was rendered. `end`: how many of its tokens are history; `head`: its system prompt as JSON."""

    shape: PromptShape
    tools: tuple[_Tool, ...]
    tokens: bytes
    end: int
    reminded: RemindedMessages
    head: bytes
    loader: str

    @property
    def nbytes(self) -> int:
        tools_bytes, messages_bytes = sum(len(tool.raw) for tool in self.tools), len(self.shape.messages)
        return len(self.tokens) + len(self.head) + tools_bytes + _MESSAGE_BYTES * messages_bytes + self.reminded.nbytes


@dataclass(slots=True)
class _Session:
    began: datetime
    prompts: list[_Prompt] = field(default_factory=list)  # the one used last at the end

    @property
    def nbytes(self) -> int:
        return _SESSION_BYTES + sum(prompt.nbytes for prompt in self.prompts)

    def take(self, prompt: _Prompt, request: ChatRequest) -> LostPrefix | None:
        """Keep a prompt in place of the one that it continues; return what is lost of that one."""
        shared = [count_common(known.tokens, prompt.tokens) for known in self.prompts]
        at = max(range(len(shared)), key=shared.__getitem__, default=None)
        if at is None:
            self._keep(_digest_messages(prompt, request), request)
            return None
        known, common = self.prompts[at], shared[at]
        limit = min(known.end, prompt.end)
        prompt = _digest_messages(prompt, request, known if common >= limit else None)
        lost = _find_lost(known, prompt, common, limit)
        anew = lost is not None and PrefixChange.NEW_CONVERSATION in lost.changes
        behind = lost is None and (request.added > 0 or prompt.end < known.end)
        if not anew and not behind:
            del self.prompts[at]
        if not behind:
            self._keep(prompt, request)
        return lost

    def _keep(self, prompt: _Prompt, request: ChatRequest) -> None:
        if not request.added:  # no later prompt has the words of the server's own
            self.prompts = [*self.prompts, prompt][-_PROMPTS_MAX:]


class SessionPrompts:
    """The sessions of one tokenizer, the one used longest ago first."""

    def __init__(self, tokenizer: Any, *, bytes_max: int = _BYTES_MAX) -> None:
        self._tokenizer, self._bytes_max = tokenizer, bytes_max
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self._deferred = DeferredPrompts()
        self._openings: dict[tuple[tuple[str, int], ...], int] = {}
        self.nbytes = 0

    def prepare(self, request: ChatRequest, now: datetime, *, keep: bool = True) -> Prepared:
        """Prepare a request to be rendered. `keep`: what only spares time may stay or come back."""
        prepared = self._continue(request, now, keep=keep)
        if not prepared.request.loader:
            return prepared
        digest = hash(tuple(sorted(tool.digest for tool in prepared.tools)))
        deferred = self._deferred.lay_out(prepared.request, digest)
        return replace(prepared, request=deferred.request, plain=prepared.request.messages, deferred=deferred)

    def _continue(self, request: ChatRequest, now: datetime, *, keep: bool) -> Prepared:
        session = self._sessions.get((request.key, request.session_id))
        if session is None:
            return Prepared(request=request, at=now, tools=_read_tools(list_tools(request), ()))
        if now - session.began > timedelta(seconds=_DATE_S):
            session.began = now
        own = request
        if keep and request.summarizes:
            request = _take_up(request, session.prompts)
        last = session.prompts[-1].tools if session.prompts else ()
        tools = _read_tools(list_tools(request), last)
        digests = sorted(tool.digest for tool in tools)
        alike = (p.tools for p in reversed(session.prompts) if sorted(tool.digest for tool in p.tools) == digests)
        known = next(alike, tools)
        if known != tools:
            request = replace(request, tools=tuple(json.loads(tool.raw) for tool in known))
        found = (keep_moved(request.messages, p.reminded) for p in reversed(session.prompts) if keep)
        kept = next((messages for messages in found if messages is not None), None)
        if kept is not None:
            request = replace(request, messages=kept)
        changed = kept is not None or request.messages is not own.messages
        return Prepared(request=request, at=session.began, tools=known, kept=changed)

    def note(self, prepared: Prepared, tokens: Sequence[int]) -> LostPrefix | None:
        """Keep a prompt that was rendered; return what of the session's last one it can't continue."""
        request = prepared.request
        key = (request.key, request.session_id)
        session = self._sessions.pop(key, None)
        self.nbytes -= session.nbytes if session else 0
        session = session or _Session(prepared.at)
        given = read_template_options(self._tokenizer, request)
        if len(given) > _OPTIONS_MAX:
            given = {"": given}  # all as one
        options = {name: _digest(value) for name, value in given.items()}
        roles = tuple(sys.intern(str(message.get("role"))) for message in request.messages)
        shape = PromptShape(
            tools=tuple((tool.name, tool.digest) for tool in prepared.tools),
            options=options,
            date=read_date(self._tokenizer, prepared.at),
            head=_count_head(request.messages),
            roles=roles,
        )
        end = len(tokens) - self._measure_opening(request, options)
        reminded = find_reminded(prepared.plain or request.messages)
        head = _dump(request.messages[: shape.head], option=0)
        prompt = _Prompt(shape, prepared.tools, pack(tokens), end, reminded, head, request.loader)
        lost = session.take(prompt, request)
        if session.prompts:
            self._sessions[key] = session
            self.nbytes += session.nbytes
        while self.nbytes > self._bytes_max and self._sessions:
            _, oldest = self._sessions.popitem(last=False)
            self.nbytes -= oldest.nbytes
        return lost

    def _measure_opening(self, request: ChatRequest, options: Mapping[str, int]) -> int:
        key = tuple(sorted(options.items()))
        if key not in self._openings:
            if len(self._openings) >= _OPENINGS_MAX:
                self._openings.clear()
            self._openings[key] = len(read_opening(self._tokenizer, request))
        return self._openings[key]


def _take_up(request: ChatRequest, prompts: Sequence[_Prompt]) -> ChatRequest:
    """Give a request that sums up the history of one of these prompts its system prompt and its tools."""
    history = request.messages[_count_head(request.messages) : -1]
    digests = {_digest(message) for message in tidy_messages(history)}
    shared = [len(digests.intersection(prompt.shape.history)) for prompt in prompts]
    most = max(zip(shared, range(len(prompts)), strict=True), default=(0, 0))  # the newest of those that share as many
    if 2 * most[0] < len(digests) or not most[0]:
        return request
    known = prompts[most[1]]
    messages = (*json.loads(known.head), *history, request.messages[-1])
    tools = tuple(json.loads(tool.raw) for tool in known.tools)
    return replace(request, messages=messages, tools=tools, tool_choice=None, loader=known.loader)


def _count_head(messages: Sequence[Mapping[str, Any]]) -> int:
    return next((i for i, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))


def _find_lost(known: _Prompt, prompt: _Prompt, common: int, limit: int) -> LostPrefix | None:
    if common >= limit:
        return None
    changes, detail = explain(known.shape, prompt.shape)
    # Where all is as it was, the last token may be one with what follows it now.
    if changes == (PrefixChange.TEMPLATE,) and common == limit - 1:
        return None
    return LostPrefix(token=common, of=known.end, changes=changes, detail=detail)


def _digest_messages(prompt: _Prompt, request: ChatRequest, known: _Prompt | None = None) -> _Prompt:
    messages, old = request.messages, known.shape.messages if known is not None else ()
    if len(messages) < len(old) or (old and _digest(*tidy_messages(messages[len(old) - 1 : len(old)])) != old[-1]):
        old = ()
    # As the template is given them: to spell a message otherwise changes nothing of the prompt.
    digests = (*old, *map(_digest, tidy_messages(messages[len(old) :])))
    return replace(prompt, shape=replace(prompt.shape, messages=digests))


def _read_tools(tools: Sequence[Mapping[str, Any]], last: tuple[_Tool, ...]) -> tuple[_Tool, ...]:
    """Read the tools; `last` itself where they are those, to the letter."""
    raws = [_dump(tool, option=0) for tool in tools]
    if raws == [tool.raw for tool in last]:
        return last
    return tuple(_Tool(read_name(tool), _digest(tool), raw) for tool, raw in zip(tools, raws, strict=True))


def _digest(value: Any) -> int:
    return hash(_dump(value))


def _dump(value: Any, option: int = orjson.OPT_SORT_KEYS) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError:  # half a surrogate pair, a number of more than 64 bits
        return json.dumps(value, sort_keys=bool(option)).encode()
