"""The judge's advice."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.request.interfaces import MonotonicClock
from deployments.request.judge import advise
from deployments.request.run_record import Run
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import expect
from reliability.loops import JudgeConfig, LoopConfig
from reliability.tools import build_toolbox
from tests.support.driving import TOOLS, make_ports, make_run, tell_in_turn


def make_stuck_run() -> Run:
    """A run whose model calls one tool five times in a row."""
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
    return run


async def test_advice_is_part_of_the_prompt():
    """What is put before the model because it looks stuck is read with the rest."""
    run = make_stuck_run()
    advice = await advise(run, make_ports({}, MonotonicClock()), JudgeConfig(enabled=True))

    assert advice.words is not None
    assert run.prompt_bytes == prompt_bytes(run.request.messages, TOOLS)


@pytest.mark.parametrize("keep", [True, False])
async def test_the_judge_keeps_no_more_than_the_client_lets(keep):
    """The judge is shown the conversation: what the client says of being kept holds for it too."""
    run = make_stuck_run()
    run.request = replace(run.request, keep=keep)
    tiers, asked = tell_in_turn(["aux"], [[{"text": "Try another tool."}]])

    assert await advise(run, make_ports(tiers, MonotonicClock()), JudgeConfig(enabled=True, judge_tier="aux"))
    assert [request.keep for request in asked] == [keep]
