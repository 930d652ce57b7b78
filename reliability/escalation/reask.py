"""The request as the next attempt sees it: as it came, corrected, resampled, under a grammar, or with a nudge.

It is made from the original, so corrections never pile up. What is added stands at the end: a prompt cache holds the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reliability.answer.answer_calls import collapse_calls
from reliability.answer.wanted_form import form_message
from reliability.escalation.decisions import Call, RetryStep
from reliability.loops import Kind, Loop, nudge
from reliability.tools import Flaws, ToolBox, Violation, corrective_message, extract_calls
from reliability.tools.turns import RESULT_ALONE
from reliability.types import ChatRequest

# At 0 a model would say the same again; at 0.7 SmolLM2-135M went from 3 valid calls of 10 to 8 in four tries.
RESAMPLE_TEMPERATURE = 0.7
_FAILED_CHARS_MAX = 4_000
_NO_TOOL_FITS = (
    "No tool that you have is for this request. Answer in words: say what you know, or that you can't do it, or ask "
    "for what is missing."
)


def request_for(
    original: ChatRequest,
    call: Call,
    *,
    attempts: int,
    failed_text: str = "",
    violations: Sequence[Violation] = (),
    toolbox: ToolBox | None = None,
    loop: Loop | None = None,
) -> ChatRequest:
    """Build the next attempt's request. `attempts`: how many there were; `failed_text`: what the last one wrote."""
    request = original
    if call.words:
        return _add(replace(request, tools=(), tool_choice=None, loader=""), {"role": "user", "content": _NO_TOOL_FITS})
    if call.nudge and loop is not None:
        request = _add(request, {"role": "user", "content": nudge(loop)})
        if loop.kind is Kind.UNSEEN:  # words alone are as unseen: see `reliability.loops.unseen_answers`
            request = replace(request, constrained=True, must_look=loop.looks)
        elif loop.kind is not Kind.TEXTS:  # the nudge makes the next step another one; chance would make it a wrong one
            return replace(request, temperature=0.0)
    if call.reask is None:
        return request
    if call.reask.constrained:
        request = replace(request, constrained=True, calls_tried=_count_calls(failed_text, toolbox or ToolBox()))
    if call.reask.step is RetryStep.CORRECT and violations and violations[0].kind is Flaws.FORM:
        return _add_correction(request, failed_text, form_message(violations, original.response_format))
    if call.reask.step is RetryStep.CORRECT and violations:
        return _add_correction(request, failed_text, corrective_message(violations, toolbox or ToolBox()))
    # The clean prompt, with chance enough for another answer, and the same chance for the same seed.
    seed = None if request.seed is None else request.seed + attempts
    temperature = max(request.temperature or 0.0, RESAMPLE_TEMPERATURE)
    return replace(request, temperature=temperature, seed=seed, must_speak=not failed_text.strip())


def resume_for(original: ChatRequest, *, told: str, thought: str, written: int) -> ChatRequest:
    """Build the request that continues `told`, the text before the client, of `written` tokens, behind `thought`."""
    return replace(original, begun=told, begun_reasoning=thought, max_tokens=max(1, original.max_tokens - written))


def _count_calls(text: str, box: ToolBox) -> int:
    """Count the different calls of a failed answer, those that can't be read too: so many may be asked of it again."""
    found = extract_calls(text, box)
    distinct, _ = collapse_calls(found.calls, box)
    return len(distinct) + len(found.malformed)


def _add_correction(request: ChatRequest, failed_text: str, words: str) -> ChatRequest:
    # A weak model copies what it is shown as its own: nothing is shown that it didn't write, nor a result of its own.
    shown = failed_text.strip() and not RESULT_ALONE.match(failed_text)
    failed_turn = ({"role": "assistant", "content": failed_text[:_FAILED_CHARS_MAX]},) if shown else ()
    return _add(request, *failed_turn, {"role": "user", "content": words})


def _add(request: ChatRequest, *messages: Mapping[str, Any]) -> ChatRequest:
    """Add messages behind the conversation, as what they are: no later request of its client has them."""
    return replace(request, messages=(*request.messages, *messages), added=request.added + len(messages))
