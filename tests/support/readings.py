"""An attempt that is being read, as tests want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.request.attempt import Reading
from reliability.answer.gate import Hold
from reliability.answer.judgement import expect
from reliability.answer.logprobs import WaitingLogprobs
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import Event, Started

MESSAGES = ({"role": "user", "content": "hi"},)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def reading(output_cap: int, prompt_bytes: int = 18, events: Sequence[Event] = (Started(),), **more: Any) -> Reading:
    """An attempt whose tier has taken the request, or has said what `events` are."""
    made = Reading(
        tier="fast",
        number=0,
        expected=expect(MESSAGES, build_toolbox(()), id_seed="r", checks=CheckConfig()),
        hold=Hold.TOOL_CALLS,
        text_committed=False,
        started_ns=0,
        prompt_bytes=prompt_bytes,
        output_cap=output_cap,
        logprobs=WaitingLogprobs(),
        **more,
    )
    made.take(events, 0)
    return made
