"""One request from start to end: the one loop of the program.

    while True: match decide(situation): Call -> attempt | Accept -> deliver | Refuse -> done

`drive` imports no Ray, no HTTP and no clock, so the simulator runs this very code; only it writes to its `Run`. Text
that has passed the gate stands: a later attempt's own text is dropped. Calls leave only with Accept.
Invariants: no answer has text of two attempts, unless the next one continues a text that broke off
(`AttemptPlan.begun`) at the very character; no answer has calls of two attempts, or an incomplete or invalid call; each
call to a tier has one grant, settled once; no stream stays open when the client goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial

from deployments.request.accounting import Accounting
from deployments.request.attempt import AttemptPlan, AttemptState, read, record_attempt
from deployments.request.interfaces import Ports
from deployments.request.run_record import Run
from deployments.request.timeouts import NS_PER_S
from deployments.request.tool_loading import choose_shown, defer, end_load, expect_loads
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.answer.estimate import prompt_bytes, prompt_tokens_most, tokens_max, tokens_min
from reliability.attempt import Attempt
from reliability.confidence import Gauge
from reliability.context_edits import Cleared, ClearResults, clear_media, clear_results, find_media
from reliability.deferred_tools import list_texts
from reliability.escalation.decisions import Accept, Call, Refuse, Situation
from reliability.escalation.policies import decide
from reliability.escalation.reask import request_for, resume_for
from reliability.escalation.refusals import duration, figure, record_rejection, verdict_of
from reliability.loops import keep_continued, may_be_unseen, repeats_already, truncate
from reliability.loops.content import drop_elements
from reliability.loops.session import window_repeats_already
from reliability.types import CallDelta, ChatRequest, Event, Fault, FinishReason, Flaw, Hold, Logprobs, RefuseCode, Text

_SETTLE_GRACE_NS = 10 * NS_PER_S
# Without an answer of the admission within so many seconds a local tier is called, and one in the cloud is not.
ADMIT_S, _CLOUD_ADMIT_S = 2.0, 10.0
_CUT_WEIGHT = 4  # an answer that repeats itself is read several times to find what of it is worth keeping
_WORDS_TOOLS_MAX = 8
_SHORTENINGS = ((4, False), (2, False), (2, True))  # bytes a token, and whether what the model has never read goes too
_ANSWER_SHARE = 4  # of the context, at most, is left for the answer
_SILENT_RETRY_S = 2.0  # a state actor that died is back by then


def drive(run: Run, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Answer `run.request`: yield `Text`, `Reasoning`, `Refusal` and `CallDelta` events; the outcome stands in `run`.
    Raises nothing for faults."""
    return walk(run, ports, _call, _accept)


async def drive_whole(run: Run, ports: Ports) -> list[Event]:
    """Answer as `drive` does, and return all events."""
    async with aclosing(drive(run, ports)) as batches:
        return [event async for batch in batches for event in batch]


async def walk(
    run: Run,
    ports: Ports,
    make_call: Callable[[Run, Call, Ports], AsyncGenerator[list[Event], None]],
    accept: Callable[[Run, int, Ports], Awaitable[list[Event]]],
) -> AsyncGenerator[list[Event], None]:
    """Walk from decision to decision: yield what leaves with each call, and what is left where one is accepted."""
    while True:
        match decide(_build_situation(run, ports)):
            case Call() as call:
                if call.wait_ns > 0:
                    await asyncio.sleep(call.wait_ns / NS_PER_S)
                run.tier = call.tier
                async with aclosing(make_call(run, call, ports)) as events:
                    async for batch in events:
                        yield batch
            case Accept(attempt=number):
                if events_left := await accept(run, number, ports):
                    yield events_left
                return
            case Refuse(code=RefuseCode.CONTEXT_LENGTH) if run.limits.shorten and await ports.large(
                run.prompt_bytes, _shorten, run, dict(ports.context_tokens)
            ):
                continue
            case Refuse(code=RefuseCode.UNSUPPORTED) if _leave_out_media(run):
                continue
            case Refuse() as refusal:
                run.refusal = refusal
                return


def _build_situation(run: Run, ports: Ports) -> Situation:
    # The tokens of two models can't be told as one list of probabilities.
    limits = run.limits if run.request.top_logprobs is None else replace(run.limits, continuations_max=0)
    if run.expected.form is not None and not run.expected.form.strict:
        limits = replace(limits, loose_form=True)
    return Situation(
        chain=run.chain,
        attempts=tuple(run.attempts[run.passed_over :]),
        remaining_ns=run.deadline_ns - ports.clock.now_ns(),
        limits=limits,
        jitter=ports.jitter(),
    )


def _shorten(run: Run, contexts: dict[str, int]) -> bool:
    """Shorten a prompt that no tier can hold, and begin anew; False where that can't be done. `contexts`: the known
    ones, in tokens. The oldest results become stubs, down to half of the largest context that refused the prompt, so
    that the next turns keep the same prefix. Where one of the `_SHORTENINGS` wasn't enough, the next one is tried."""
    full = [attempt.tier for attempt in run.attempts if attempt.fault is Fault.CONTEXT_LENGTH]
    context = max((contexts[tier] for tier in full if tier in contexts), default=0)
    if not context or any(attempt.text_out for attempt in run.attempts):
        return False
    request = run.request
    run.whole = run.whole or request.messages
    tools_bytes = prompt_bytes((), request.tools)
    room = context - min(request.max_tokens, context // _ANSWER_SHARE)
    while run.shortenings < len(_SHORTENINGS):
        bytes_a_token, unread = _SHORTENINGS[run.shortenings]
        size = room * bytes_a_token
        run.shortenings += 1
        rule = ClearResults(bytes_over=size, bytes_left=size // 2, keep=1, unread=unread)
        cleared = clear_results(run.whole, rule, tools_bytes)
        if cleared.count > run.shortened:
            run.shortened = cleared.count
            _begin_anew(run, cleared)
            words = f"the oldest {figure(cleared.count)} tool results were left out: no tier could hold the prompt"
            run.notes = (*(note for note in run.notes if "tool results were left out" not in note), words)
            return True
    return False


def _leave_out_media(run: Run) -> bool:
    """Let a request begin anew without the images and files of its past; False where it shows none there."""
    cleared = clear_media(run.request.messages)
    if not cleared.count or any(attempt.text_out for attempt in run.attempts):
        return False
    _begin_anew(run, cleared)
    words = f"{figure(cleared.count)} images or files of the conversation were left out: no tier could read them"
    run.notes = (*run.notes, words)
    return True


def _begin_anew(run: Run, cleared: Cleared) -> None:
    run.request = replace(run.request, messages=cleared.messages)
    run.prompt_bytes = prompt_bytes(cleared.messages, run.request.tools)
    run.passed_over = len(run.attempts)


async def _accept(run: Run, number: int, ports: Ports) -> list[Event]:
    number += run.passed_over if number >= 0 else 0
    judged = run.judgements[number]
    size = len(judged.raw_text) if judged is not None else 0
    return await ports.large(_CUT_WEIGHT * size, _deliver, run, number)


def _deliver(run: Run, number: int) -> list[Event]:
    """Return the held part of the accepted attempt: the call commit point."""
    accepted, judged = run.attempts[number], run.judgements[number]
    assert judged is not None, "an accepted attempt has been judged"
    run.tier, run.judged, finish = accepted.tier, judged, run.count_answer(number, judged.finish)
    if accepted.flaw is Flaw.CYCLE:
        # Cut to what is worth keeping. It was stopped, so its finish reason is a length.
        notes = (*finish.notes, f"{accepted.detail}, and its answer ends there")
        run.finish = replace(finish, reason=FinishReason.LENGTH, notes=notes)
        if any(attempt.text_out for attempt in run.attempts):
            return []  # text that stands before the client already can't be taken back
        # Prose only: a broken call in the raw text is no answer.
        text = truncate("".join(event.text for event in judged.events if isinstance(event, Text)))
        return run.end_summary([Text(text)])
    notes = finish.notes
    if accepted.flaw is Flaw.DOUBT:
        notes += (f"{accepted.detail}, and no other tier's answer is likelier",)
    elif accepted.leeway is not None:
        notes += (f"tier {accepted.tier}: its answer was doubted and asked for again, and no better one came",)
    run.finish = replace(finish, notes=notes)
    events = run.part_thoughts(judged.events)
    others = [*run.attempts[:number], *run.attempts[number:][1:]]
    if accepted.seam is None and any(attempt.text_out and attempt.loads is None for attempt in others):
        # A later attempt may have written text since this one was judged.
        events = [event for event in events if not isinstance(event, Text | Logprobs)]
    if any(isinstance(event, CallDelta) for event in events):
        run.attempts[number] = replace(accepted, calls_out=True)
    return run.end_summary(events)


async def _call(run: Run, call: Call, ports: Ports) -> AsyncGenerator[list[Event], None]:
    """Make one admitted call. The attempt is written down and the grant settled whatever happens, once."""
    resumed = _CUT_WEIGHT * run.delivered_chars if call.resume else 0
    request = await ports.large(resumed, _build_request, run, call, ports)
    # A long history is not read again where nothing was added behind it.
    known = request.messages is run.request.messages
    size = run.prompt_bytes if known else prompt_bytes(request.messages, request.tools)
    size += len(request.begun.encode()) + len(request.begun_reasoning.encode())
    # Deferred, the tools may take next to nothing of a context.
    least = prompt_bytes(request.messages) if request.loader else size
    granted = rule_out(run, call.tier, least, ports) or await admit(run, call.tier, size, ports)
    if isinstance(granted, Attempt):
        run.attempts.append(granted)
        run.judgements.append(None)
        return
    request = bound_request(run, request, granted, ports)
    run.current = state = _open_attempt(run, call, request, granted, size, ports)
    if call.resume:
        run.delivered = [request.begun]
    before = len(run.delivered)
    try:
        async with aclosing(read(state, request, ports, run.deadline_ns)) as events:
            async for batch in events:
                run.counted = state.spending.counted or run.counted
                out = run.part_thoughts(batch)
                run.note_out(out)
                yield out
    finally:
        _write_down(run, state, granted, ports)
    if run.attempts[-1].loads is not None and (left := end_load(run, before)):
        yield left


def _open_attempt(
    run: Run, call: Call, request: ChatRequest, grant: Grant | None, size: int, ports: Ports
) -> AttemptState:
    hold, expected = run.hold, expect_loads(run, request)
    if expected.window is not None and expected.loops is not None:
        # What a session was answered before that its request doesn't show is known only by now.
        repeats = bool(expected.asked) and window_repeats_already(expected.window, expected.loops)
        repeats = repeats or may_be_unseen(expected.ask, expected.window.looked)
        if repeats or (expected.joined is not None and repeats_already(expected.joined, expected.loops)):
            hold = Hold.ALL
    plan = AttemptPlan(
        tier=call.tier,
        number=len(run.attempts),
        expected=expected,
        hold=hold,
        text_committed=not call.resume and any(a.text_out and a.loads is None for a in run.attempts),
        begun=request.begun,
        seam=run.delivered_chars if call.resume else None,
        started_ns=ports.clock.now_ns(),
        history_bytes=run.request.body_bytes,
        answer_cap=run.request.max_tokens,
        logprobs=request.top_logprobs is not None,
        last=call.tier == run.chain[-1],
        gauge=_build_gauge(run, call.tier, ports),
    )
    return AttemptState(plan, open_accounting(call.tier, request, size, grant, ports))


def _build_gauge(run: Run, tier: str, ports: Ports) -> Gauge | None:
    """Build what tells whether the tier's calls are right and wanted. Where no other tier could make others, they need
    not be right."""
    least, messages, texts = run.limits.confidence_min, run.request.messages, run.expected.words
    if not least or not run.request.tools or not texts:  # nothing is read where calls aren't checked
        return None
    alone = tier in run.chain[-1:] and not any(attempt.flaw is Flaw.DOUBT for attempt in run.attempts)
    asked = messages[-1].get("role") == "user"
    # Whether a tool is wanted at all was measured on requests that begin a conversation and have a choice of few.
    free = run.request.tool_choice in (None, "auto") and run.expected.form is None
    free = free and len(run.request.tools) <= _WORDS_TOOLS_MAX
    begins = asked and not any(message.get("role") in ("assistant", "tool") for message in messages)
    return Gauge(
        calibration=ports.calibration(tier),
        least=least,
        alone=alone,
        texts=texts,
        request=drop_elements("\n".join(list_texts(messages[-1].get("content")))) if asked else "",
        words_do=free and begins,
    )


def open_accounting(tier: str, request: ChatRequest, size: int, grant: Grant | None, ports: Ports) -> Accounting:
    """Open the account of one attempt; its grant is told of the progress."""
    prompt = (request.messages, request.tools, request.response_format)
    return Accounting(
        prompt_bytes=size,
        output_cap=request.max_tokens,
        prompt_most=cache(partial(prompt_tokens_most, prompt)),
        progress=None if grant is None or ports.admission is None else partial(ports.admission.progress, grant),
        trusted=tier not in ports.foreign,
    )


def _write_down(run: Run, state: AttemptState, grant: Grant | None, ports: Ports) -> None:
    attempt = record_attempt(state, ports.clock.now_ns(), granted=grant is not None or ports.admission is None)
    run.attempts.append(attempt)
    run.judgements.append(state.judged)
    run.judged = state.judged
    found = state.judged.loop if state.judged is not None else None
    run.loop = found or state.scan.loop or run.loop
    settle(attempt, grant, ports, run.attempts[:-1])


def settle(attempt: Attempt, grant: Grant | None, ports: Ports, earlier: Sequence[Attempt] = ()) -> None:
    """Settle the grant of an attempt that is over, or charge what it cost without one."""
    if ports.admission is None:
        return
    if grant is not None:
        ports.admission.settle(grant, verdict_of(attempt, earlier), attempt.usage, attempt.retry_after_s)
    elif attempt.usage is not None and attempt.usage.total_tokens:
        ports.admission.charge(attempt.usage)


def _build_request(run: Run, call: Call, ports: Ports) -> ChatRequest:
    last, asked = run.judged, defer(run, call.tier, ports.deferring)
    if call.resume:
        told = [attempt for attempt in run.attempts if attempt.text_out]
        return resume_for(
            asked,
            told="".join(run.delivered),
            thought="".join(run.reasoning),
            written=sum(attempt.usage.completion_tokens for attempt in told if attempt.usage),
        )
    return request_for(
        asked,
        call,
        attempts=len(run.attempts),
        failed_text=last.written if last else "",
        violations=last.violations if last else (),
        toolbox=choose_shown(run, asked, last.violations if last else ()),
        loop=run.loop,
    )


def bound_request(run: Run, request: ChatRequest, grant: Grant | None, ports: Ports) -> ChatRequest:
    """Bound the request by the time that is left and the tokens that were granted."""
    remaining_s = max(0.0, (run.deadline_ns - ports.clock.now_ns()) / NS_PER_S)
    cap = request.max_tokens if grant is None else min(request.max_tokens, grant.output_cap)
    return replace(request, timeout_s=remaining_s, max_tokens=cap, session_id=run.request.session_id, key=run.key)


def rule_out(run: Run, tier: str, size: int, ports: Ports) -> Attempt | None:
    """Return the record of a call that need not be asked for: the request may not go there, or can't fit."""
    if run.stays and tier in ports.cloud:
        detail = f"tier {tier} is in the cloud, and {run.stays}"
        return Attempt(tier=tier, ran=False, fault=Fault.CLOUD_BARRED, detail=detail)
    if tier in ports.text_only and (kind := find_media(run.request.messages)):
        detail = f"tier {tier} can't read a content part of type {kind!r}"
        return Attempt(tier=tier, ran=False, fault=Fault.UNSUPPORTED, detail=detail, param="messages")
    context, least = ports.context_tokens.get(tier), tokens_min(size)
    if context is None or least < context:
        return None
    detail = f"tier {tier} can't hold this prompt: at least {figure(least)} tokens, its context is {figure(context)}"
    return Attempt(tier=tier, ran=False, fault=Fault.CONTEXT_LENGTH, detail=detail, param="messages")


async def admit(run: Run, tier: str, size: int, ports: Ports) -> Grant | Attempt | None:
    """Return the grant, the record of a rejected call, or None: no admission answers, and the tier costs nothing."""
    if ports.admission is None:
        return None
    cloud = tier in ports.cloud
    admission_request = _build_admission_request(run, tier, size, ports)
    try:
        async with asyncio.timeout(_CLOUD_ADMIT_S if cloud else ADMIT_S):
            answer = await ports.admission.admit(admission_request)
    except Exception:
        run.silent = True
        if not cloud:
            return None
        why = f" ({ports.admission.trouble})" if ports.admission.trouble else ""
        back = f"come back in {duration(_SILENT_RETRY_S)}"
        detail = f"tier {tier} costs money, and the ledger can't be asked now{why}: {back}"
        return Attempt(tier=tier, ran=False, fault=Fault.STATE_SILENT, detail=detail, retry_after_s=_SILENT_RETRY_S)
    if ports.admission.session not in (None, run.request.session_id):
        run.request = replace(run.request, session_id=ports.admission.session)
    if isinstance(answer, Rejection):
        # The words name the session that was found, and not the one that the request was taken for at first.
        return record_rejection(answer, replace(admission_request, session=run.request.session_id))
    run.warnings = answer.warnings
    window = ports.admission.window
    if window is not None and run.expected.asked:
        window = keep_continued(window, run.request.messages, tools=bool(run.request.tools))
    run.expected = replace(run.expected, window=window)
    return answer


def _build_admission_request(run: Run, tier: str, size: int, ports: Ports) -> AdmissionRequest:
    request = run.request
    level, sustained_ns = ports.memory(tier)
    ran = [attempt for attempt in run.attempts[run.passed_over :] if attempt.ran and attempt.loads is None]
    extra = [attempt.fault is not None for attempt in ran if attempt.tier == tier][-1:] == [True]
    return AdmissionRequest(
        tier=tier,
        key=run.key,
        session=request.session_id,
        parent=request.parent,
        prompt_tokens=max(1, tokens_max(size)),
        # What the client didn't ask for makes its request no larger in the eyes of the memory rules.
        output_tokens=request.max_tokens if request.max_tokens_named else None,
        tools=len(request.tools),
        extra=extra,
        fallback=bool(ran) and not extra,
        cheap=tier == run.limits.cheap,
        local=tier not in ports.cloud,
        level=level,
        sustained_ns=sustained_ns,
        # A settle at the very deadline must still find its grant open.
        hold_ns=max(NS_PER_S, run.deadline_ns - ports.clock.now_ns()) + _SETTLE_GRACE_NS,
    )
