"""Incidents: what went wrong, or was repaired, in a request, or became of memory, as bounded records.

For each attempt in order: its failure, a count of tokens that can't be, its repairs, the escalation; then a loop that
no attempt was refused for, and warnings of the budget. `attempt` counts from 0. Each Router notes all of memory; the id
in place of a request's names what happened, and the journal keeps one record of an id.
Invariants: without `keep_text` a record has no word of the conversation; records and their number are bounded; nothing
is raised, since half an incident is better than none.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.memory.plan import Transition
from deployments.memory.view import MemoryView
from deployments.request.run_record import Run
from deployments.state.incident_record import IncidentKind, Shown, cut, fit_evidence, record, shorten
from reliability.answer.judgement import Judged
from reliability.attempt import Attempt
from reliability.escalation.policies import reason_of
from reliability.loops import Loop
from reliability.loops.content import text_of
from reliability.loops.nudges import nudge
from reliability.tool_calls import Violation
from reliability.types import ChatRequest, Fault, Flaw, Reason, TierStatus

_RECORDS_MAX = 48
_VIOLATIONS_MAX = 6
_PATHS_MAX = 6
_DETAIL_BYTES_MAX = 512
_MESSAGE_BYTES_MAX = 200
_MODEL_BYTES_MAX = 200
_VERSIONS_MAX = 3
_VERSION_BYTES_MAX = 32
_NS_PER_MS = 1_000_000
_WARNINGS_MAX = 3  # one for each window
_TOOL_CHOICES = ("none", "auto", "required", "function", "allowed_tools")


def incidents_of(run: Run, *, at_s: float, statuses: Mapping[str, TierStatus], keep_text: bool) -> list[dict[str, Any]]:
    """Write the records of one finished request. Over `_RECORDS_MAX` the first ones and the last one are kept, and the
    last one's evidence says how many were left out. `statuses`: of the tiers, as far as they are known."""
    writer = _Writer(run, at_s, statuses, Shown(run.expected.toolbox, keep_text))
    found = list(writer.write_all())
    if len(found) > _RECORDS_MAX:
        left_out = {"left_out": len(found) - _RECORDS_MAX}
        found[-1]["evidence"] = fit_evidence(left_out | found[-1]["evidence"])
        del found[_RECORDS_MAX - 1 : -1]
    return found


@dataclass(frozen=True, slots=True)
class _Writer:
    run: Run
    at_s: float
    statuses: Mapping[str, TierStatus]
    shown: Shown

    def write_all(self) -> Iterator[dict[str, Any]]:
        for number, attempt in enumerate(self.run.attempts):
            yield from self._write_failure(number, attempt)
            yield from self._write_usage(number, attempt)
            yield from self._write_repairs(number)
            yield from self._write_escalation(number)
        yield from self._write_loop_without_a_flaw()
        if self.run.warnings:
            spent = [f"{load.window.value} {load.percent}%" for load in self.run.warnings[:_WARNINGS_MAX]]
            yield self._record(IncidentKind.BUDGET, "warning", None, spent=spent)

    def _record(self, kind: IncidentKind, reason: str, number: int | None, **evidence: Any) -> dict[str, Any]:
        run = self.run
        tier, measured = run.tier, {}
        if number is not None:
            tier, measured = run.attempts[number].tier, _measure(run.attempts[number])
        return record(
            kind,
            at_s=self.at_s,
            reason=reason,
            request_id=run.request.request_id,
            session=run.request.session_id,
            key=run.key,
            tier=tier,
            evidence=evidence,
            attempt=number,
            model=_describe_model(self.statuses.get(tier or "")),
            generation=_describe_generation(run.request),
            **measured,
        )

    def _find_judged(self, number: int) -> Judged | None:
        judgements = self.run.judgements
        return judgements[number] if number < len(judgements) else None

    def _write_failure(self, number: int, attempt: Attempt) -> Iterator[dict[str, Any]]:
        """Write a fault, a loop or a flaw: an attempt has one of them at most."""
        if attempt.fault is not None:
            kind = IncidentKind.BUDGET if attempt.fault is Fault.BUDGET else IncidentKind.FAULT
            evidence = {name: getattr(attempt, name) for name in ("status", "retry_after_s", "ran")}
            evidence |= {name: getattr(attempt, name) or None for name in ("text_out", "hard_stop")}
            evidence |= self._describe_seam(number) | self._show_texts(attempt, None)
            yield self._record(kind, attempt.fault.value, number, **evidence)
        elif attempt.flaw is not None:
            judged = self._find_judged(number)
            kind = IncidentKind.LOOP if _repeats(attempt) else IncidentKind.FLAW
            loop = self._find_loop(number) if kind is IncidentKind.LOOP else None
            evidence = self._describe_loop(loop) | self._describe_judgement(judged)
            evidence |= self._describe_seam(number) | self._show_texts(attempt, judged)
            yield self._record(kind, attempt.flaw.value, number, **evidence)

    def _describe_seam(self, number: int) -> dict[str, Any]:
        after = next(iter(self.run.attempts[number + 1 :]), None)
        return {} if after is None or after.seam is None else {"continued_by": after.tier, "at_char": after.seam}

    def _write_usage(self, number: int, attempt: Attempt) -> Iterator[dict[str, Any]]:
        if (usage := attempt.reported) is not None:
            tokens = {f"reported_{name}": getattr(usage, name) for name in ("prompt_tokens", "completion_tokens")}
            yield self._record(IncidentKind.USAGE, "not_believed", number, **tokens)

    def _write_repairs(self, number: int) -> Iterator[dict[str, Any]]:
        judged = self._find_judged(number)
        if judged is None:
            return
        delivered = self.run.finish is not None and self.run.judged is judged
        for kind, count in Counter(repair.kind for repair in judged.repairs).items():
            paths = [self.shown.path(repair.path) for repair in judged.repairs if repair.kind is kind][:_PATHS_MAX]
            yield self._record(IncidentKind.REPAIR, kind.value, number, count=count, delivered=delivered, paths=paths)

    def _write_escalation(self, number: int) -> Iterator[dict[str, Any]]:
        before, after = self.run.attempts[number], next(iter(self.run.attempts[number + 1 :]), None)
        if after is None or after.tier == before.tier:
            return
        how = "fallback" if before.flaw is None else "escalation"
        met = before.fault or before.flaw
        yield self._record(IncidentKind.ESCALATION, reason_of(before).value, number, to=after.tier, how=how, after=met)

    def _find_loop(self, number: int) -> Loop | None:
        """Find the loop that this attempt was refused for; one that was seen while it decoded stands in the run."""
        judged = self._find_judged(number)
        if judged is not None and judged.loop is not None:
            return judged.loop
        cycles = [i for i, attempt in enumerate(self.run.attempts) if attempt.flaw is Flaw.CYCLE]
        return self.run.loop if cycles[-1:] == [number] else None

    def _write_loop_without_a_flaw(self) -> Iterator[dict[str, Any]]:
        """Write the loop of an answer that was stopped or shortened and still good, or refused for something else."""
        attempts = self.run.attempts
        written = [self._find_loop(i) for i, attempt in enumerate(attempts) if _repeats(attempt)]
        last = next((i for i in reversed(range(len(attempts))) if attempts[i].ran), None)
        loop = self.run.loop
        if loop is not None and loop not in written:
            yield self._record(IncidentKind.LOOP, loop.kind.value, last, **self._describe_loop(loop))
        for number, attempt in enumerate(attempts):
            judged = self._find_judged(number)
            if judged is not None and judged.dropped_calls and not _repeats(attempt):
                yield self._record(IncidentKind.LOOP, "answer_calls", number, dropped_calls=judged.dropped_calls)

    def _describe_loop(self, loop: Loop | None) -> dict[str, Any]:
        if loop is None:
            return {}
        tools = [self.shown.tool(name) for name in loop.tool.split(" → ")] if loop.tool else None
        return {
            "loop": loop.kind.value,
            "stage": loop.stage.value,
            "laps": loop.repetitions,
            "period": loop.period,
            "digest": loop.key,
            "tools": tools,
            "quote": self.shown.text(loop.evidence, _DETAIL_BYTES_MAX),
            "nudge": self.shown.text(nudge(loop)) if loop.repetitions else None,
        }

    def _describe_judgement(self, judged: Judged | None) -> dict[str, Any]:
        if judged is None:
            return {}
        return {
            "violations": [self._describe_violation(one) for one in judged.violations[:_VIOLATIONS_MAX]] or None,
            "violations_count": len(judged.violations) or None,
            "dropped_calls": judged.dropped_calls or None,
            "finish": judged.finish.reason.value,
            "answer_chars": len(judged.written),
        }

    def _describe_violation(self, violation: Violation) -> dict[str, Any]:
        path, tool = self.shown.path(violation.path), self.shown.tool(violation.tool)
        described: dict[str, Any] = {"kind": violation.kind.value, "path": path, "tool": tool}
        if self.shown.keep_text:
            described["message"] = self.shown.text(violation.message, _MESSAGE_BYTES_MAX)
        return described

    def _show_texts(self, attempt: Attempt, judged: Judged | None) -> dict[str, Any]:
        messages = reversed(self.run.request.messages)
        asked = (text_of(message.get("content")) for message in messages if message.get("role") == "user")
        return {
            "detail": self.shown.text(attempt.detail, _DETAIL_BYTES_MAX),
            "param": self.shown.text(attempt.param or "", _MESSAGE_BYTES_MAX),
            "answer": self.shown.text(judged.written) if judged is not None else None,
            "prompt": self.shown.text(next(asked, "")),
        }


def _repeats(attempt: Attempt) -> bool:
    return reason_of(attempt) is Reason.LOOP_DETECTED


def _measure(attempt: Attempt) -> dict[str, Any]:
    measured = {"elapsed_ms": attempt.elapsed_ns // _NS_PER_MS}
    if attempt.ttft_ns is not None:
        measured["ttft_ms"] = attempt.ttft_ns // _NS_PER_MS
    if attempt.usage is not None:
        measured["prompt_tokens"] = attempt.usage.prompt_tokens
        measured["completion_tokens"] = attempt.usage.completion_tokens
    return measured


def _describe_model(status: TierStatus | None) -> dict[str, Any] | None:
    if status is None:
        return None
    names = ("model", "source", "revision", "sha256", "quantization", "adapter")
    words: dict[str, Any] = {name: shorten(getattr(status, name), _MODEL_BYTES_MAX) for name in names}
    packages = list(status.versions.items())[:_VERSIONS_MAX]
    versions = {cut(name, _VERSION_BYTES_MAX): cut(version, _VERSION_BYTES_MAX) for name, version in packages}
    return words | {"context_tokens": status.context_tokens, "versions": versions or None}


def _describe_generation(request: ChatRequest) -> dict[str, Any]:
    choice = request.tool_choice
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    named = None if kind is None else next((known for known in _TOOL_CHOICES if known == kind), "other")
    told = {name: getattr(request, name) for name in ("temperature", "top_p", "seed", "max_tokens")}
    return told | {"stops": len(request.stop), "tools": len(request.tools), "tool_choice": named}


_NOTE_EVERY_S = 1.0
_GONE_S = 20.0

_Holder = Mapping[str, Any]  # as `MemoryView.list_holders` has it


async def note_memory(view: MemoryView | None, note: Callable[[Mapping[str, Any]], None]) -> None:
    """Note every change of a machine's level, with who held what, and every replica that comes or goes."""
    replicas = _ReplicaNotes()
    while view is not None:
        view.level()  # starts to poll
        for transition in view.transitions():
            note(_write_transition(transition, time.time()))
        for change in replicas.look(view.list_holders(), time.time()):
            note(change)
        await asyncio.sleep(_NOTE_EVERY_S)


class _ReplicaNotes:
    """Which replicas have held memory so far. There are as many as there are replicas."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Holder, float]] = {}  # by replica: what was seen last, and when

    def look(self, holders: Sequence[_Holder], now_s: float) -> Iterator[dict[str, Any]]:
        """Take who holds or waits now; yield what has changed."""
        for one in holders:
            if not one["held"]:
                continue
            if one["replica"] not in self._known:
                yield _write_change(one, "started", now_s - one["since_s"])
            self._known[one["replica"]] = (one, now_s)
        gone = [name for name, (_, seen_s) in self._known.items() if now_s - seen_s > _GONE_S]
        for name in gone:
            one, seen_s = self._known.pop(name)
            yield _write_change(one, "ended", seen_s)


def _write_change(one: _Holder, what: str, at_s: float) -> dict[str, Any]:
    name, evidence = f"replica-{one['replica']}-{what}", {key: one[key] for key in ("node", "replica", "bytes")}
    return record(IncidentKind.SCALING, at_s=at_s, reason=what, request_id=name, tier=one["tier"], evidence=evidence)


def _write_transition(transition: Transition, now_s: float) -> dict[str, Any]:
    reason, name = f"{transition.before.value} -> {transition.after.value}", f"memory-{transition.id}"
    at_s, evidence = now_s - transition.age_s, transition.snapshot()
    return record(IncidentKind.MEMORY, at_s=at_s, reason=reason, request_id=name, evidence=evidence)
