"""The auxiliary judge, in the graph: a tier that is shown what looks stuck, and asked for another approach.

    turns since the user spoke ──find_case──▶ case ──▶ the judge's tier ──▶ suggestion ──▶ end of the next prompt
                                                          `─ no tier, no grant, nothing said, too late ─▶ a firm note

It runs before the walk, and only where `find_case` finds a case, which is once in five calls of one tool. The judge's
request is driven like every other (grant, breaker, budget), on one tier, once, and no loop rule runs on its answer.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from deployments.ports import Ports
from deployments.request.drive import Run, drive
from reliability.answer.estimate import prompt_bytes
from reliability.answer.gate import Hold
from reliability.answer.judgement import Expected, expect
from reliability.escalation.policies import Limits
from reliability.loops import (
    Case,
    JudgeConfig,
    JudgeRequest,
    find_case,
    find_loop,
    injection,
    judge_request,
    read_suggestion,
)
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Event, Reasoning, Text

__all__ = ["Advice", "advise"]

NS_PER_S = 1_000_000_000
ONE_CALL = Limits(retries_max=0, reasks_max=0, attempts_max=1, escalate_on=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was put before the model, and who said it: `by` is None where nobody could, and the firm note stands in.
    `run` is the judge's own request, whose tokens count."""

    case: Case
    by: str | None
    words: str | None
    run: Run | None = None


async def advise(run: Run, ports: Ports, config: JudgeConfig) -> Advice | None:
    """Look for a case, ask about it, and put what is said at the end of `run.request`. None: there is no case."""
    expected = run.expected
    size = run.request.body_bytes
    case = await ports.large(size, _case_of, expected, config)
    if case is None:
        return None
    asked = await ports.large(size, judge_request, case, expected.turns, _goal(run.request), config)
    judged = await _asked(run, asked, ports)
    suggestion = "" if judged is None else judged[1]
    words = injection(case, suggestion)
    if words is not None:
        said = {"role": "user", "content": words}
        run.request = replace(run.request, messages=(*run.request.messages, said))
        run.prompt_bytes += prompt_bytes((said,))
    return Advice(case=case, by=asked.tier if suggestion else None, words=words, run=judged[0] if judged else None)


def _case_of(expected: Expected, config: JudgeConfig) -> Case | None:
    convicted = None
    if expected.loops is not None:
        convicted = find_loop(expected.turns, expected.loops, memo=expected.memo)
    return find_case(expected.turns, config, convicted)


async def _asked(run: Run, asked: JudgeRequest, ports: Ports) -> tuple[Run, str] | None:
    """The judge's request as it ran, and what it said; None where there is no tier to ask."""
    if asked.tier is None or asked.tier not in ports.tiers:
        return None
    own = Run(
        request=ChatRequest(
            request_id=f"{run.request.request_id}/judge",
            session_id=run.request.session_id,
            messages=asked.messages,
            max_tokens=asked.max_tokens,
            timeout_s=asked.timeout_s,
            temperature=0.0,
        ),
        expected=expect(asked.messages, ToolBox(), id_seed="judge"),
        chain=(asked.tier,),
        limits=ONE_CALL,
        deadline_ns=min(run.deadline_ns, ports.clock.now_ns() + int(asked.timeout_s * NS_PER_S)),
        key=run.key,
        hold=Hold.ALL,
        stays=run.stays,
        prompt_bytes=prompt_bytes(asked.messages),
    )
    said: list[Event] = []
    async with aclosing(drive(own, ports)) as batches:
        async for batch in batches:
            said += batch
    if not said and own.judged is not None:
        said = list(own.judged.events)  # thoughts alone are no answer to a client, but they are to us
    text = "".join(event.text for event in said if isinstance(event, Text))
    thought = "".join(event.text for event in said if isinstance(event, Reasoning))
    return own, read_suggestion({"content": text, "reasoning_content": thought})


def _goal(request: ChatRequest) -> Any:
    """What the user has asked for last."""
    return next((m.get("content") for m in reversed(request.messages) if m.get("role") == "user"), None)
