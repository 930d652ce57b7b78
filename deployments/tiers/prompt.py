"""Render a chat request into the text of a prompt, or refuse it with the name of the field.

A template may raise: `learn_template` finds what it can't take at load; else it is asked again with softer forms. A
prompt is computed anew from the first token that differs, so nothing here depends on how many messages follow, earlier
reasoning is kept, and the date is the caller's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from deployments.tiers.history_words import find_written, read_past_arguments
from deployments.tiers.template_form import AS_WRITTEN, Messages, TemplateForm, learn_form
from reliability.types import ChatRequest, Failed, Fault

# From a part of Unicode that no text uses: the rendered user message differs from any real one at once.
_NEVER_SAID = "\ue000"

# Parameters of transformers' `apply_chat_template` itself. A client that could set them could run its own template.
_NOT_VARIABLES = frozenset({
    "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt", "tokenizer_kwargs",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask",
})  # fmt: skip

# How templates are told to keep the reasoning of earlier turns (Qwen3.6 and Kimi, GLM, Nemotron).
_KEEP_REASONING: Mapping[str, bool] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
}

_BARE = ChatRequest(request_id="", session_id="", messages=(), max_tokens=1, timeout_s=1)

_CLOCK = "strftime_now("
_CLOCK_CALL = re.compile(r"""strftime_now\(\s*("[^"\\{}]*"|'[^'\\{}]*')\s*\)""")


class RequestRefused(Exception):
    """The request can't be answered here; `failed` says why, in the words for the client."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


def refuse(param: str, message: str, fault: Fault = Fault.BAD_REQUEST) -> RequestRefused:
    """Build the refusal of a request by one of its fields."""
    return RequestRefused(Failed(fault=fault, message=message, param=param))


def tidy_messages(messages: Sequence[Mapping[str, Any]]) -> Messages:
    """Bring messages into the form that templates agree on: contents are texts, past arguments objects."""
    out = []
    for message in messages:
        tidy = {key: value for key, value in message.items() if value is not None}
        tidy["content"] = _read_content(message.get("content") or tidy.pop("refusal", None))
        tidy["role"] = {"developer": "system", "function": "tool"}.get(str(message.get("role")), message.get("role"))
        if message.get("tool_calls"):
            tidy["tool_calls"] = [_tidy_call(call) for call in message["tool_calls"]]
        out.append(tidy)
    return out


def learn_template(tokenizer: Any) -> TemplateForm:
    """Find what a model's chat template can't take. Asked once, when the tokenizer is loaded; never raises."""
    tools = _knows_tools(tokenizer)
    place = {"place": {"type": "string", "description": "which"}}
    look = {"description": "Look at a place.", "parameters": {"type": "object", "properties": place}}
    # For a template that shows how calls are written only where there are tools.
    probe_tools = tuple({"type": "function", "function": {"name": f"look_{n}", **look}} for n in range(2))

    def render_probe(messages: Messages, with_tools: bool) -> str:
        request = replace(_BARE, tools=probe_tools if with_tools else ())
        return _apply(tokenizer, request, messages, to_answer=True)

    words, tokens = "", frozenset[str]()
    with suppress(Exception):  # see `render`
        words = render_probe([{"role": "user", "content": _NEVER_SAID}], tools)
    with suppress(Exception):  # a tokenizer is the maker's as well
        tokens = frozenset(tokenizer.get_added_vocab())
    return learn_form(render_probe, tools=tools, written=find_written(words, tokens))


def render(tokenizer: Any, request: ChatRequest, at: datetime | None = None, form: TemplateForm = AS_WRITTEN) -> str:
    """Render the prompt by the model's chat template, in the `form` that it needs. Raises `RequestRefused`. `at`: the
    moment whose date a template writes; None for now."""
    if list_tools(request) and not _knows_tools(tokenizer):
        message = "this tier can't use tools: its model's chat template has no place for them"
        raise refuse("tools", message, Fault.UNSUPPORTED)
    try:
        apply = partial(_apply, tokenizer, request, at=at, to_answer=True)
        return _apply_gently(apply, tidy_messages(request.messages), form)
    except RequestRefused:
        raise
    except Exception as error:  # the template is a program of the model's maker: anything may come out of it
        message = f"the model's chat template can't render these messages ({type(error).__name__}: {error})"
        raise refuse("messages", message, Fault.UNSUPPORTED) from error


def read_opening(tokenizer: Any, request: ChatRequest = _BARE) -> list[int]:
    """Return the tokens with which the template opens the answer to such a request; none where it can't be told."""
    bare, asked = replace(request, tools=()), [{"role": "user", "content": _NEVER_SAID}]
    try:
        closed, opened = (_apply(tokenizer, bare, asked, to_answer=to_answer) for to_answer in (False, True))
    except Exception:  # see `render`; there may be templates that need more of a conversation
        return []
    opening = opened.removeprefix(closed)
    return [] if opening == opened else list(tokenizer.encode(opening, add_special_tokens=False))


def find_checkpoints(
    tokenizer: Any,
    request: ChatRequest,
    prompt: Sequence[int],
    *,
    turns: bool,
    at: datetime | None = None,
    form: TemplateForm = AS_WRITTEN,
) -> tuple[int, ...]:
    """Find the places in `prompt`, in tokens, up to which a later one may be the same: where the system prompt ends,
    with `turns` where the answer begins. A template that can't render a part of the conversation gives fewer."""
    messages = tidy_messages(request.messages)
    head = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    # Not the system prompt alone: many templates want a user in every conversation.
    parts = [([*messages[:head], {"role": "user", "content": _NEVER_SAID}], True)]
    parts += [(messages, False)] if turns else []
    found = set()
    for part, to_answer in parts:
        with suppress(Exception):  # see `render`; here it only means that there is nothing to gain
            text = _apply_gently(partial(_apply, tokenizer, request, at=at, to_answer=to_answer), part, form)
            tokens = tokenizer.encode(text, add_special_tokens=False)
            differs = (i for i, (one, other) in enumerate(zip(tokens, prompt, strict=False)) if one != other)
            found.add(next(differs, min(len(tokens), len(prompt))))
    return tuple(sorted(found - {0}))


def _apply_gently(apply: Callable[[Messages], str], messages: Messages, form: TemplateForm) -> str:
    known = form.apply(messages)
    try:
        return apply(known)
    except RequestRefused:
        raise
    except Exception as error:  # see `render`
        for softer in form.list_softer():
            with suppress(Exception):  # as above
                if (softened := softer.apply(messages)) != known:
                    return apply(softened)
        raise error


def _apply(
    tokenizer: Any, request: ChatRequest, messages: Messages, *, at: datetime | None = None, to_answer: bool
) -> str:
    options = read_template_options(tokenizer, request)
    options |= {"tools": list_tools(request) or None, "add_generation_prompt": to_answer, "tokenize": False}
    if (dated := _hold_date(tokenizer, at)) is not None:
        options["chat_template"] = dated
    return str(tokenizer.apply_chat_template(messages, **options))


def list_tools(request: ChatRequest) -> list[dict[str, Any]]:
    """List the tools that the template writes."""
    return [] if request.tool_choice == "none" else [dict(tool) for tool in request.tools]


def read_template_options(tokenizer: Any, request: ChatRequest) -> dict[str, Any]:
    """Read the template's variables, never the template itself. Raises `RequestRefused`."""
    options = request.extra.get("chat_template_kwargs") or {}
    if not isinstance(options, Mapping) or not _NOT_VARIABLES.isdisjoint(options):
        raise refuse("chat_template_kwargs", "chat_template_kwargs must be an object of template variables")
    template = getattr(tokenizer, "chat_template", None)
    kept = {name: value for name, value in _KEEP_REASONING.items() if isinstance(template, str) and name in template}
    # The name that most makers of models have given the switch.
    asked = {} if request.thinking is None else {"enable_thinking": request.thinking}
    return kept | asked | dict(options)


def _knows_tools(tokenizer: Any) -> bool:
    template = getattr(tokenizer, "chat_template", None)
    # Some tokenizers render by code of their own, or hold several templates by name; those know what they do.
    return bool(tokenizer.has_tool_calling) or not isinstance(template, str) or "tools" in template


def _read_content(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise refuse("messages", "messages: content must be a string or a list of parts")
    return "".join(_read_part(part) for part in content)


def _read_part(part: Any) -> str:
    if not isinstance(part, Mapping):
        raise refuse("messages", "messages: every part of a content must be an object")
    kind = str(part.get("type", "text"))
    text = part.get(kind) if kind in ("text", "refusal") else None
    if isinstance(text, str):
        return text
    if kind in ("text", "refusal"):
        raise refuse("messages", f"messages: a part of type {kind!r} needs a string {kind!r}")
    raise refuse("messages", f"this tier can't read a content part of type {kind!r}", Fault.UNSUPPORTED)


def _tidy_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise refuse("messages", "messages: every tool call needs a function")
    return {**call, "function": {**function, "arguments": read_past_arguments(function.get("arguments"))}}


def read_date(tokenizer: Any, at: datetime) -> str:
    """Return what the template would write of this moment; empty where it writes no date, or it can't be told."""
    return "; ".join(at.strftime(found[1][1:-1]) for found in _CLOCK_CALL.finditer(_find_dated(tokenizer)))


def _hold_date(tokenizer: Any, at: datetime | None) -> str | None:
    template = _find_dated(tokenizer)
    if at is None or not template:
        return None
    return _CLOCK_CALL.sub(lambda found: json.dumps(at.strftime(found[1][1:-1]), ensure_ascii=False), template)


def _find_dated(tokenizer: Any) -> str:
    """Find a template of which every look at the clock can be replaced; empty where there is none."""
    template = getattr(tokenizer, "chat_template", None)
    # A renderer in Python, which mlx-lm has for some models, takes no template.
    if not isinstance(template, str) or getattr(tokenizer, "_chat_template", None) is not None:
        return ""
    calls = template.count(_CLOCK)
    return template if calls and calls == len(_CLOCK_CALL.findall(template)) else ""
