"""Small sabotages of the walk, of the judgement on answers, and of the loop that drives a request.

Each entry is (file, old text, new text, law); the old text stands in the file exactly once.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    # escalation
    (
        "reliability/escalation.py",
        "return Accept() if situation.attempts and situation.attempts[-1].good else None",
        "return Accept() if situation.attempts and situation.attempts[-1].fault is None else None",
        "only a good answer is accepted",
    ),
    (
        "reliability/escalation.py",
        "    if last.fault is not None:\n        return Refuse(code=RefuseCode.BROKEN_STREAM, message=last.detail)\n",
        "",
        "nothing is called after text that broke off",
    ),
    (
        "reliability/escalation.py",
        "if last is None or last.fault is not Fault.BAD_REQUEST:",
        "if last is None or last.fault is not Fault.CONTEXT_LENGTH:",
        "a bad request is refused at once",
    ),
    (
        "reliability/escalation.py",
        "if situation.remaining_ns <= 0:",
        "if situation.remaining_ns < -1:",
        "no call after the deadline",
    ),
    (
        "reliability/escalation.py",
        "if len(situation.attempts) >= situation.limits.attempts_max:",
        "if len(situation.attempts) > situation.limits.attempts_max:",
        "a walk ends within its attempts",
    ),
    (
        "reliability/escalation.py",
        "situation.limits.attempts_max - len(situation.attempts) > behind",
        "situation.limits.attempts_max - len(situation.attempts) > 0",
        "second tries never take the attempt of a tier behind",
    ),
    (
        "reliability/escalation.py",
        "if last is None or last.fault is not Fault.BUDGET or not last.hard_stop:",
        "if last is None or last.fault is not Fault.BUDGET:",
        "a bar that is not hard leaves the next tier",
    ),
    (
        "reliability/escalation.py",
        "        return up or refuse_exhausted(situation)\n",
        "        return up or Accept()\n",
        "a broken circuit is never delivered",
    ),
    (
        "reliability/escalation.py",
        "if len(set(looped)) == 1 and up is not None:",
        "if up is not None:",
        "what two tiers say alike is delivered, marked",
    ),
    (
        "reliability/escalation.py",
        "if reasks >= (min(",
        "if reasks > (min(",
        "re-asks are bounded",
    ),
    (
        "reliability/escalation.py",
        "if last.flaw is not Flaw.TOOL_CALL_INVALID:",
        "if last.flaw is Flaw.TOOL_CALL_INVALID:",
        "an invalid call is corrected, an empty answer has nothing to correct",
    ),
    (
        "reliability/escalation.py",
        "if retries >= situation.limits.retries_max or not patient or not",
        "if retries > situation.limits.retries_max or not patient or not",
        "retries are bounded",
    ),
    (
        "reliability/escalation.py",
        "if retries >= situation.limits.retries_max or not patient or not",
        "if retries >= situation.limits.retries_max or not",
        "waits are bounded",
    ),
    (
        "reliability/escalation.py",
        "position = situation.chain.index(last.tier) + 1",
        "position = situation.chain.index(last.tier) - 1",
        "a walk never goes back down the chain",
    ),
    (
        "reliability/escalation.py",
        "if last.fault not in NO_CANDIDATE and reason_of(last) not in situation.limits.escalate_on:",
        "if last.fault not in NO_CANDIDATE:",
        "a request moves on for a reason that is switched on",
    ),
    (
        "reliability/escalation.py",
        "full = min(BACKOFF_MAX_NS, BACKOFF_FIRST_NS << min(retries, 10))",
        "full = BACKOFF_FIRST_NS << (4 * retries)",
        "waits are bounded",
    ),
    (
        "reliability/refusals.py",
        "return min(waits) if waits else None",
        "return max(waits) if waits else None",
        "the shortest Retry-After is passed on",
    ),
    (
        "reliability/escalation.py",
        "min(reasks_max, CYCLE_REASKS_MAX) if last.flaw is Flaw.CYCLE else reasks_max",
        "reasks_max",
        "a text in circles is asked for once more only",
    ),
    (
        "reliability/escalation.py",
        "    if cycles and not any(attempt.text_out for attempt in situation.attempts):",
        "    if cycles:",
        "a cut text doesn't stand behind another's",
    ),
    (
        "reliability/escalation.py",
        "    return Accept(attempt=looped) if wordy or stuck else None\n",
        "    return None\n",
        "words after a nudge are not asked for again",
    ),
    (
        "reliability/escalation.py",
        "    if looped is not None:\n        return Accept(attempt=looped)\n",
        "",
        "a loop behind text that has left stops nobody",
    ),
    (
        "reliability/escalation.py",
        "if not any(a.text_out for a in attempts) or any(a.flaw is Flaw.CIRCUIT_BREAK for a in attempts):",
        "if not any(a.text_out for a in attempts):",
        "a broken circuit delivers nothing",
    ),
    # answer
    (
        "reliability/answer.py",
        "if checked.violations:",
        "if checked.violations and not checked.calls and False:",
        "an invalid call is a flaw",
    ),
    (
        "reliability/answer.py",
        "if finish.reason is FinishReason.TOOL_CALLS:\n        return Flaw.EMPTY",
        "if finish.reason is FinishReason.STOP and False:\n        return Flaw.EMPTY",
        "announced calls that never came are a flaw",
    ),
    (
        "reliability/answer.py",
        "    if text_committed:\n",
        "    if False:\n",
        "after text only calls are taken",
    ),
    (
        "reliability/answer.py",
        "if text and not text_committed:",
        "if text:",
        "the text of an answer comes from one attempt",
    ),
    (
        "reliability/answer.py",
        "IDENTICAL_CALLS_MAX = 2",
        "IDENTICAL_CALLS_MAX = 4",
        "identical calls are cut to two",
    ),
    (
        "reliability/answer.py",
        "return Flaw.CIRCUIT_BREAK if loop.stage is Stage.BREAK else Flaw.LOOP, detail",
        "return Flaw.LOOP, detail",
        "five laps break the circuit",
    ),
    (
        "reliability/answer.py",
        "reason = FinishReason.TOOL_CALLS if checked.calls else finish.reason",
        "reason = finish.reason",
        "a call from text has the finish reason that agents look for",
    ),
    (
        "reliability/answer.py",
        "    if found.calls or found.malformed:\n        return TextKind.CALL",
        "    if found.calls:\n        return TextKind.CALL",
        "an attempt at a call is held",
    ),
    (
        "reliability/answer.py",
        "if not only_marks(one.raw))",
        "if one.raw)",
        "an upstream's own marks refuse no native call",
    ),
    (
        "reliability/answer.py",
        "        if not told[key]:\n",
        "        if True:\n",
        "a call that came twice over is delivered once",
    ),
    (
        "reliability/answer.py",
        "        told[key] -= told[key] > 0\n",
        "",
        "what the text says more often than the calls stays",
    ),
    # reask, health
    (
        "reliability/reask.py",
        "temperature=max(request.temperature or 0.0, RESAMPLE_TEMPERATURE)",
        "temperature=request.temperature",
        "a resample has some chance",
    ),
    (
        "reliability/reask.py",
        "if call.nudge and loop is not None:",
        "if loop is not None:",
        "nothing is added without being asked to",
    ),
    (
        "reliability/health.py",
        "if attempt.cancelled or attempt.fault in SAYS_NOTHING:",
        "if attempt.fault in SAYS_NOTHING:",
        "a cancel says nothing",
    ),
    (
        "reliability/health.py",
        "return Verdict.FAILURE if attempt.fault is not None else Verdict.SUCCESS",
        "return Verdict.FAILURE if attempt.fault or attempt.flaw else Verdict.SUCCESS",
        "a flaw says nothing bad of the tier",
    ),
    # drive, attempt: the simulation is their test
    (
        "deployments/drive.py",
        "    finally:\n        _write_down(",
        "    finally:\n        reading.end is None or _write_down(",
        "a grant is settled whatever happens",
    ),
    (
        "deployments/drive.py",
        "text_committed=any(a.text_out for a in run.attempts),",
        "text_committed=False,",
        "the text of an answer comes from one attempt",
    ),
    (
        "deployments/drive.py",
        "    if any(attempt.text_out for attempt in others):\n",
        "    if not others:\n",
        "no text of an earlier attempt stands behind a later one's",
    ),
    (
        "deployments/drive.py",
        "    return run.prompt_bytes if known else prompt_bytes(request.messages, request.tools)\n",
        "    return run.prompt_bytes\n",
        "what is reserved is the prompt that is sent",
    ),
    (
        "deployments/drive.py",
        "    events = list(judged.events)\n",
        "    events = list(judged.events) * 2\n",
        "calls leave once",
    ),
    (
        "deployments/attempt.py",
        "        if not isinstance(self.end, Finish):\n            return []\n",
        "",
        "nothing more leaves of an attempt that failed",
    ),
    (
        "deployments/attempt.py",
        'phase), (total_s, "total_s"),',
        'phase), (1e9, "total_s"),',
        "an attempt ends within its total timeout",
    ),
    (
        "deployments/attempt.py",
        '(total_s, "total_s"), (left_s, "deadline"), key',
        '(total_s, "total_s"), key',
        "a request ends within its deadline",
    ),
    (
        "deployments/attempt.py",
        "                if not self.sent and (not text or text.isspace()):",
        "                if not self.sent and not text:",
        "white space alone is not the text commit point",
    ),
    (
        "deployments/attempt.py",
        "        if self.sent:\n            out = self._sent(out)",
        "        if True:\n            out = self._sent(out)",
        "what was held to the end is judged before it leaves",
    ),
    (
        "deployments/attempt.py",
        "held, out = ((Text(self.lead),) if self.lead else ()) + out + held, ()",
        "held, out = out + held, ()",
        "white space at the beginning of an answer is delivered",
    ),
    (
        "deployments/attempt.py",
        "if self.written_bytes > self.output_cap * TOKEN_BYTES_MOST + OVERRUN_BYTES:",
        "if self.written_bytes < 0:",
        "the cap on an answer binds a tier that ignores it",
    ),
    (
        "deployments/attempt.py",
        "                self._count(batch[at + 1 :])\n",
        "",
        "what a tier has counted is known though it was stopped",
    ),
    (
        "deployments/attempt.py",
        "bool(self.judged.calls or self.judged.violations)\n",
        "True\n",
        "an answer that was stopped is good only for its calls",
    ),
    (
        "deployments/attempt.py",
        "        out = self.kept + out\n",
        "",
        "what came in one piece is not lost",
    ),
    (
        "deployments/attempt.py",
        "        if self.loop is not None and not self.sent:\n",
        "        if self.loop is not None and not out:\n",
        "a piece that convicts commits nothing",
    ),
    (
        "deployments/attempt.py",
        "loops.open_scan(calls=bool(names))",
        "loops.open_scan(calls=True)",
        "without tools nothing written is a call",
    ),
    (
        "deployments/attempt.py",
        "max(self.output_cap, self._written_tokens) if lost else self._written_tokens",
        "self._written_tokens",
        "a replica that died is charged for what it may have written",
    ),
    (
        "reliability/tools/verdicts.py",
        "object.__setattr__(self, name, whole(text))",
        "object.__setattr__(self, name, text)",
        "a violation can always be written as JSON",
    ),
]
