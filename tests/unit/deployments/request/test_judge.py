"""The judge's advice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from deployments.request.judge import advise
from deployments.telemetry import MonotonicClock
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import expect
from reliability.loops import JudgeConfig, LoopConfig
from reliability.tools import build_toolbox
from tests.unit.deployments.request.test_drive import TOOLS, make_ports, make_run


def test_advice_is_part_of_the_prompt():
    """What is put before the model because it looks stuck is read with the rest."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "what is a?"}]
    for lap in range(5):
        call = {"name": "f", "arguments": f'{{"a": {lap}}}'}
        calls = [{"id": f"c{lap}", "type": "function", "function": call}]
        messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{lap}", "content": f"It is {lap}."},
        ]
    run = make_run(("fast",), MonotonicClock())
    run.request = replace(run.request, messages=tuple(messages))
    run.expected = expect(messages, build_toolbox(TOOLS), id_seed="r", loops=LoopConfig())
    run.prompt_bytes = prompt_bytes(messages, TOOLS)
    advice = asyncio.run(advise(run, make_ports({}, MonotonicClock()), JudgeConfig(enabled=True)))

    assert advice is not None
    assert advice.words is not None
    assert run.prompt_bytes == prompt_bytes(run.request.messages, TOOLS)
