"""`python -m tests.evals`: every row of the table, on recorded data or a stand-in; exit code 1 below a floor."""

import statistics
import sys
import time

from reliability.attempt import Attempt
from reliability.escalation.decisions import Limits, Situation
from reliability.escalation.policies import decide
from reliability.types import Fault, Flaw, Reason
from tests.evals import loops_eval, sessions_eval, tool_cases, tools_eval

DECIDE_US_MAX = 20.0
ROUNDS = 5000


def decide_cost_us() -> float:
    """Median of one decision, over situations of one to four attempts."""
    attempts = (
        Attempt(tier="fast", ran=True, flaw=Flaw.TOOL_CALL_INVALID, detail="x"),
        Attempt(tier="fast", ran=True, fault=Fault.SERVER_ERROR, detail="x"),
        Attempt(tier="standard", ran=True, fault=Fault.IDLE_TIMEOUT, detail="x"),
        Attempt(tier="longctx", ran=True),
    )
    limits = Limits(retries_max=3, reasks_max=3, attempts_max=8, escalate_on=frozenset(Reason))
    chain = ("fast", "standard", "longctx", "premium")
    costs: list[float] = []
    for i in range(ROUNDS):
        situation = Situation(chain=chain, attempts=attempts[: 1 + i % 4], remaining_ns=10**12, limits=limits)
        start = time.perf_counter()
        decide(situation)
        costs.append(1e6 * (time.perf_counter() - start))
    return statistics.median(costs)


def main() -> int:
    """Print all rows."""
    print(f"recorded loops: {loops_eval.RECORDED.exists()}; recorded calls: {tool_cases.RECORDED.exists()}\n")
    failed = loops_eval.main([])
    print()
    failed |= tools_eval.main([])
    print()
    failed |= sessions_eval.main()
    cost_us = decide_cost_us()
    ok = cost_us < DECIDE_US_MAX
    print(f"\n{'ok' if ok else 'FAIL'} | decide, median | {cost_us:.1f} µs | < {DECIDE_US_MAX:.0f} µs")
    return 1 if failed or not ok else 0


if __name__ == "__main__":
    sys.exit(main())
