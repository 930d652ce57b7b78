"""Check once, when the tokenizer is loaded, whether the calls of this model can be read.

The template renders an answer with a call, which is read as one of the model's own. A template that refuses or leaves
it out is judged by its words about calls. A tier whose calls can't be read still answers without tools: it warns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deployments.tiers.history_repair import Mend
from deployments.tiers.history_words import ARGUMENTS, NAME
from deployments.tiers.prompt import tidy_messages
from deployments.tiers.stream_matchers import CallFormat, CallSplit
from deployments.tiers.template_form import AS_WRITTEN, TemplateForm
from deployments.work.json_text import load_object
from reliability.tools import ToolBox, build_toolbox, extract_calls
from reliability.tools.formats import OPENER, START_MARKER
from reliability.types import CallDelta

_PROPERTIES = {"city": {"type": "string", "description": "where to"}, "seats": {"type": "integer"}}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": ["city"]}
_TOOL = {"type": "function", "function": {"name": NAME, "description": "Find a train.", "parameters": _PARAMETERS}}
_ASKED = {"role": "user", "content": "Find me a train to Bern."}
_SAID_CHARS_MAX = 200

_FindFormat = Callable[[Any, Sequence[Mapping[str, Any]]], CallFormat | None]

# What would write the call in the template's place, and a result behind it.
_NOT_ITS_OWN = frozenset({Mend.SAY_CALLS, Mend.PAIR_RESULTS})


def check_call_template(
    tokenizer: Any, find_format: _FindFormat | None = None, form: TemplateForm = AS_WRITTEN
) -> str | None:
    """Return what is wrong with the calls of this model, fit for operators and clients; None where they can be read.
    `find_format` says how mlx-lm reads its calls, `form` what its template needs. Never raises: the template is a
    program of the model's maker."""
    form = replace(form, mends=form.mends - _NOT_ITS_OWN)
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, str) and "tools" not in template and not getattr(tokenizer, "has_tool_calling", False):
        return "its chat template has no place for tools: requests with tools go to other tiers"
    try:
        answer = _render_call(tokenizer, form)
    except Exception as error:  # whatever a template raises
        return _judge_words(tokenizer, form, f"it can't render one ({type(error).__name__}: {_shorten(error)})")
    if NAME not in answer:
        return _judge_words(tokenizer, form, "it leaves calls out")
    forms = [answer, answer.rstrip().removesuffix(str(getattr(tokenizer, "eos_token", None) or "\0"))]
    if any(map(_is_read, forms)):
        return None
    if find_format is not None and any(_is_split(form, find_format(tokenizer, (_TOOL,))) for form in forms):
        return None
    return f"its calls can't be read, so they would leave as text: its chat template writes {_shorten(answer)!r}"


def _render_call(tokenizer: Any, form: TemplateForm) -> str:
    """Render an answer that is one call, as the template writes it behind its own prompt."""
    call = {"id": "call_0", "type": "function", "function": {"name": NAME, "arguments": json.dumps(ARGUMENTS)}}
    answered: list[Mapping[str, Any]] = [_ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]
    prompt = _apply(tokenizer, form, [_ASKED], to_answer=True)
    full = _apply(tokenizer, form, answered, to_answer=False)
    shared = next((at for at, (one, other) in enumerate(zip(prompt, full, strict=False)) if one != other), len(prompt))
    tag = full.rfind("<", 0, shared)  # a tag that differs begins where it opens: `<think>` and `<function=`
    return full[tag if tag >= 0 and ">" not in full[tag:shared] else shared :]


def _apply(tokenizer: Any, form: TemplateForm, messages: Sequence[Mapping[str, Any]], *, to_answer: bool) -> str:
    options = {"tools": [dict(_TOOL)], "add_generation_prompt": to_answer, "tokenize": False}
    return str(tokenizer.apply_chat_template(form.apply(tidy_messages(messages)), **options))


def _judge_words(tokenizer: Any, form: TemplateForm, why: str) -> str | None:
    said = "it can't be told whether its calls can be read: its chat template has tools, and"
    try:
        words = _apply(tokenizer, form, [_ASKED], to_answer=True)
    except Exception as error:  # as above
        return f"{said} can't render any ({type(error).__name__}: {_shorten(error)})"
    known = OPENER.search(words) or START_MARKER.search(words) or '"arguments"' in words or '"parameters":' in words
    return None if known else f"{said} {why}"


def _is_read(answer: str) -> bool:
    box = build_toolbox([dict(_TOOL)])
    assert isinstance(box, ToolBox)
    found = extract_calls(answer, box)
    return not found.malformed and _are_right(found.calls)


def _is_split(answer: str, form: CallFormat | None) -> bool:
    if form is None:
        return False
    split = CallSplit(form)
    events = [*split.feed(answer), *split.finish(truncated=False)]
    return _are_right([event for event in events if isinstance(event, CallDelta)])


def _are_right(calls: Sequence[Any]) -> bool:
    given = [load_object(call.arguments) if isinstance(call.arguments, str) else call.arguments for call in calls]
    return [call.name for call in calls] == [NAME] and given == [ARGUMENTS]


def _shorten(words: object) -> str:
    return " ".join(str(words).split())[:_SAID_CHARS_MAX]
