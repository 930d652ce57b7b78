"""Compaction on the way: a conversation that has grown too long is summarized by its own tiers before they answer it.

    drive (the order for a summary) -> replace_history -> drive (the answer)

It is due where the prompt is over the client's trigger, or over three quarters of the largest context that may answer,
or where no tier could hold it. Where no summary could be had the request continues with its whole history.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from deployments.request.drive import drive, drive_whole
from deployments.request.interfaces import Ports
from deployments.request.run_record import NOTHING_YET, Run
from reliability.answer.estimate import BYTES_PER_TOKEN_USUAL, prompt_bytes
from reliability.escalation.refusals import figure
from reliability.summaries import Compaction, Ordered, complete_summary, find_newest_words, replace_history
from reliability.types import SYSTEM_ROLES, Event, Finish, FinishReason, Hold, RefuseCode, Text

_CONTEXT_SHARE = 0.75
_SUMMARY_TOKENS = 4096


async def drive_compacted(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Answer `run.request` as `drive` does, behind a summary where one is asked for and due. Then `run.summary` stands,
    and an answer that pauses there has no events."""
    compaction = run.compaction
    if compaction is not None and _is_due(run, compaction, ports):
        await _summarize(run, compaction, ports)
        compaction = None
    while run.finish is None:
        async with aclosing(drive(run, ports)) as events:
            async for batch in events:
                yield batch
        too_long = run.refusal
        if compaction is None or too_long is None or too_long.code is not RefuseCode.CONTEXT_LENGTH:
            return
        run.refusal = None
        await _summarize(run, compaction, ports)
        if not run.summary:
            run.refusal = too_long
            return
        compaction = None


def _is_due(run: Run, compaction: Compaction, ports: Ports) -> bool:
    if not compaction.bytes_over:
        return True
    limit = compaction.bytes_over
    open_tiers = [tier for tier in run.chain if not (run.stays and tier in ports.cloud)]
    contexts = [ports.context_tokens.get(tier) for tier in open_tiers]
    known = [context for context in contexts if context is not None]
    if known and len(known) == len(contexts):
        limit = min(limit, int(max(known) * _CONTEXT_SHARE) * BYTES_PER_TOKEN_USUAL)
    # Where the tools and the system's words fill the prompt, a summary makes no room.
    talk = [message for message in run.request.messages if message.get("role") not in SYSTEM_ROLES]
    answered = any(message.get("role") == "assistant" for message in talk)
    return answered and run.prompt_bytes > limit and 2 * prompt_bytes(talk) > limit


async def _summarize(run: Run, compaction: Compaction, ports: Ports) -> None:
    """Have the summary written, by the same run: whatever ends it, its attempts are in the books."""
    request, kept = run.request, (run.expected, run.hold, run.limits, run.prompt_bytes)
    order = {"role": "user", "content": compaction.order}
    run.request = replace(
        request,
        messages=(*request.messages, order),
        added=request.added + 1,
        max_tokens=max(request.max_tokens, _SUMMARY_TOKENS),
        tool_choice="none" if request.tools else None,
        parallel_tool_calls=None,
        response_format=None,
        stop=(),
        streamed=False,
    )
    run.prompt_bytes = prompt_bytes(run.request.messages, request.tools)
    run.hold, run.limits = Hold.ALL, replace(run.limits, shorten=True)
    run.expected = replace(run.expected, tool_choice="none", form=None, forced=None)
    events = await drive_whole(run, ports)
    finish, text = run.finish, "".join(event.text for event in events if isinstance(event, Text)).strip()
    run.request, (run.expected, run.hold, run.limits, run.prompt_bytes) = request, kept
    run.passed_over, run.whole, run.shortened, run.shortenings = len(run.attempts), (), 0, 0
    run.finish, run.refusal, run.judged, run.loop, run.loader, run.loaded = None, None, None, None, None, ()
    run.counted = NOTHING_YET
    if finish is None or not text:
        run.notes += ("the conversation was to be summarized, and no tier wrote a summary",)
        return
    run.summary = complete_summary(text, Ordered(find_newest_words(request.messages)))
    run.summarized = finish.usage or NOTHING_YET
    run.request = replace(request, messages=replace_history(request.messages, run.summary), added=0)
    before, run.prompt_bytes = run.prompt_bytes, prompt_bytes(run.request.messages, request.tools)
    run.notes += (f"the conversation was summarized: {figure(before)} bytes of prompt are {figure(run.prompt_bytes)}",)
    if compaction.pauses:
        run.finish = Finish(reason=FinishReason.STOP)
