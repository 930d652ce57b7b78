"""Small sabotages of the table of faults and flaws, and of those who read it.

Each entry is (file, old text, new text, law); the old text stands in the file exactly once.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    # the table
    (
        "reliability/faults.py",
        "    Fault.CRASHED:             Traits(RETRY, IF_ON,  FAILURE, RAN,        Reason.SERVER_ERROR,    "
        "Code.UPSTREAM),\n",
        "",
        "every fault has a row",
    ),
    (
        "reliability/faults.py",
        "Fault.CONTEXT_LENGTH:      Traits(NO,    ALWAYS, IGNORED,",
        "Fault.CONTEXT_LENGTH:      Traits(NO,    ALWAYS, FAILURE,",
        "what is the client's own opens no breaker",
    ),
    (
        "reliability/faults.py",
        "Fault.BUDGET:              Traits(NO,    ALWAYS, IGNORED, NOTHING, ",
        "Fault.BUDGET:              Traits(NO,    ALWAYS, IGNORED, RAN, ",
        "a tier that is passed over did no work",
    ),
    (
        "reliability/faults.py",
        "Fault.AUTH:                Traits(NO, ",
        "Fault.AUTH:                Traits(RETRY, ",
        "a retry is for what may pass",
    ),
    (
        "reliability/faults.py",
        "Fault.BAD_REQUEST:         Traits(NO,    NEVER,  IGNORED,",
        "Fault.BAD_REQUEST:         Traits(NO,    NEVER,  FAILURE,",
        "what every tier would say is no tier's fault",
    ),
    (
        "reliability/faults.py",
        "Flaw.EMPTY:                Traits(REASK, IF_ON,  SUCCESS,",
        "Flaw.EMPTY:                Traits(REASK, IF_ON,  FAILURE,",
        "a flaw says nothing bad of the tier",
    ),
    (
        "reliability/faults.py",
        "verdict_with_time=FAILURE, rejected_by=(RejectedBy.FULL,),",
        "verdict_with_time=FAILURE,",
        "every rejection has its fault",
    ),
    # refusals, health, escalation
    (
        "reliability/escalation/refusals.py",
        "    if attempt.retry_after_s is None or traits.code_with_time is None:\n",
        "    if traits.code_with_time is None:\n",
        "what only a person can lift doesn't pass",
    ),
    (
        "reliability/escalation/refusals.py",
        "    if traits_of(attempt).nudge or code not in CODE_RANKING:\n",
        "    if code not in CODE_RANKING:\n",
        "a loop explains no refusal where a tier's own words do",
    ),
    (
        "reliability/escalation/refusals.py",
        "    if len(waits) < len(passing):\n        return None\n",
        "",
        "no time is told where one of those that may come back told none",
    ),
    (
        "reliability/escalation/refusals.py",
        "            if attempt.fault is not Fault.RETRY_BUDGET:\n",
        "            if True:\n",
        "a rejected second try hides no fault",
    ),
    (
        "reliability/escalation/refusals.py",
        "return min(waits) if waits else None",
        "return max(waits) if waits else None",
        "the shortest Retry-After is passed on",
    ),
    (
        "reliability/escalation/health.py",
        "    return Verdict.IGNORED if attempt.cancelled else traits.verdict\n",
        "    return traits.verdict\n",
        "a cancel says nothing",
    ),
    (
        "reliability/escalation/health.py",
        "        return traits.verdict_with_time\n",
        "        return traits.verdict\n",
        "a full tier that says until when is left alone",
    ),
    (
        "reliability/escalation/policies.py",
        "        return traits.reason in situation.limits.escalate_on\n",
        "        return True\n",
        "a request moves on only for a reason that is switched on",
    ),
    # the shell
    (
        "deployments/request/accounting.py",
        "TRAITS[end.fault].ran is not Ran.RAN or not accepted",
        "not accepted",
        "what did not run is not charged",
    ),
    (
        "deployments/request/attempt.py",
        "    if ttft_ns is not None or usage.total_tokens > 0:\n",
        "    if False:\n",
        "what costs or writes something has run",
    ),
    (
        "deployments/request/timeouts.py",
        "if fault is None or end.lost or not ends:",
        "if fault is None or end.lost:",
        "only what would be asked again counts as a stall",
    ),
    (
        "deployments/request/timeouts.py",
        'Failed(fault=Fault.DEADLINE, message="the request\'s deadline passed")',
        'Failed(fault=Fault.TOTAL_TIMEOUT, message="the request\'s deadline passed")',
        "a client's short deadline says nothing of a tier",
    ),
]
