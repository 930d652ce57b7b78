"""One finished request in order: each call to a tier, the wait before it, what was wrong, what was done. Pure.

Texts of prompts and answers come from the incidents, where `incidents.keep_text` was on; a report's own `detail` may
quote a bad call, and follows the same rule (`keep_text`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.ui.formatting import write_count, write_word
from reliability.types import Flaw

_Record = Mapping[str, Any]
_TEXTS = ("prompt", "answer", "quote", "nudge", "detail", "param")
_VIOLATIONS = {"schema": "Against the schema", "json": "No JSON", "name": "No such tool"}
_THOUGHT_ENDS = {
    "model": "ended by the model",
    "budget": "closed at its budget",
    "circling": "closed because it circled",
    None: "not ended",
}
_WORDS_WANTED = "the same tier again, for an answer in words"
_HOW = {True: "the same tier again, after a fault", False: "the same tier again, told or drawn anew"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimelineStep:
    """One call to a tier: an attempt of the report without its `detail`, which may quote the conversation. `kind`:
    `good`, `bad`, or `idle` where nothing ran. `wait_ms`: since the last one ended. `said`: what was wrong, in
    sentences; `texts`: what was kept of the conversation, by its name."""

    attempt: _Record
    number: int
    kind: str
    how: str
    wait_ms: float
    failure: str | None
    said: tuple[str, ...]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All of it. `others`: incidents that belong to no single call."""

    total_ms: float
    steps: tuple[_TimelineStep, ...]
    others: tuple[str, ...]


def tell(report: _Record, incidents: Sequence[_Record], *, keep_text: bool) -> Timeline:
    """Tell a request by its report and its incidents, the oldest first."""
    steps: list[_TimelineStep] = []
    end_ms = 0.0
    before: _Record | None = None
    for number, attempt in enumerate(report["attempts"]):
        own = [one for one in incidents if one.get("attempt") == number]
        at_ms = attempt["at_ms"]
        wait_ms = max(0.0, at_ms - end_ms) if at_ms is not None else 0.0
        steps.append(_tell_step(number, attempt, before, own, wait_ms, keep_text=keep_text))
        if at_ms is not None:
            end_ms = at_ms + attempt["elapsed_ms"]
        before = attempt
    others = tuple(words for one in incidents if one.get("attempt") is None for words in _tell_incident(one))
    return Timeline(total_ms=max(report.get("total_ms") or 0.0, end_ms, 1.0), steps=tuple(steps), others=others)


def _tell_step(
    number: int, attempt: _Record, before: _Record | None, own: Sequence[_Record], wait_ms: float, *, keep_text: bool
) -> _TimelineStep:
    failure = attempt["fault"] or attempt["flaw"]
    said = [words for one in own for words in _tell_incident(one)]
    if thinking := attempt.get("thinking"):
        said.append(f"{write_count(thinking['tokens'])} tokens of thought, {_THOUGHT_ENDS[thinking['ended']]}.")
    texts = {name: text for one in own for name in _TEXTS if (text := one["evidence"].get(name))}
    if attempt["flaw"] == Flaw.DOUBT and attempt.get("detail"):
        said.append(f"{attempt['detail']}.")  # a figure of this server's: it quotes nobody
    elif keep_text and attempt.get("detail"):
        texts.setdefault("detail", attempt["detail"])
    return _TimelineStep(
        attempt={**attempt, "detail": None},
        number=number + 1,
        kind="bad" if failure and attempt["ran"] else "idle" if failure or attempt["cancelled"] else "good",
        how=_tell_how(attempt, before),
        wait_ms=wait_ms,
        failure=failure or ("client_left" if attempt["cancelled"] else None),
        said=tuple(said),
        texts=texts,
    )


def _tell_how(attempt: _Record, before: _Record | None) -> str:
    if before is None:
        return "the first call"
    if before["tier"] == attempt["tier"]:
        return _HOW[before["fault"] is not None] if before["flaw"] != Flaw.DOUBT else _WORDS_WANTED
    return "fallback, since the last one was unwell" if before["fault"] else "escalation, since the last answer was bad"


def _tell_incident(one: _Record) -> Iterator[str]:
    evidence, kind = one["evidence"], one["kind"]
    if kind == "repair":
        where = f" at {', '.join(evidence['paths'])}" if evidence.get("paths") else ""
        fate = "and delivered" if evidence.get("delivered") else "and not delivered"
        yield f"Mended: {write_word(one['reason'])}, {evidence.get('count', 1)} time(s){where}, {fate}."
    elif kind == "escalation":
        yield f"Then {evidence.get('how', 'escalation')} to {evidence.get('to')}: {write_word(one['reason'])}."
    elif kind == "usage":
        yield "The tier's own count of tokens can't be: an estimate is booked."
    elif kind == "budget" and evidence.get("spent"):
        yield f"Budget nearly spent: {', '.join(evidence['spent'])}."
    else:
        yield from _tell_loop(evidence)
        yield from _tell_violations(evidence)
        if evidence.get("status"):
            yield f"It answered with HTTP {evidence['status']}."
        if evidence.get("retry_after_s"):
            yield f"It asked to be left alone for {evidence['retry_after_s']:g} s."
        if evidence.get("dropped_calls"):
            yield f"{evidence['dropped_calls']} repeated call(s) of the answer were left out."


def _tell_loop(evidence: _Record) -> Iterator[str]:
    if evidence.get("laps"):
        tools = " → ".join(evidence.get("tools") or ()) or "the answer"
        steps = f", {evidence['period']} steps a round" if (evidence.get("period") or 1) > 1 else ""
        yield f"A loop: {tools}, {evidence['laps']} times{steps}, and nothing new ({write_word(evidence['loop'])})."


def _tell_violations(evidence: _Record) -> Iterator[str]:
    for violation in evidence.get("violations") or ():
        tool = f" in a call of {violation['tool']}" if violation.get("tool") else ""
        place = f" at {violation['path']}" if violation.get("path") else ""
        said = f": {violation['message']}" if violation.get("message") else ""
        yield f"{_VIOLATIONS.get(violation['kind'], write_word(violation['kind']).capitalize())}{tool}{place}{said}."
    more = (evidence.get("violations_count") or 0) - len(evidence.get("violations") or ())
    if more > 0:
        yield f"And {more} more of the kind."


def write_curl(report: _Record, incidents: Sequence[_Record], url: str, *, keyed: bool) -> str:
    """Write the command that asks the same tier in the same session, with the request's message where it was kept."""
    prompts = (one["evidence"].get("prompt") for one in incidents)
    prompt = next(filter(None, prompts), "WHAT YOU ASK")
    model = report["escalated_from"] or report["tier"] or "auto"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}, ensure_ascii=False)
    # What turns a text around, can't be seen, or is obeyed by a terminal, is written out.
    body = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in body)
    lines = [
        f"curl {shlex.quote(url + '/v1/chat/completions')}",
        "-H 'Content-Type: application/json'",
        *(['-H "Authorization: Bearer $MLX_STACK_API_KEY"'] if keyed else []),
        f"-H {shlex.quote('X-MLX-Stack-Session: ' + report['session'])}",
        f"-d {shlex.quote(body)}",
    ]
    return " \\\n  ".join(lines)
