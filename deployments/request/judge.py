"""The auxiliary judge: a tier that is shown what looks stuck, and asked for another approach.

It runs before the attempt loop, where `find_case` finds a case, once, without loop rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deployments.request.drive import drive_whole
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from deployments.request.timeouts import NS_PER_S
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import expect
from reliability.escalation.decisions import Limits
from reliability.loops import (
    JudgeConfig,
    JudgeRequest,
    StuckCase,
    find_case,
    find_loop,
    injection,
    judge_request,
    read_suggestion,
)
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Hold, Reasoning, Text

_ONE_CALL = Limits(retries_max=0, reasks_max=0, attempts_max=1, escalate_on=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What was put before the model. `by`: the judge's tier; None: a firm note stands in. `run`: the judge's own
    request."""

    case: StuckCase
    by: str | None
    words: str | None
    run: Run | None = None


async def advise(run: Run, ports: Ports, config: JudgeConfig) -> Advice | None:
    """Look for a case, ask about it, and put the answer at the end of `run.request`. None: there is no case."""
    expected = run.expected
    size = run.request.body_bytes

    def look_for_case() -> StuckCase | None:
        loop = find_loop(expected.turns, expected.loops, memo=expected.memo) if expected.loops is not None else None
        return find_case(expected.turns, config, loop)

    case = await ports.large(size, look_for_case)
    if case is None:
        return None
    asked = (message.get("content") for message in reversed(run.request.messages) if message.get("role") == "user")
    request = await ports.large(size, judge_request, case, expected.turns, next(asked, None), config)
    judged = await _ask_judge(run, request, ports)
    suggestion = "" if judged is None else judged[1]
    words = injection(case, suggestion)
    if words is not None:
        message = {"role": "user", "content": words}
        added = run.request.added + 1
        run.request = replace(run.request, messages=(*run.request.messages, message), added=added)
        run.prompt_bytes += prompt_bytes((message,))
    return Advice(case=case, by=request.tier if suggestion else None, words=words, run=judged[0] if judged else None)


async def _ask_judge(run: Run, request: JudgeRequest, ports: Ports) -> tuple[Run, str] | None:
    """Ask the judge's tier. Returns its request as it ran, and the suggestion; None where there is no tier to ask."""
    if request.tier is None or request.tier not in ports.tiers:
        return None
    own = Run(
        request=ChatRequest(
            request_id=f"{run.request.request_id}/judge",
            session_id=run.request.session_id,
            messages=request.messages,
            max_tokens=request.max_tokens,
            timeout_s=request.timeout_s,
            temperature=0.0,
            keep=run.request.keep,  # it quotes the conversation
        ),
        expected=expect(request.messages, ToolBox(), id_seed="judge"),
        chain=(request.tier,),
        limits=_ONE_CALL,
        deadline_ns=min(run.deadline_ns, ports.clock.now_ns() + int(request.timeout_s * NS_PER_S)),
        key=run.key,
        hold=Hold.ALL,
        stays=run.stays,
        prompt_bytes=prompt_bytes(request.messages),
    )
    events = await drive_whole(own, ports)
    if not events and own.judged is not None:
        events = list(own.judged.events)  # reasoning alone is no answer to a client, but it is to us
    text = "".join(event.text for event in events if isinstance(event, Text))
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    return own, read_suggestion({"content": text, "reasoning_content": reasoning})
