"""Having another server go on with an answer that stands in part before the client.

    prefill   the last message is the model's own, unfinished: an upstream that honours that goes on behind it
    anchor    the model is told to begin with its last words: any model can try

Every join is checked (`reliability.answer.seam`): an answer that begins anew or talks about it is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from reliability.answer.estimate import text_bytes, tokens_about
from reliability.answer.seam import Seam, find_anchor
from reliability.answer.thoughts import Thoughts
from reliability.types import CallDelta, ChatRequest, Event, Failed, Fault, Finish, Reasoning, Text

Continues = Literal["prefill", "anchor"]
_THINKING = frozenset({"reasoning", "reasoning_effort", "include_reasoning", "thinking"})
# How a client's own fields say that no thought is wanted, and the variables of most chat templates.
_OFF: Mapping[str, Any] = {
    "reasoning_effort": "none",
    "reasoning": {"effort": "none"},
    "thinking": {"type": "disabled"},
    "thinking_budget": 0,
    "max_thinking_tokens": 0,
    "enable_thinking": False,
}
_SWITCHES = {"enable_thinking": False, "thinking": False}


def ask_to_go_on(request: ChatRequest, how: Continues) -> ChatRequest:
    """Return the request for the rest of an answer that stands as far as `request.begun`."""
    stands = {"role": "assistant", "content": request.begun.rstrip()}
    added, anchor = [stands], find_anchor(request.begun)
    if how == "anchor":
        words = (
            "Your last message was cut off in the middle. Write the rest of it. Begin with its last words, exactly "
            f"these, and go on from there:\n\n{anchor}\n\n"
            "No introduction, no remark, and nothing of what stands before those words."
        )
        added.append({"role": "user", "content": words})
        # What it says again is cut, so its tokens are none of those that are left for the client.
        request = replace(request, max_tokens=request.max_tokens + tokens_about(text_bytes(anchor)))
    extra = dict(request.extra)
    if how == "prefill":
        # Claude can't think and go on behind words of its own: asked for both, it answers 400.
        extra = {key: value for key, value in extra.items() if key not in _THINKING}
        # vLLM and SGLang open a new turn behind it unless they are told not to; others don't know the fields.
        extra = {"add_generation_prompt": False, "continue_final_message": True, **extra}
    # Where thinking can't be switched off, being told to is a 400; an anchor doesn't need it to be.
    thinking = False if how == "prefill" else request.thinking
    return replace(request, messages=(*request.messages, *added), begun="", extra=extra, thinking=thinking)


def ask_without_thought(request: ChatRequest, *, named: bool = True, switches: bool = False) -> ChatRequest:
    """Return the request with thinking off. `named`: the fields that the client has named say so, else they go, and
    `ChatRequest.thinking` says it alone. `switches`: the chat template is told too, which strict servers refuse."""
    if named:
        extra = {key: _OFF.get(key, value) for key, value in request.extra.items()}
    else:
        extra = {key: value for key, value in request.extra.items() if key not in _OFF}
    if switches:
        given = extra.get("chat_template_kwargs")
        extra["chat_template_kwargs"] = (given if isinstance(given, dict) else {}) | _SWITCHES
    return replace(request, extra=extra, thinking=False)


async def join(
    answer: AsyncGenerator[list[Event], None], begun: str, how: Continues, name: str
) -> AsyncGenerator[list[Event], None]:
    """Pass on what comes behind `begun`, without reasoning; an answer that doesn't join ends in a fault. Behind an
    anchor the turn is a new one, which may begin with a thought in its text; behind a prefill it is open already."""
    seam, thoughts = Seam(begun, trusted=how == "prefill"), Thoughts(begun=how == "prefill")
    async with aclosing(answer) as batches:
        async for batch in batches:
            parts: list[Event] = []
            for event in batch:
                parts += [*thoughts.end(), event] if isinstance(event, Finish) else thoughts.split(event)
            if out := _pass(seam, parts, name):
                yield out
            if seam.torn:
                return


def _pass(seam: Seam, batch: Sequence[Event], name: str) -> list[Event]:
    out: list[Event] = []
    for event in batch:
        text = ""
        if isinstance(event, Text):
            text = seam.feed(event.text)
        elif isinstance(event, CallDelta | Finish):
            text = seam.finish(called=isinstance(event, CallDelta))
        out += [Text(text)] if text else []
        if seam.torn:
            words = f"tier {name} didn't go on with the text that stands, but began anew or spoke about it"
            return [*out, Failed(fault=Fault.SEAM, message=words)]
        if not isinstance(event, Text | Reasoning):
            out.append(event)
    return out


_VARIANT = r"(:(?!thinking)[a-z-]+)?"  # `:free`, `:nitro`; whoever thinks can't be prefilled
_HONOURED = tuple(
    re.compile(family + _VARIANT, re.IGNORECASE)
    for family in (
        r"anthropic/claude-3[.-][a-z0-9.-]+",
        r"anthropic/claude-(opus|sonnet|haiku)-4([.-][15])?(-\d{8})?",
        r"google/gemini-2\.[05]-flash(-lite)?(-\d{3})?",
    )
)


def choose_continues(host: str | None, model: str) -> Continues:
    """Choose how the model behind this host is asked for the rest of an answer."""
    honoured = (host or "").lower() == "openrouter.ai" and any(one.fullmatch(model) for one in _HONOURED)
    return "prefill" if honoured else "anchor"
